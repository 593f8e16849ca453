"""What a log says, kept so that the digest of one that has grown costs what is new.

`LogFold` takes in message by message. `Folds` keeps those of the last: one that goes on is taken up where it
was left; one that took another turn, as after an undo, keeps what each message says by itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from agentloop.compaction.digest.calls import Call, Calls, call_at
from agentloop.compaction.digest.index import Named, Names, named_in
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
        self.names = Names()

    def add(self, key: _Key, reading: ReadMessage) -> None:
        """Take in the next message."""
        _, at, keep, message = key
        self.names.add(reading.named)
        if reading.calls:
            self.calls.add(self.length, message, reading.calls)
        elif message.role == "tool":
            for older in self.calls.answer(at, message, keep=keep):
                self.names.drop(older)
        self.length += 1


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

    def shared_with(self, keys: Sequence[_Key]) -> int:
        """How many messages this log and another begin with."""
        most = min(len(self._keys), len(keys))
        if self._keys[:most] == keys[:most]:
            return most
        return next(at for at in range(most) if self._keys[at] != keys[at])

    def add(self, entry: Entry, reading: ReadMessage | None = None) -> None:
        """Take in the next message, which was read before or is now."""
        message = entry.original
        text = message.text
        reading = reading or self._read(entry, text)
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

    def readings(self, count: int) -> list[ReadMessage]:
        """What each of the first so many messages says by itself."""
        return self._readings[:count]

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
        fold, readings = self._begun(told, [_key(entry) for entry in said])
        for at in range(len(fold), len(said)):
            fold.add(said[at], readings[at] if at < len(readings) else None)
        yield fold
        self._keep(fold)

    def _begun(self, told: Told, keys: Sequence[_Key]) -> tuple[LogFold, Sequence[ReadMessage]]:
        """The fold of the most of them, taken out, and what each of the next ones says, as far as known."""
        fold, length, readings = LogFold(told), 0, list[ReadMessage]()
        for kept in tuple(self._kept):
            shared = kept.shared_with(keys)
            if shared > len(readings):
                readings = kept.readings(shared)
            if kept.told == told and shared == len(kept) > length:
                fold, length = kept, shared
        return fold if length and self._take(fold, length) else LogFold(told), readings

    def _take(self, fold: LogFold, length: int) -> bool:
        """Take it out, unless somebody else has it, or had it meanwhile and made it longer than that."""
        try:
            self._kept.remove(fold)
        except ValueError:
            return False
        if len(fold) == length:
            return True
        self._keep(fold)
        return False

    def _keep(self, fold: LogFold) -> None:
        if fold.chars > MOST_KEPT_CHARS:
            return
        self._kept.append(fold)
        while len(kept := tuple(self._kept)) > MOST_KEPT or sum(one.chars for one in kept) > MOST_KEPT_CHARS:
            with suppress(IndexError):
                self._kept.pop(0)


def _key(entry: Entry) -> _Key:
    return entry.seq, entry.at, entry.keep, entry.original
