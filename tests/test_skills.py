"""Skills: named in every request, read on demand, in sight over compactions, and nothing outside is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Compaction, Message, Skills, SyncRunner, ToolSet
from agentloop.errors import ModelUnavailableError, RetryTool, UsageError
from agentloop.models import ModelRequest
from agentloop.prompts import KEPT_IN_SIGHT
from agentloop.stores import SQLiteStore
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel, calls
from agentloop.toolsets import MOST_LISTED_CHARS
from tests.kit import assert_valid

TWO_TURNS = Compaction(strategy=KeepRecentTurns(1), tool=False)
LONG = "The snails came. " * 100


def skill(folder: Path, name: str, text: str = "Do it well.", description: str = "How it is done.") -> Path:
    """A skill in the folder."""
    home = folder / "skills" / name
    home.mkdir(parents=True)
    front = f"---\nname: {name}\ndescription: {description}\n---\n"
    (home / "SKILL.md").write_text(f"{front}\n{text}\n", "utf-8")
    return home


def skills(folder: Path) -> Skills:
    """The skills in the folder."""
    return Skills(folder / "skills")


def read(name: str, **more: str) -> Any:
    """A call that reads."""
    return calls(("read_skill", {"name": name, **more}))


def results(request: ModelRequest) -> list[str]:
    """The results in a request."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


def pinned(request: ModelRequest) -> str:
    """What is pinned in a request."""
    texts = [str(message["content"]) for message in request.messages]
    return next((text for text in texts if text.startswith(KEPT_IN_SIGHT)), "")


def answers_to(folder: Path, *asked: Any) -> list[str]:
    """What these calls are answered."""
    model = ScriptedModel([*asked, "Done."])
    with SyncRunner(Agent(model, tools=[skills(folder)]), transcripts=None) as runner:
        runner.run("Do it.")
    return results(model.requests[-1])


def test_names_stand_in_every_request_and_the_text_is_read_on_demand(tmp_path: Path) -> None:
    skill(tmp_path, "tea", "Warm the pot.", "How tea is made.")
    home = skill(tmp_path, "bread", "Knead it.\n---\nBake it.", "How bread is baked.")
    (home / "times.md").write_text("40 minutes")
    model = ScriptedModel([read("bread"), read("bread", file="times.md"), "Done."])
    agent = Agent(model, tools=[skills(tmp_path)], instructions="Be brief.")
    with SyncRunner(agent, transcripts=None) as runner:
        runner.run("Bake.")
    told = "- bread: How bread is baked.\n- tea: How tea is made."
    for request in model.requests:
        assert str(request.messages[0]["content"]).startswith("Be brief.\n\n")
        assert str(request.messages[0]["content"]).endswith(told)
    assert results(model.requests[-1]) == [
        "[Skill bread]\nKnead it.\n---\nBake it.\n[Its files, for read_skill: times.md]",
        "[File times.md of skill bread]\n40 minutes",
    ]


def test_nothing_outside_of_a_skill_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("KX-4711")
    home = skill(tmp_path, "tea")
    skill(tmp_path, "bread", "KX-4711")
    (home / "out.txt").symlink_to(tmp_path / "secret.txt")
    (home / "odd.bin").write_bytes(b"\xff\xfe\xff")
    outside = ("../../secret.txt", str(tmp_path / "secret.txt"), "out.txt", "../bread/SKILL.md")
    refused = answers_to(
        tmp_path, *(read("tea", file=each) for each in (*outside, "none.md", "odd.bin", "."))
    )
    assert "KX-4711" not in "".join(refused)
    assert ["outside" in text for text in refused] == [True] * 4 + [False] * 3
    assert "there is no file" in refused[4]
    assert "no text in UTF-8" in refused[5]
    assert "is a folder" in refused[6]
    [unknown] = answers_to(tmp_path, read("tee"))
    assert "there is no skill 'tee': there are bread, tea" in unknown


