"""An agent need not know everything from the start: it needs to know what it can look up.

The problem
    How this team writes release notes, checks a contract or makes tea fills pages. All of them in the
    instructions cost their tokens with every request, and most requests need none. Left out, they are
    unknown.

The picture
    skills/                           in every request            when the model asks
    ├── bread/SKILL.md                ─────────────────           ───────────────────
    │     name: bread                 - bread: How we bake.
    │     description: How we bake.   - tea: How we make tea. ──► read_skill("tea")
    │     … the text …                                            Warm the pot first. …
    └── tea/SKILL.md, tea/times.md                            ──► read_skill("tea", "times.md")
                                                                  Green: 2 minutes. …

How it works
    A skill is a folder with a `SKILL.md`. Between two lines of `---` stand its name and what it is for;
    below stands the text. `Skills(folder)` reads the names once. They become a part of the instructions,
    one line each. The text comes in as the result of a call, and only then costs tokens.

    `read_skill` reads the other files of a skill too. It leads to nothing outside of the skill's folder: by
    no `..`, no absolute path, no link.

    What was read must not be forgotten while the work goes on. Where a compaction hides it, the set puts it
    behind the summary, the newest first. What has no room there is named, so that it can be read again.

What changed
    | | lesson 4 | now |
    |---|---|---|
    | what is long is read | by a sub-agent, which tells one line | by the agent itself, when it is needed |
    | in every request stand | the agent's instructions | also one line for each skill |
    | kept in sight | the list of a set | also the texts that were read |

Try it
    python lessons/l05_skills.py
    python lessons/l05_skills.py --prompt "Use read_skill on 'bread'."

    - With a prompt the offline model takes the place of `cook`, and calls the tools that it names.
    - Write a folder of your own with a SKILL.md, and give it to `Skills`.
    - With a real model: put OpenAIChat("…") in place of `cook()`; it needs to call tools.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten

from agentloop import Agent, ChatModel, Message, OfflineModel, Runner, Skills
from agentloop.testing import ScriptedModel, calls


async def lesson(model: ChatModel, prompt: str) -> "Shown":
    """One prompt that needs a skill, a compaction, and what is left of the skill then."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        write(Path(place))
        skills = Skills(place)
        print(f"in every request\n{indented(skills.instructions)}\n\n> {prompt}")
        async with Runner(Agent(model, tools=[skills]), transcripts=None) as runner:
            result = await runner.run(prompt, session_id=SESSION)
            for talk in TALK:
                await runner.run(talk, session_id=SESSION)
            results = tuple(message.text for message in result.messages if message.role == "tool")
            print("\n".join(indented(text) for text in results))
            print(f"\ncompact: {(await runner.compact(SESSION)).status}")
            result = await runner.run("Another pot, please.", session_id=SESSION)
    kept = kept_in(result.messages)
    print(f"\nbehind the summary\n{indented(kept) if kept else '  (nothing was read)'}\n\n{result.output}")
    return Shown(instructions=skills.instructions, results=results, kept=kept, output=result.output)


PROMPT = "Make me a pot of green tea."
TALK = ("Where does it grow?", "Thank you.")
SESSION = "kitchen"
STEPS = "Warm the pot first. Weigh the leaves. Let the water stand until it no longer boils. "
FILES = {
    "tea/SKILL.md": f"---\nname: tea\ndescription: How we make tea.\n---\n{STEPS * 6}Times: see times.md.",
    "tea/times.md": "Green: 2 minutes. Black: 4 minutes.",
    "bread/SKILL.md": "---\nname: bread\ndescription: How we bake.\n---\nKnead it, wait, then bake it.",
    "safe.txt": "The key of the safe lies in the tea box.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What stands in every request of the skills, what calls were answered, what a compaction left."""

    instructions: str
    results: tuple[str, ...]
    kept: str
    output: str


def write(folder: Path) -> None:
    """Put the skills into the folder, and beside them something that is none of theirs."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def cook() -> ScriptedModel:
    """A model that reads before it acts, and tries to read what is none of its business."""
    return ScriptedModel(
        [
            calls(read_skill={"name": "tea"}),
            calls(
                ("read_skill", {"name": "tea", "file": "times.md"}),
                ("read_skill", {"name": "tea", "file": "../safe.txt"}),
            ),
            "I warm the pot, and the tea draws for 2 minutes.",
            "They pick the leaves at dawn, two and a bud. " * 80,
            "You are welcome.",
            "The second pot is made as the first: the skill is still in sight.",
        ]
    )


def indented(text: str) -> str:
    """The lines of the text as they are shown, each by its beginning."""
    return "\n".join(f"  {shorten(line, 100, placeholder=' …')}" for line in text.splitlines() if line)


def kept_in(messages: Sequence[Message]) -> str:
    """What tools keep in sight; empty where it is nothing."""
    return next((each.text for each in messages if each.text.startswith("[Kept in sight")), "")


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else cook(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
