"""The shapes of a stream: what of it differs from OpenAI's own way, drawn or chosen.

Every shape made here can be understood: the reply is the same, whatever the shape.
"""

import random
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from tests.strict_bodies import is_object
from tests.strict_replies import Reply

Index = Literal["right", "absent", "null", "zero", "growing", "each_delta"]
Ids = Literal["first", "each", "new_each", "blank_after", "missing", "empty", "repeated"]
Names = Literal["whole", "split", "repeated", "blank_after"]
Arguments = Literal["pieces", "chars", "escapes", "whole", "doubled"]
UsagePlace = Literal[
    "own_chunk", "with_finish", "before_finish", "each_chunk", "no_choices_first", "in_choice"
]
Finish = Literal["right", "stop_for_calls", "with_last", "absent", "each"]
Unfinished = Literal["null", "absent", "empty"]
Lines = Literal["lf", "crlf", "cr"]
Bytes = Literal["whole_events", "one_byte", "random_cuts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a server words a stream; the defaults are OpenAI's own way.

    Args:
        index: Where a call stands: right; no field, or null; always 0; growing by two with each call, from
            1; or one more with each delta.
        ids: In the first delta of a call, in each, another in each delta, followed by empty ones; missing,
            empty, or the same for all calls.
        names: Whole in the first delta, split over several, the same in each, or followed by empty ones.
        arguments: In pieces of the reply's size; character by character; split inside escapes and pairs of
            surrogates; whole in the first delta; or in pieces and then all of it once more.
        interleaved: Whether the deltas of several calls come mixed.
        one_delta: Whether all calls come whole in one delta.
        usage: The chunk that carries it.
        empty_chunks: Whether chunks that say nothing stand between the others.
        finish: The finish reason: right, `stop` also for calls, in the chunk of the last delta, never, or in
            each chunk.
        unfinished: What stands for it in all chunks before.
        done: Whether the stream ends with DONE.
        lines: How lines end.
        comments: Whether comments and other fields stand between the events.
        bytes_: How the bytes are cut.
        bom: Whether a byte order mark stands first.
        space: Whether a blank follows `data:`.
        multi_line: Whether a chunk stands on several data lines.
        escaped: Whether the JSON is ASCII.
        open_end: Whether the last event lacks its blank line.
    """

    index: Index = "right"
    ids: Ids = "first"
    names: Names = "whole"
    arguments: Arguments = "pieces"
    interleaved: bool = False
    one_delta: bool = False
    usage: UsagePlace = "own_chunk"
    empty_chunks: bool = False
    finish: Finish = "right"
    unfinished: Unfinished = "null"
    done: bool = True
    lines: Lines = "lf"
    comments: bool = False
    bytes_: Bytes = "whole_events"
    bom: bool = False
    space: bool = True
    multi_line: bool = False
    escaped: bool = False
    open_end: bool = False

    @classmethod
    def drawn(cls, chance: random.Random) -> "Shape":
        """A shape at random in which calls whose arguments are JSON objects are understood."""
        values = {
            field.name: chance.choice(CHOICES[field.name]) for field in fields(cls) if chance.random() < 0.5
        }
        return _apart(cls(**values))

    def for_reply(self, reply: Reply) -> "Shape":
        """The shape, plainer where this reply could not be understood in it."""
        shape = self
        objects = _all_objects(reply)
        if not objects and shape.index == "each_delta":
            shape = replace(shape, index="right")
        if reply.finish is not None and shape.finish != "with_last":
            shape = replace(shape, finish="right")
        if not objects:
            shape = shape._for_any_arguments()
        if not shape._ids_tell_apart(reply):
            shape = shape._for_any_ids(reply)
        if shape.index not in ("right", "growing") and _may_be_pieces(reply):
            shape = replace(shape, index="right")
        if not all(call.name for call in reply.calls):
            shape = replace(shape, index="right", ids="first", names="whole")
        return shape

    def _for_any_arguments(self) -> "Shape":
        """The shape where no brackets need say where the arguments end."""
        return replace(
            self,
            finish="right" if self.finish == "absent" else self.finish,
            done=self.done or self.finish in ("with_last", "each"),
            arguments="pieces" if self.arguments in ("doubled", "whole") else self.arguments,
            names="whole" if self.names == "repeated" else self.names,
            ids="first" if self.ids in ("new_each", "repeated") else self.ids,
        )

    def _for_any_ids(self, reply: Reply) -> "Shape":
        """The shape where no id need say which call a delta belongs to."""
        placeless, odd = self.index in ("absent", "null"), not _all_objects(reply)
        return replace(
            self,
            index="right" if odd and self.index != "growing" else self.index,
            ids="first" if self.ids == "new_each" else self.ids,
            names="whole" if self.names == "split" and placeless else self.names,
            interleaved=self.interleaved and self.names != "repeated" and not self._is_doubled(reply),
        )

    def _is_doubled(self, reply: Reply) -> bool:
        """Whether two calls of one name have one id: mixed, they are as one that counts its pieces."""
        seen = [(call.name, self.id_seen(reply, number)) for number, call in enumerate(reply.calls)]
        return any(its_id and seen.count((name, its_id)) > 1 for name, its_id in seen)

    def id_seen(self, reply: Reply, number: int) -> str:
        """The id that the call of that number has in this stream, empty for none."""
        if self.ids in ("missing", "empty"):
            return ""
        return reply.calls[0 if self.ids == "repeated" else number].id

    def _ids_tell_apart(self, reply: Reply) -> bool:
        seen = [self.id_seen(reply, number) for number in range(len(reply.calls))]
        return all(seen) and len(set(seen)) == len(seen)


PLAIN = Shape()
"""OpenAI's own way."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "index": get_args(Index),
    "ids": get_args(Ids),
    "names": get_args(Names),
    "arguments": get_args(Arguments),
    "usage": get_args(UsagePlace),
    "finish": get_args(Finish),
    "unfinished": get_args(Unfinished),
    "lines": get_args(Lines),
    "bytes_": get_args(Bytes),
} | {field.name: (True, False) for field in fields(Shape) if field.type is bool}


def _apart(shape: Shape) -> Shape:
    """The shape without combinations in which one cannot tell which delta belongs to which call."""
    placeless = shape.index in ("absent", "null")
    if not shape.done and shape.finish == "absent":
        shape = replace(shape, finish="right")
    if shape.index not in ("right", "growing"):
        shape = replace(shape, interleaved=False)
    if shape.ids == "repeated" and shape.names == "repeated":
        shape = replace(shape, interleaved=False)
    if shape.index == "each_delta" or shape.ids == "new_each" or shape.arguments == "doubled":
        shape = replace(shape, names="blank_after" if shape.names == "blank_after" else "whole")
    if shape.names == "split" and placeless and shape.ids != "each":
        shape = replace(shape, names="whole")
    if shape.ids == "new_each" and (shape.index == "each_delta" or shape.arguments == "doubled"):
        shape = replace(shape, ids="first")
    return shape


def _may_be_pieces(reply: Reply) -> bool:
    """Whether a call without arguments may be the beginning of another: of one of its name, or a torn one."""
    names = [call.name for call in reply.calls]
    said = [call.arguments for call in reply.calls if call.arguments.strip()]
    return len(said) < len(names) and not (len(set(names)) == len(names) and all(map(is_object, said)))


def _all_objects(reply: Reply) -> bool:
    return all(is_object(call.arguments) for call in reply.calls)