def test_what_was_read_stays_in_sight_the_newest_first_under_a_cap(tmp_path: Path) -> None:
    for name, words in (("one", 10), ("two", 10), ("three", 4_000)):
        skill(tmp_path, name, f"{name} " * words)
    script = [read("one"), LONG, read("three"), LONG, read("two"), LONG, LONG, LONG, LONG, LONG]
    model = ScriptedModel([*script, "End."], window=16_000)
    agent = Agent(model, tools=[skills(tmp_path)], compaction=TWO_TURNS)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        for text in ("a", "b", "c", "d"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("e", session_id="s")
        kept = pinned(model.requests[-1])
        assert kept.index("[Skill two]\ntwo two") < kept.index("[Skill three was read before")
        assert kept.index("[Skill three was read") < kept.index("[Skill one]\none one")
        runner.run("f", session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("g", session_id="s")
        assert pinned(model.requests[-1]) == kept
    assert_valid(model.requests)


def test_a_skill_that_is_in_sight_is_not_pinned_and_another_process_sends_the_same(tmp_path: Path) -> None:
    skill(tmp_path, "tea", "Warm the pot.")
    skill(tmp_path, "bread", "Knead it.")
    script = [read("tea"), LONG, read("bread"), LONG, read("tea"), LONG, ModelUnavailableError("gone")]
    model = ScriptedModel(script)
    agent = Agent(model, tools=[skills(tmp_path)], compaction=TWO_TURNS)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        for text in ("a", "b", "c"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        with pytest.raises(ModelUnavailableError):
            runner.run("d", session_id="s")
    assert "[Skill bread]\nKnead it." in pinned(model.requests[-1])
    assert "tea" not in pinned(model.requests[-1])
    other = ScriptedModel(["Done."])
    agent = Agent(other, tools=[skills(tmp_path)])
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        runner.resume("s")
    assert other.requests[0].messages == model.requests[-1].messages


def test_what_was_put_behind_a_skill_is_no_part_of_it(tmp_path: Path) -> None:
    class Nagging(ToolSet):
        def reminder(self, messages: Sequence[Message]) -> str:
            return "close\n the door"

    skill(tmp_path, "tea", "Warm the pot.\n[Reminder: twice.]\nPour.")
    model = ScriptedModel([read("tea"), read("tea"), read("tea"), LONG, LONG, LONG, "End."])
    agent = Agent(model, tools=[skills(tmp_path), Nagging(), Nagging()], compaction=TWO_TURNS)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        for text in ("a", "b", "c"):
            runner.run(text, session_id="s")
        assert results(model.requests[-1])[-1].endswith("door]\n[Reminder: close the door]")
        assert runner.compact("s").status == "done"
        runner.run("d", session_id="s")
    assert "[Skill tea]\nWarm the pot.\n[Reminder: twice.]\nPour.\n</kept" in pinned(model.requests[-1])


@pytest.mark.parametrize(
    "last",
    ["[Reminder: twice.]", "[This call gave this same result 3 times in this run: never.]\nPour slowly."],
)
def test_a_skill_that_ends_like_what_is_put_behind_one_stays_whole(last: str, tmp_path: Path) -> None:
    class Nagging(ToolSet):
        def reminder(self, messages: Sequence[Message]) -> str:
            return "close the door"

    skill(tmp_path, "tea", f"Warm the pot.\n{last}")
    model = ScriptedModel([read("tea"), LONG, LONG, LONG, "End."])
    agent = Agent(model, tools=[skills(tmp_path), Nagging()], compaction=TWO_TURNS)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        for text in ("a", "b", "c"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("d", session_id="s")
    assert f"[Skill tea]\nWarm the pot.\n{last}\n</kept" in pinned(model.requests[-1])


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ('---\nname: tea\ndescription: "Made: hot"\nlicense: MIT\n---\n', "Made: hot"),
        ("---\r\nname: tea\r\ndescription: >\r\n  Made\r\n  hot\r\n---\r\n", "Made hot"),
        ("\ufeff---\nname: 'tea'\ndescription: Made\n  hot\nmetadata:\n  a: b\n---\n", "Made hot"),
        ("---\rname: tea\rdescription: Made\r  hot\r---\r", "Made hot"),
        ("---\nname: tea\ndescription: Made\u2028very\x85hot\x0b\n---\n", "Made very hot"),
        ("\ufeff\ufeff---\nname: tea\ndescription: \x1b[1mMade\x00\thot\n---\n", "[1mMade hot"),
    ],
)
def test_front_matter_is_read_as_people_write_it(tmp_path: Path, head: str, found: str) -> None:
    home = skill(tmp_path, "tea")
    (home / "SKILL.md").write_bytes(f"{head}Warm the pot.".encode())
    assert skills(tmp_path).instructions.endswith(f"\n- tea: {found}")
    assert answers_to(tmp_path, read("tea"))[0] == "[Skill tea]\nWarm the pot."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Warm the pot.", "tea/SKILL.md must have a name"),
        ("---\nname: tea\nWarm", "must have a name"),
        ("---\nname: a b\ndescription: c\n---\n", "not 'a b'"),
        ("---\nname: tea\n---\n", "must have a description"),
        (b"---\nname: \xff\n---\n", "tea/SKILL.md cannot be read"),
    ],
)
def test_a_skill_that_says_not_what_it_is_names_its_file(tmp_path: Path, text: str | bytes, why: str) -> None:
    home = skill(tmp_path, "tea")
    (home / "SKILL.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=why):
        skills(tmp_path)


def test_bad_folders_are_one_clear_line(tmp_path: Path) -> None:
    for bad in (None, 7, b"x", ""):
        with pytest.raises(UsageError, match="folder must be the path of a folder with skills, not"):
            Skills(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="folder 'nowhere' is not there: name a folder with skills"):
        Skills("nowhere")
    with pytest.raises(UsageError, match=r"sets of tools, not their classes: give Skills\(…\) instead"):
        Agent(ScriptedModel([]), tools=[Skills])
    with pytest.raises(UsageError, match=r"test_skills\.py' is no folder: name a folder with skills"):
        Skills(__file__)
    with pytest.raises(UsageError, match="there is no skill in"):
        Skills(tmp_path)
    home = skill(tmp_path, "tea")
    with pytest.raises(UsageError, match="it is one itself, so name the folder above it"):
        Skills(tmp_path / "skills" / "tea")
    (tmp_path / "skills" / "again").mkdir()
    (tmp_path / "skills" / "again" / "SKILL.md").write_bytes((home / "SKILL.md").read_bytes())
    with pytest.raises(UsageError, match="are called 'tea'"):
        skills(tmp_path)


def test_a_skill_that_a_link_leads_out_to_is_refused(tmp_path: Path) -> None:
    home = skill(tmp_path, "tea")
    away = tmp_path / "away"
    home.rename(away)
    home.symlink_to(away)
    with pytest.raises(UsageError, match="cannot be read: 'tea' is outside"):
        skills(tmp_path)


def test_of_a_great_many_skills_those_are_named_that_have_room_and_others_are_found(tmp_path: Path) -> None:
    for number in range(300):
        folder = tmp_path / f"skill-{number:04}"
        folder.mkdir()
        head = f"---\nname: skill-{number:04}\ndescription: {'What it is for. ' * 30}\n---\n"
        (folder / "SKILL.md").write_text(head, "utf-8")
    skills = Skills(tmp_path)
    *listed, last = skills.instructions.splitlines()[1:]
    assert len(listed) == 81
    assert last == "- 219 more: call read_skill with a word to hear which names hold it"
    assert len(skills.instructions) < MOST_LISTED_CHARS + 1_000
    with pytest.raises(RetryTool) as hint:
        skills.read_skill("299")
    assert str(hint.value).startswith("there is no skill '299': there are skill-0299, skill-0000, skill-0001")
    assert str(hint.value).endswith("skill-0098 and 200 more")
    assert skills.read_skill("skill-0299").startswith("[Skill skill-0299]")
