"""Sessions in which people say much in many ways, and results hold codes anywhere.

Short messages whose sentences need each other, long ones that somebody typed, questions with their answers,
who owns what, corrections, values told anew in other words, and codes at the head, in the middle and at the
end of results and of long sentences. What is planted is a `Plant`, as in `planting.py`.
"""

import json
import random
from collections.abc import Callable, Sequence

from agentloop.messages import Message, ToolCall
from tests.benchmarks.planting import ADJECTIVES, NOUNS, VERBS, WORDING, Planted

PEOPLE = (
    ("Ayla", "Bram", "Chidi", "Dagny", "Emre", "Fenna", "Goran", "Hilde", "Ilya", "Jomo", "Kaito", "Lucía"),
    ("Okafor", "Brandt", "Quist", "Demir", "Novak", "Tanaka", "Silva", "Moreau", "Lindqvist", "Haddad"),
)

CONSTRAINTS = (
    "Whatever we ship has to run offline on {value}.",
    "Please leave the rows tagged {value} as they are.",
    "Nobody outside the team may see {value}.",
    "Reports for the {name} go out in Danish, that is settled with {value}.",
    "The {name} has to keep answering while {value} is migrated.",
    "Don't add anything to {value} that needs a network.",
    "Stay below {value} requests for the {name}.",
    "We can't use {value} in production, the licence does not allow it.",
    "Everything in {value} is append-only.",
    "Das Schema {value} bleibt unverändert.",
)
TOGETHER = (
    "The {name} and the {other} look alike. Don't mix them up.",
    "There are two of them, the {name} and the {other}. Only the second one is ours.",
    "It is the {name} that customers see. The {other} is not part of that.",
    "First the {name}, then the {other}. Not the other way round.",
)
OWNERS = (
    "{person} owns the {name}.",
    "{person} looks after the {name}.",
    "For the {name} ask {person}.",
    "The {name} belongs to {person} and her team.",
    "Sign-offs for the {name} come from {person}.",
)
CORRECTED = (
    ("The id of the {name} is {old}.", "No, the id of the {name} is {new}."),
    ("I take it the {name} listens on {old}.", "That's wrong, the {name} listens on {new}."),
    ("The {name} holds {old} rows.", "Not quite: the {name} holds {new} rows."),
)
RETOLD = (
    ("We deploy the {name} from the branch {word}/{old}.", "The branch for the {name} is {word}/{new} now."),
    ("The access code of the {name} is {old}.", "They rotated the code, for the {name} it is {new}."),
    ("Our {name} budget is {old} euros.", "Finance cut the budget for the {name} down to {new} euros."),
    ("The {name} gets {old} workers.", "Let's give the {name} {new} workers instead."),
    (
        "Send the {name} files to {old}@acme.example.",
        "From Monday the {name} files go to {new}@acme.example.",
    ),
    ("The limit of the {name} is {small} per minute.", "Raise the {name} limit to {new} a minute."),
)
SMALL = ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
QUESTIONS = (
    ("Which version does the {name} run on?", "It runs on {value}."),
    ("What is the tag of the {name}?", "The tag of the {name} is {value}."),
    ("Where does the {name} write to?", "It writes to {value}."),
)
IDLE = ("What do you think?", "And the rest?", "How is it going?", "Are we on track?", "Anything odd so far?")
TYPED = (
    "I have been thinking about the {name} since yesterday.",
    "The {name} came to us from another team two years ago and nobody has looked at it since.",
    "There are about {n} screens in it and most of them are never opened.",
    "When I tried the {name} this morning it felt slow at first and then fine.",
    "Support says that people ask about the {name} every other week.",
    "I do not mind if the {name} looks a bit different afterwards.",
    "The {name} was the first thing that we built here.",
)
LIGHT = (
    "The structure is clear now and everything is where one would look for it.",
    "Most of this follows the same pattern as the parts before.",
    "It reads well, and the names are telling.",
    "I went through it from top to bottom and it hangs together.",
    "The parts fit, so the rest can go on as before.",
    "That leaves the same picture as in the part before it.",
    "There is some repetition, which does no harm here.",
)
MIDDLES = (
    "After all {n} parts had been gone through one by one and compared with what the {name} had stored for "
    "them over the weeks before, with nothing left over and nothing counted twice on either side, the run "
    "was filed as {value}.",
    "Entry {value} was made for the {name}.",
    "The job got the id {value}.",
    "request_id={value} status=ok",
)


def talked_session(seed: int, *, turns: int = 60, exchanges: int = 2, planted: int = 4) -> Planted:
    """A session of so many turns with so many plants of each kind."""
    session = Planted(rng=random.Random(f"talk {seed}"), wording=WORDING, sentences=36)
    script: list[list[Callable[[], tuple[str, str]]]] = [[] for _ in range(turns)]
    for tell in (_fact, _rule, _goal, _constraint, _together, _owner, _question):
        for _ in range(planted):
            script[session.rng.randrange(turns - 4)].append(_bound(tell, session))
    for pairs, kind in ((CORRECTED, "correction"), (RETOLD, "retold")):
        for pair in session.rng.sample(list(pairs), min(planted, len(pairs))):
            _pair(session, script, pair, kind)
    for at in range(turns):
        _turn(session, [tell() for tell in script[at]], at, exchanges)
    return session


def _bound(tell: Callable[[Planted], tuple[str, str]], session: Planted) -> Callable[[], tuple[str, str]]:
    return lambda: tell(session)


def _said(kind: str, templates: Sequence[str], session: Planted) -> str:
    value = session.value()
    session.plant(kind, value)
    template = session.rng.choice([each for each in templates if each not in session.used])
    session.used.add(template)
    return template.format(name=session.name(), value=value)


