"""How servers word the stream of one reply: its chunks, events and bytes in a shape."""

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.strict_bodies import Body
from tests.strict_replies import Call, Reply
from tests.strict_shapes import PLAIN, Index, Shape, Unfinished

_MOST_SINGLE_BYTES = 4_000
_MOST_CUTS = 60
_HALF = re.compile("[\ud800-\udfff]")
_LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
_EMPTY_CHOICES: tuple[Any, ...] = (
    [],
    None,
    [{"index": 0, "delta": {}, "finish_reason": None}],
    [{"index": 0, "delta": None, "finish_reason": None}],
    [{"index": 0, "finish_reason": None}],
    [{"index": 0, "delta": {"role": "assistant"}}],
    [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
    [{"index": 0, "delta": {"content": None, "tool_calls": None}}],
    [{"index": 0, "delta": {"content": "", "tool_calls": []}}],
)
_COMMENTS: tuple[tuple[bytes, ...], ...] = (
    (),
    (b": keep-alive", b""),
    (b":",),
    (b"event: message", b"id: 7"),
    (b"retry: 3000", b""),
    (b"event: chunk", b"", b": OPENROUTER PROCESSING", b""),
)


def shaped(body: Body, reply: Reply, usage: Body | None, shape: Shape, chance: random.Random) -> list[bytes]:
    """The reply to a request's body as the pieces that are written to the socket."""
    shape = shape.for_reply(reply)
    data = [_json(chunk, shape) for chunk in _chunks(body, reply, usage, shape, chance)]
    events = [_event(text, shape, chance) for text in [*data, b"[DONE]"][: None if shape.done else -1]]
    if shape.open_end:
        events[-1] = events[-1].removesuffix(_LINE_ENDS[shape.lines])
    if shape.bom:
        events[0] = b"\xef\xbb\xbf" + events[0]
    return _pieces(events, shape, chance)


def _chunks(body: Body, reply: Reply, usage: Body | None, shape: Shape, chance: random.Random) -> list[Body]:
    choices = [_choice(delta, shape) for delta in _deltas(reply, shape, chance)]
    reason = "stop" if shape.finish == "stop_for_calls" else reply.finish_reason
    if shape.finish in ("with_last", "each"):
        for choice in choices if shape.finish == "each" else choices[-1:]:
            choice["finish_reason"] = reason
    else:
        choices.append(_choice({}, shape) | ({} if shape.finish == "absent" else {"finish_reason": reason}))
    chunks = [chunk_of(body, choices=[choice]) for choice in choices]
    if usage is not None:
        _put_usage(chunks, body, usage, shape)
    return _sprinkled(chunks, body, chance) if shape.empty_chunks else chunks


def _put_usage(chunks: list[Body], body: Body, usage: Body, shape: Shape) -> None:
    match shape.usage:
        case "own_chunk":
            chunks.append(chunk_of(body, choices=[], usage=usage))
        case "with_finish":
            chunks[-1]["usage"] = usage
        case "before_finish":
            chunks.insert(-1, chunk_of(body, choices=[], usage=usage))
        case "no_choices_first":
            chunks.insert(0, chunk_of(body, choices=[], usage=usage, prompt_filter_results=[]))
        case "in_choice":
            chunks[-1]["choices"][0]["usage"] = usage
        case "each_chunk":
            for number, chunk in enumerate(chunks, 1):
                so_far = usage.get("completion_tokens", 0) * number // len(chunks)
                chunk["usage"] = usage | {"completion_tokens": so_far}


def _sprinkled(chunks: Sequence[Body], body: Body, chance: random.Random) -> list[Body]:
    mixed: list[Body] = []
    for chunk in chunks:
        if chance.random() < 0.3:
            mixed.append(chunk_of(body, choices=chance.choice(_EMPTY_CHOICES)))
        mixed.append(chunk)
    nothing = chunk_of(body)
    return [nothing, *mixed, chunk_of(body, choices=[])]


def _choice(delta: Body, shape: Shape) -> Body:
    choice: Body = {"index": 0, "delta": delta}
    reasons: dict[Unfinished, Body] = {
        "null": {"finish_reason": None},
        "empty": {"finish_reason": ""},
        "absent": {},
    }
    return choice | reasons[shape.unfinished]


def _deltas(reply: Reply, shape: Shape, chance: random.Random) -> Iterator[Body]:
    yield {"role": "assistant", "content": None if reply.calls else ""}
    for piece in _cut(reply.reasoning or "", reply, shape):
        yield {"reasoning_content": piece}
    for piece in _cut(reply.text, reply, shape):
        yield {"content": piece}
    fragments = [
        _fragments(call, shape.id_seen(reply, number), reply, shape, chance)
        for number, call in enumerate(reply.calls)
    ]
    placed = _placed(_mixed(fragments, chance) if shape.interleaved else _one_by_one(fragments), shape)
    if shape.one_delta and reply.calls:
        yield {"tool_calls": list(placed)}
    else:
        yield from ({"tool_calls": [fragment]} for fragment in placed)
    if reply.extra:
        yield dict(reply.extra)


def _fragments(call: Call, its_id: str, reply: Reply, shape: Shape, chance: random.Random) -> list[Body]:
    """The deltas of one call, without its place."""
    if shape.one_delta or shape.arguments == "whole":
        return [_begun(its_id, call.name, call.arguments, shape)]
    names = _split(call.name, chance) if shape.names == "split" else [call.name]
    pieces = _cut(call.arguments, reply, shape)
    if shape.arguments == "doubled":
        pieces = [*pieces, call.arguments]
    fragments = [_begun(its_id, names[0], "", shape)]
    fragments += [{"function": {"name": name}} for name in names[1:]]
    fragments += [{"function": {"arguments": piece}} for piece in pieces]
    for number, fragment in enumerate(fragments[1:], 1):
        _say_again(fragment, its_id, number, call.name, shape)
    return fragments


def _begun(its_id: str, name: str, arguments: str, shape: Shape) -> Body:
    named = {} if shape.ids == "missing" else {"id": its_id}
    return named | {"type": "function", "function": {"name": name, "arguments": arguments}}


def _say_again(fragment: Body, its_id: str, number: int, name: str, shape: Shape) -> None:
    again = {"each": its_id, "new_each": f"{its_id}-{number}", "blank_after": "", "empty": ""}
    if shape.ids in again:
        fragment["id"] = again[shape.ids]
    if shape.names in ("repeated", "blank_after"):
        fragment["function"]["name"] = name if shape.names == "repeated" else ""


def _split(name: str, chance: random.Random) -> list[str]:
    """The name in two pieces that differ, since the same twice would be the name repeated."""
    places = [at for at in range(1, len(name)) if name[:at] != name[at:]]
    at = chance.choice(places) if places else len(name)
    return [piece for piece in (name[:at], name[at:]) if piece] or [name]


def _one_by_one(fragments: Sequence[Sequence[Body]]) -> Iterator[tuple[int, Body]]:
    return ((number, fragment) for number, group in enumerate(fragments) for fragment in group)


def _mixed(fragments: Sequence[Sequence[Body]], chance: random.Random) -> Iterator[tuple[int, Body]]:
    """The deltas of all calls mixed; those of one call stay in order, and so do the first ones."""
    waiting = [list(group) for group in fragments]
    begun = 0
    while open_calls := [number for number, group in enumerate(waiting[: begun + 1]) if group]:
        number = chance.choice(open_calls)
        begun = max(begun, number + 1)
        yield number, waiting[number].pop(0)


def _placed(fragments: Iterable[tuple[int, Body]], shape: Shape) -> Iterator[Body]:
    for at, (number, fragment) in enumerate(fragments):
        places: dict[Index, Any] = {"right": number, "zero": 0, "growing": 2 * number + 1, "each_delta": at}
        yield fragment if shape.index == "absent" else {"index": places.get(shape.index)} | fragment


def _cut(text: str, reply: Reply, shape: Shape) -> list[str]:
    if shape.arguments == "escapes":
        return _units(text)
    size = {"chars": 1, "whole": max(1, len(text))}.get(shape.arguments, reply.piece_chars)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _units(text: str) -> list[str]:
    """The text in pieces of two UTF-16 units, the first of one: escapes and pairs fall apart."""
    data = text.encode("utf-16-le", "surrogatepass")
    places = [0, *range(2, len(data) + 2, 4)]
    pieces = [data[start : start + (4 if start else 2)] for start in places]
    return [_lone(piece) for piece in pieces if piece]


def _lone(units: bytes) -> str:
    return "".join(chr(int.from_bytes(units[at : at + 2], "little")) for at in range(0, len(units), 2))


def chunk_of(body: Body, **members: Any) -> Body:
    """A chunk of an answer to that request, with these further fields."""
    fixed: Body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body.get("model"),
    }
    return fixed | members


def _json(chunk: Body, shape: Shape) -> bytes:
    indent = 1 if shape.multi_line else None
    plain = json.dumps(chunk, ensure_ascii=False, indent=indent)
    if shape != PLAIN and (shape.escaped or _HALF.search(plain)):
        return json.dumps(chunk, indent=indent).encode()
    return plain.encode("utf-8", "surrogatepass")


def _event(data: bytes, shape: Shape, chance: random.Random) -> bytes:
    end = _LINE_ENDS[shape.lines]
    before = _COMMENTS[chance.randrange(len(_COMMENTS))] if shape.comments else ()
    field = b"data: " if shape.space else b"data:"
    lines = [*before, *(field + line for line in data.split(b"\n"))]
    return b"".join(line + end for line in (*lines, b""))


def _pieces(events: list[bytes], shape: Shape, chance: random.Random) -> list[bytes]:
    if shape.bytes_ == "whole_events":
        return events
    data = b"".join(events)
    if shape.bytes_ == "one_byte" and len(data) <= _MOST_SINGLE_BYTES:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(chance.sample(range(1, len(data)), min(_MOST_CUTS, len(data) - 1)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
