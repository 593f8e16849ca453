"""Sessions with known things planted in them: short turns, many tools, long results, values that change.

A session is made from a seed and a `Wording`, so that the same things can be planted in other words. What is
planted is a `Plant`: its value must still be there at the end, or must be gone (`stale`).
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from agentloop.messages import Message, ToolCall

ADJECTIVES = (
    "amber",
    "brisk",
    "calm",
    "dusty",
    "eager",
    "faint",
    "grand",
    "hollow",
    "ivory",
    "jolly",
    "keen",
)
NOUNS = (
    "anchor",
    "badger",
    "cedar",
    "delta",
    "ember",
    "falcon",
    "garnet",
    "harbor",
    "island",
    "jasper",
    "kettle",
)
VERBS = ("loads", "stores", "maps", "checks", "sends", "splits", "merges", "drops", "wraps", "reads", "sorts")
FOLDERS = (
    "src",
    "app",
    "lib/core",
    "services/api",
    "tests",
    "docs/guides",
    "scripts",
    "packages/ui/src",
    "infra",
)
FILES = 25
"""So many files has the project of one session."""

ENDINGS = ("py", "ts", "go", "md", "yaml", "sql", "json", "rs", "tsx", "toml", "sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """Something said in a session: its kind, the text to look for, and whether it should be gone."""

    kind: str
    value: str
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Templates; `{name}`, `{value}`, `{old}`, `{new}`, `{other}` and `{path}` are filled in."""

    tasks: Sequence[str]
    requests: Sequence[str]
    pleasantries: Sequence[str]
    facts: Sequence[str]
    rules: Sequence[str]
    goals: Sequence[str]
    changes: Sequence[tuple[str, str]]
    decisions: Sequence[str]
    narrations: Sequence[str]
    answers: Sequence[str]
    fillers: Sequence[str]
    heads: Sequence[str]
    ends: Sequence[str]
    errors: Sequence[str]
    tools: Sequence[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class Planted:
    """A session in the making."""

    rng: random.Random
    wording: Wording
    sentences: int = 40
    messages: list[Message] = field(default_factory=list)
    plants: list[Plant] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)

    def name(self) -> str:
        """A new name of two or three words."""
        return self._new(lambda: f"{self.rng.choice(ADJECTIVES)} {self.rng.choice(NOUNS)}" + self._suffix())

    def value(self) -> str:
        """A new value: a number, a code, a name or a path, each of its own kind."""
        kinds = (
            lambda: str(self.rng.randint(1_000, 99_999)),
            lambda: f"{self.rng.choice(NOUNS)}-{self.rng.randint(10, 99)}",
            lambda: f"{self.rng.choice(NOUNS)}_{self.rng.choice(NOUNS)}_{self.rng.randint(1, 99)}",
            lambda: "".join(self.rng.choices("ABCDEFGHJKMNPQRSTUVWXYZ23456789", k=7)),
            lambda: f"{self.rng.randint(1, 20)}.{self.rng.randint(0, 40)}.{self.rng.randint(0, 9)}",
        )
        return self._new(self.rng.choice(kinds))

    def path(self) -> str:
        """A new path of a file."""
        return self._new(
            lambda: (
                f"{self.rng.choice(FOLDERS)}/{self.rng.choice(NOUNS)}_{self.rng.choice(NOUNS)}"
                f".{self.rng.choice(ENDINGS)}"
            )
        )

    def file(self) -> str:
        """A file of the project: there are about as many as turns, so most are touched several times."""
        if len(self.files) < FILES and self.rng.random() < 0.4:
            self.files.append(self.path())
        return self.rng.choice(self.files) if self.files else self.path()

    def text(self, templates: Sequence[str], **filled: str) -> str:
        """One of the templates, filled in."""
        return self.rng.choice(templates).format_map(filled)

    def plant(self, kind: str, value: str, *, stale: bool = False) -> None:
        """Take note of what was said."""
        self.plants.append(Plant(kind=kind, value=value, stale=stale))

    def _suffix(self) -> str:
        return self.rng.choice(["", "", " service", " queue", " panel"])

    def _new(self, make: Callable[[], str]) -> str:
        while (made := make()) in self.used:
            pass
        self.used.add(made)
        return made


