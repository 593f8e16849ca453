"""What a log says, kept so that the digest of one that has grown costs what is new.

`LogFold` takes in message by message. `Folds` keeps those of the last: one that goes on is taken up where it
was left; one that took another turn, as where turns were taken back, is read anew.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from agentloop.compaction.digest.calls import Call, Calls, call_at
from agentloop.compaction.digest.index import Named, named_in
from agentloop.compaction.digest.sentences import Sentence, sentences
from agentloop.compaction.digest.statements import MOST_CHARS, Statements, Wording, retold, stated_in
from agentloop.context import Entry
from agentloop.messages import Message

LEAST_CHARS, MOST_CHARS_IN_ALL = 2_000, 20_000_000
"""After so much of all messages together, no more than the least is looked at of one."""

MOST_KEPT, MOST_KEPT_CHARS = 32, 10_000_000
"""So many logs are kept, and so much of all of them together: about 60 MB beside their texts."""

CHARS_BESIDE = 200
"""What a message takes beside its text and its arguments, counted as so many characters of these."""

Told: TypeAlias = tuple[tuple[str, str], ...]
"""What an earlier record tells of what was said, as roles and texts."""

_Key: TypeAlias = tuple[int, int, bool, Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessage:
    """What one message says by itself: its sentences, what it names, and the calls that it makes."""

    said: Sequence[tuple[int, Sentence, Wording]]
    named: Named
    calls: Sequence[Call]


class Done:
    """What was done in the messages so far, and what they name."""

    def __init__(self) -> None:
        self.length = 0
        self.calls = Calls()
        self._named: list[Named] = []
        self._superseded: set[int] = set()

    def add(self, key: _Key, reading: ReadMessage) -> None:
        """Take in the next message."""
        _, at, keep, message = key
        self._named.append(reading.named)
        if reading.calls:
            self.calls.add(self.length, message, reading.calls)
        elif message.role == "tool":
            self._superseded.update(self.calls.answer(at, message, keep=keep))
        self.length += 1

    def told(self) -> list[Named]:
        """What users and assistants said and what calls named, newest first."""
        return [one for one in reversed(self._named) if not one.in_result]

    def found(self) -> list[Named]:
        """What results hold at their ends that no later one replaces, newest first."""
        found = (one for one in reversed(self._named) if one.in_result)
        return [one for one in found if one.at not in self._superseded]


class LogFold:
    """What the messages of a log say together, `told` before them what no log holds."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.statements = Statements()
        self.chars = 0
        self._done = Done()
        self._readings: list[ReadMessage] = []
        self._keys: list[_Key] = []
        self._looked_at = 0
        for stated in retold(told):
            self.statements.hear(stated)

    def __len__(self) -> int:
        return len(self._keys)

    def begins(self, keys: Sequence[_Key]) -> bool:
        """Whether these messages begin with those taken in."""
        return self._keys == keys[: len(self)]

    def add(self, entry: Entry) -> None:
        """Take in the next message."""
        message = entry.original
        text = message.text
        reading = self._read(entry, text)
        for stated in stated_in(entry.seq, reading.said):
            self.statements.hear(stated)
        if message.role in ("user", "assistant"):
            self._looked_at += len(text)
        self.chars += CHARS_BESIDE + len(text) + sum(len(call.arguments) for call in message.tool_calls)
        self._readings.append(reading)
        self._keys.append(_key(entry))

    def done(self, count: int) -> Done:
        """What was done in the first so many messages; it holds until it is asked for again."""
        if count < self._done.length:
            self._done = Done()
        for at in range(self._done.length, count):
            self._done.add(self._keys[at], self._readings[at])
        return self._done

    def _read(self, entry: Entry, text: str) -> ReadMessage:
        message = entry.original
        found: list[Sentence] = []
        if message.role in ("user", "assistant"):
            most = max(LEAST_CHARS, min(MOST_CHARS, MOST_CHARS_IN_ALL - self._looked_at))
            found = sentences(text, most_chars=most)
        calls = message.tool_calls if message.role == "assistant" else ()
        return ReadMessage(
            said=[
                (number, one, self.statements.wording_of(one.text, message.role))
                for number, one in enumerate(found)
            ],
            named=named_in(entry),
            calls=[call_at(len(self), call) for call in calls],
        )


class Folds:
    """The folds of the last logs, the one used last at the end; each is in the hands of one at a time.

    Who uses one takes it out of the list. That is one step, so no lock is needed, which a fork might keep.
    """

    def __init__(self) -> None:
        self._kept: list[LogFold] = []

    @contextmanager
    def of(self, told: Told, said: Sequence[Entry]) -> Iterator[LogFold]:
        """The fold of these messages, taken in as far as they are new; not to be used behind the block."""
        fold = self._taken(told, [_key(entry) for entry in said])
        for entry in said[len(fold) :]:
            fold.add(entry)
        yield fold
        self._keep(fold)

    def _taken(self, told: Told, keys: Sequence[_Key]) -> LogFold:
        """The longest that these messages go on from, taken out; a new one where there is none."""
        for fold in sorted(self._kept, key=len, reverse=True):
            if fold.told != told or not fold.begins(keys):
                continue
            with suppress(ValueError):  # somebody else has it
                self._kept.remove(fold)
                if fold.begins(keys):
                    return fold
                self._keep(fold)  # somebody made it longer meanwhile
        return LogFold(told)

    def _keep(self, fold: LogFold) -> None:
        if fold.chars > MOST_KEPT_CHARS:
            return
        self._kept.append(fold)
        while len(kept := tuple(self._kept)) > MOST_KEPT or sum(one.chars for one in kept) > MOST_KEPT_CHARS:
            with suppress(IndexError):
                self._kept.pop(0)


def _key(entry: Entry) -> _Key:
    return entry.seq, entry.at, entry.keep, entry.original