def _fact(session: Planted) -> tuple[str, str]:
    return _said("fact", session.wording.facts, session), ""


def _rule(session: Planted) -> tuple[str, str]:
    return _said("rule", session.wording.rules, session), ""


def _goal(session: Planted) -> tuple[str, str]:
    return _said("goal", session.wording.goals, session), ""


def _constraint(session: Planted) -> tuple[str, str]:
    stated = _said("constraint", CONSTRAINTS, session)
    if session.rng.random() < 0.5:
        return stated, ""
    around = [session.text(TYPED, name=session.name(), n=str(session.rng.randint(9, 90))) for _ in range(10)]
    around.insert(session.rng.randrange(1, 10), stated)
    return " ".join(around), ""


def _together(session: Planted) -> tuple[str, str]:
    template = session.rng.choice([each for each in TOGETHER if each not in session.used])
    session.used.add(template)
    text = template.format(name=session.name(), other=session.name())
    session.plant("short message whole", text)
    return text, ""


def _owner(session: Planted) -> tuple[str, str]:
    first, last = PEOPLE
    person = session._new(lambda: f"{session.rng.choice(first)} {session.rng.choice(last)}")
    session.plant("owner", person)
    return session.text(OWNERS, name=session.name(), person=person), ""


def _question(session: Planted) -> tuple[str, str]:
    asked, answered = session.rng.choice(QUESTIONS)
    name, value = session.name(), session.value()
    session.plant("answer", value)
    return asked.format(name=name), answered.format(name=name, value=value)


def _pair(
    session: Planted,
    script: Sequence[list[Callable[[], tuple[str, str]]]],
    pair: tuple[str, str],
    kind: str,
) -> None:
    rng = session.rng
    first = rng.randrange(len(script) // 2)
    second = rng.randrange(first + 1, len(script) - 3)
    small, word = rng.choice(SMALL), rng.choice(("release", "hotfix", "train"))
    filled = {"name": session.name(), "old": str(rng.randint(1_000, 9_999)), "small": small, "word": word}
    filled["new"] = str(rng.randint(10_000, 99_999))
    old = filled["small" if "{small}" in pair[0] else "old"]
    before, after = (text.format(**filled) for text in pair)
    by_assistant = kind == "correction"
    script[first].append(lambda: ("", before) if by_assistant else (before, ""))
    script[second].append(lambda: (after, ""))
    session.plant(f"{kind}, new", filled["new"])
    session.plant(f"{kind}, old gone or marked", before if old == small else old, stale=True)


def _turn(session: Planted, told: Sequence[tuple[str, str]], at: int, exchanges: int) -> None:
    rng, wording = session.rng, session.wording
    opening = session.text(wording.requests if at else wording.tasks, name=session.name())
    if at and rng.random() < 0.4:
        opening = rng.choice(IDLE)
    else:
        session.plant("user sentence", opening)
    apart = [said for said, _ in told if said and (said.count(". ") > 3 or said.count(". ") == 1)]
    session.messages.append(Message.user(" ".join([opening, *(s for s, _ in told if s and s not in apart)])))
    for number in range(rng.randint(max(1, exchanges - 1), exchanges + 1)):
        decided = rng.random() < 0.05
        _exchange(session, _decision(session) if decided else "", number)
    light = rng.sample(LIGHT, 2)
    ending = [session.text(wording.answers, name=session.name()), *(a for _, a in told if a), *light]
    session.messages.append(Message.assistant(" ".join(ending)))
    for said in apart:
        session.messages += [Message.user(said), Message.assistant(f"Noted. {rng.choice(LIGHT)}")]


def _decision(session: Planted) -> str:
    chosen = session.value()
    session.plant("decision", chosen)
    return session.text(session.wording.decisions, new=chosen, other=session.value(), name=session.name())


def _exchange(session: Planted, said: str, number: int) -> None:
    rng, wording = session.rng, session.wording
    tool, key, path = _new_call(session)
    if not any(plant.value == path for plant in session.plants):
        session.plant("file", path)
    text = [session.text(wording.fillers, **_filled(session)) for _ in range(session.sentences)]
    if rng.random() < 0.3:
        code, name = session.value(), session.name()
        where = rng.choice(("head", "middle", "end"))
        at = {"head": 0, "middle": len(text) // 2, "end": len(text)}[where]
        templates = {"head": wording.heads, "middle": MIDDLES, "end": (*wording.ends, MIDDLES[0])}[where]
        text.insert(at, session.text(templates, value=code, name=name, n=str(rng.randint(2, 99))))
        session.plant(f"code at the {where}", code)
    arguments = {key: f"{tool.removeprefix('run_')} {path}" if key == "command" else path}
    call = ToolCall(id=f"call_{len(session.messages)}", name=tool, arguments=json.dumps(arguments))
    session.messages += [Message.assistant(said or None, [call]), Message.tool(call.id, " ".join(text))]


def _new_call(session: Planted) -> tuple[str, str, str]:
    """A tool, its argument and a file, never the same again: the older of equal calls is superseded."""
    while True:
        (tool, key), path = session.rng.choice(session.wording.tools), session.file()
        if f"{tool} {path}" not in session.used:
            session.used.add(f"{tool} {path}")
            return tool, key, path


def _filled(session: Planted) -> dict[str, str]:
    rng = session.rng
    return {
        "a": rng.choice(ADJECTIVES),
        "b": rng.choice(NOUNS),
        "c": rng.choice(NOUNS),
        "v": rng.choice(VERBS),
        "n": str(rng.randint(2, 99)),
    }