def planted_session(seed: int, wording: Wording, *, turns: int = 20, exchanges: int = 5) -> Planted:
    """A session of so many turns of about so many exchanges each, and what was planted in it."""
    session = Planted(rng=random.Random(seed), wording=wording)
    script = _script(session, turns)
    for turn in range(turns):
        _turn(session, script[turn], first=turn == 0, exchanges=exchanges)
    _leave_outdated(session)
    return session


def _leave_outdated(session: Planted) -> None:
    """Look for no code of a result whose call is made again later: what it shows then is what holds."""
    newest = {(call.name, call.arguments): call.id for one in session.messages for call in one.tool_calls}
    outdated = [
        one.text for one in session.messages if one.role == "tool" and one.tool_call_id not in newest.values()
    ]
    session.plants = [
        plant
        for plant in session.plants
        if not (plant.kind.startswith("code") and any(plant.value in text for text in outdated))
    ]


@dataclass(slots=True)
class _Turn:
    said: list[str] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    pasted: bool = False
    decided: list[str] = field(default_factory=list)


def _script(session: Planted, turns: int) -> list[_Turn]:
    """What users state and assistants decide in which turn."""
    script = [_Turn() for _ in range(turns)]
    for kind, templates, count in (
        ("fact", session.wording.facts, 6),
        ("rule", session.wording.rules, 4),
        ("goal", session.wording.goals, 2),
    ):
        for template in session.rng.sample(list(templates), min(count, len(templates))):
            value = session.value()
            sentence = template.format(name=session.name(), value=value)
            session.plant(kind, value)
            turn = script[session.rng.randrange(turns - 2)]
            turn.said.append(sentence)
            turn.pasted = turn.pasted or session.rng.random() < 0.2
    for before, after in session.rng.sample(
        list(session.wording.changes), min(4, len(session.wording.changes))
    ):
        _change(session, script, before, after)
    for template in session.rng.sample(
        list(session.wording.decisions), min(6, len(session.wording.decisions))
    ):
        chosen, other = session.value(), session.value()
        script[session.rng.randrange(turns - 2)].decided.append(
            template.format(new=chosen, other=other, name=session.name())
        )
        session.plant("decision", chosen)
        if "{other}" in template:
            session.plant("rejected", other)
    return script


def _change(session: Planted, script: Sequence[_Turn], before: str, after: str) -> None:
    """A value that a user states and changes later on; others of its kind stay as they are."""
    rng = session.rng
    first = rng.randrange(len(script) // 2)
    second = rng.randrange(first + 1, len(script) - 3)
    name, kinds = session.name(), (str(rng.randint(1_000, 9_999)), str(rng.randint(10_000, 99_999)))
    script[first].said.append(before.format(name=name, old=kinds[0]))
    script[first].outdated.append(script[first].said[-1])
    script[second].said.append(after.format(name=name, old=kinds[0], new=kinds[1]))
    session.plant("new value", kinds[1])
    if "{old}" not in after:
        session.plant("stale value gone", kinds[0], stale=True)


def _turn(session: Planted, turn: _Turn, *, first: bool, exchanges: int) -> None:
    rng, wording = session.rng, session.wording
    opening = session.text(wording.tasks if first else wording.requests, name=session.name())
    for sentence in (opening, *turn.said):
        if sentence not in turn.outdated:
            session.plant("user sentence", sentence)
    stated = [opening, *turn.said]
    if rng.random() < 0.4:
        stated.insert(0, rng.choice(wording.pleasantries))
    if turn.pasted:
        at = rng.randrange(1, len(stated) + 1)
        stated[at:at] = ["\n" + _pasted(session) + "\n"]
    session.messages.append(Message.user(" ".join(stated)))
    count = rng.randint(max(1, exchanges - 2), exchanges + 2)
    for at in range(count):
        decided = turn.decided.pop() if turn.decided and (at == count - 1 or rng.random() < 0.5) else ""
        _exchange(session, decided)
    ending = [session.text(wording.answers, name=session.name()), *turn.decided]
    session.messages.append(Message.assistant(" ".join(ending)))


def _pasted(session: Planted) -> str:
    """Output that a user pasted into a message."""
    rng = session.rng
    lines = (
        f"2026-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T10:00:0{rng.randint(0, 9)}Z [info] "
        f"{rng.choice(NOUNS)}={rng.randint(0, 9)} took {rng.randint(1, 900)}ms"
        for _ in range(rng.randint(5, 12))
    )
    return "\n".join(lines)


def _exchange(session: Planted, decided: str) -> None:
    rng, wording = session.rng, session.wording
    tool, key = rng.choice(wording.tools)
    path = session.file()
    said = decided
    if rng.random() < 0.5:
        said = f"{session.text(wording.narrations, path=path)} {decided}".strip()
    _call(session, said, tool, key, path, _result(session))
    if Plant(kind="file", value=path) not in session.plants:
        session.plant("file", path)
    if rng.random() < 0.12:
        error = session.value()
        text = session.text(wording.errors, value=error, path=path)
        _call(session, "", tool, key, path, text)
        session.plant("error", error)
        if rng.random() < 0.5:
            _call(session, "", tool, key, path, _result(session))


def _call(session: Planted, said: str, tool: str, key: str, path: str, result: str) -> None:
    call = ToolCall(id=f"call_{len(session.messages)}", name=tool, arguments=_arguments(tool, key, path))
    session.messages.append(Message.assistant(said or None, [call]))
    session.messages.append(Message.tool(call.id, result))


def _arguments(tool: str, key: str, path: str) -> str:
    if key == "command":
        return json.dumps({key: f"{tool.removeprefix('run_')} -n '1,80p' {path}"})
    return json.dumps({key: path})


def _result(session: Planted) -> str:
    """About 40 sentences, at times with a code at the head or at the end."""
    rng = session.rng
    text = list(_filler(session))
    if rng.random() < 0.15:
        code = session.value()
        text.insert(0, session.text(session.wording.heads, value=code, name=session.name()))
        session.plant("code at the head of a result", code)
    if rng.random() < 0.15:
        code = session.value()
        text.append(session.text(session.wording.ends, value=code, name=session.name()))
        session.plant("code at the end of a result", code)
    return " ".join(text)


def _filler(session: Planted) -> Iterator[str]:
    rng = session.rng
    for _ in range(session.sentences):
        yield rng.choice(session.wording.fillers).format(
            a=rng.choice(ADJECTIVES),
            b=rng.choice(NOUNS),
            c=rng.choice(NOUNS),
            v=rng.choice(VERBS),
            n=rng.randint(2, 99),
        )


WORDING = Wording(
    tasks=(
        "Our job today is to get the {name} into shape.",
        "I'd like your help with cleaning up the {name}.",
        "Please work through the {name} with me, file by file.",
    ),
    requests=(
        "Have a look at the {name} next.",
        "Could you check how the {name} behaves?",
        "Now sort out the {name}.",
        "What about the {name}?",
        "Walk through the {name} and tell me what you see.",
        "The {name} looks odd to me, can you dig in?",
        "Take care of the {name} after that.",
        "Show me where the {name} gets its data.",
    ),
    pleasantries=("Thanks!", "Great, that helps.", "Okay.", "Nice work.", "Perfect, thank you.", "Good."),
    facts=(
        "The account we bill for the {name} is {value}.",
        "For what it's worth, the {name} runs on {value}.",
        "Our contact for the {name} signs as {value}.",
        "The {name} was released under the tag {value}.",
        "You'll find the {name} under the label {value}.",
        "{name} means {value} in our documents.",
        "My colleague calls the {name} {value}.",
        "In production the {name} answers to {value}.",
        "Das Kennwort der Testumgebung für {name} lautet {value}.",
        "El identificador de {name} es {value}.",
        "{name} 的编号是 {value}。",
        "Le serveur de {name} s'appelle {value}.",
    ),
    rules=(
        "Never touch {value} while you are in there.",
        "Whatever you do, leave {value} alone.",
        "All new code has to go through {value}.",
        "Don't call {value} from tests.",
        "Stay clear of {value}, legal is still reviewing it.",
        "Only {value} may write to the {name}.",
        "Every change to the {name} needs a line in {value}.",
        "Without a green run of {value} nothing gets merged.",
        "Bitte {value} auf keinen Fall anfassen.",
        "Il ne faut jamais supprimer {value}.",
        "不要修改 {value}。",
        "Nunca borres {value}.",
    ),
    goals=(
        "In the end the {name} should answer within {value} ms.",
        "What we are after is a build that ships as {value}.",
        "The goal is to have {value} passing by Friday.",
        "Success means that {value} is green for the {name}.",
        "Am Ende soll {value} ohne Fehler laufen.",
        "El objetivo es publicar {value} este mes.",
    ),
    changes=(
        ("The {name} listens on port {old}.", "The {name} listens on port {new} now."),
        (
            "The budget for the {name} is {old} credits.",
            "The budget for the {name} is {new} credits after all.",
        ),
        ("Set the timeout of the {name} to {old}.", "Set the timeout of the {name} to {new} instead."),
        ("Ticket number for the {name}: {old}.", "Correction, the ticket number for the {name} is {new}."),
        ("The quota of the {name} is {old}.", "We raised the quota of the {name} to {new}."),
        ("Use batch size {old} for the {name}.", "For the {name} use batch size {new} from now on."),
        ("Der Grenzwert für {name} ist {old}.", "Der Grenzwert für {name} ist jetzt {new}."),
        ("El puerto de {name} es {old}.", "Ahora el puerto de {name} es {new}."),
        ("The invoice for the {name} is {old}.", "The invoice for the {name} is {new}."),
    ),
    decisions=(
        "I'm going with {new} rather than {other}, which leaks on long runs.",
        "Decision: {new} handles the {name}; {other} is out because it blocks.",
        "We should use {new} here since {other} has no locking.",
        "I considered {other} and rejected it; {new} is simpler.",
        "The fix is to route the {name} through {new}.",
        "{new} wins over {other} for the {name}.",
        "I dropped {other} in favour of {new}.",
        "Still open: whether {new} covers the {name}.",
        "So the {name} stays with {new} for now.",
        "After weighing both I prefer {new} to {other}.",
    ),
    narrations=(
        "Let me open {path}.",
        "Looking at {path} now.",
        "Next I'll read {path}.",
        "Checking {path}.",
    ),
    answers=(
        "The {name} is in order now.",
        "I have gone through the {name}; nothing else stands out.",
        "Done with the {name}.",
        "That is what I found on the {name}.",
    ),
    fillers=(
        "The {a} {b} {v} the {c}.",
        "Each {b} {v} {n} items before the {c} is ready.",
        "This part {v} a {b} and leaves the {c} as it was.",
        "When the {b} is {a}, the {c} {v} it again.",
        "A {c} of {n} lines {v} what the {a} {b} returns.",
    ),
    heads=("Revision {value} of the {name}.", "[{value}] {name}", "id: {value}", "Report {value} follows."),
    ends=(
        "Checksum {value}.",
        "Trace reference: {value}",
        "Finished as {value}.",
        "Total for the {name}: {value}.",
    ),
    errors=(
        "Error: {path} could not be read (code {value}).",
        'Traceback (most recent call last):\n  File "main.py", line 3\nValueError: bad token {value}',
        "exit code 2\nfatal: {value} is not a valid object",
        "FAILED {path}::test_it - AssertionError: {value}",
    ),
    tools=(
        ("read_file", "path"),
        ("edit_file", "path"),
        ("write_file", "file_path"),
        ("run_sed", "command"),
        ("run_cat", "command"),
        ("inspect", "target"),
    ),
)
"""The wording of the benchmark."""
