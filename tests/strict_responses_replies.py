"""How the Responses API says a reply, whole or as events, and how it fails in a stream."""

from collections.abc import Iterator, Sequence

from tests.strict_bodies import Body, encoded
from tests.strict_overflows import Overflowing
from tests.strict_replies import Answered, Reply, events

RESPONSES_OVERFLOWS: dict[str, Overflowing] = {
    "responses-failed": lambda window, prompt, answer: failed(
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "responses-error": lambda window, prompt, answer: events(
        {
            "type": "error",
            "code": "context_length_exceeded",
            "message": f"This model's maximum context length is {window} tokens; you sent {prompt} tokens.",
            "param": "input",
        },
        done=False,
    ),
}


def response(body: Body, reply: Reply, output: Sequence[Body], usage: Body | None) -> Body:
    """The whole response."""
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish or "")
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": body.get("model"),
        "output": list(output),
        "usage": None if usage is None else _usage(usage),
    }


def response_events(body: Body, reply: Reply, output: Sequence[Body], usage: Body | None) -> list[bytes]:
    """The response as the events of a stream."""
    end = response(body, reply, output, usage)
    begun = end | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    told: list[Body] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(output):
        told += ({**event, "output_index": index} for event in _item_events(item, reply.piece_chars))
    told.append({"type": f"response.{end['status']}", "response": end})
    return [sse(event | {"sequence_number": number}) for number, event in enumerate(told)]


def failed(code: str, message: str) -> Answered:
    """A stream that begins in order and ends with a failure."""
    error = {"code": code, "message": message}
    begun = {"type": "response.created", "response": {"status": "in_progress", "output": []}}
    end = {"type": "response.failed", "response": {"status": "failed", "error": error, "output": []}}
    return events(begun, end, done=False)


def sse(event: Body) -> bytes:
    """One event as it is sent."""
    return f"event: {event['type']}\ndata: ".encode() + encoded(event) + b"\n\n"


def _item_events(item: Body, piece_chars: int) -> Iterator[Body]:
    named = {"item_id": item.get("id")}
    empty = {"content": [], "arguments": "", "input": "", "status": "in_progress", "encrypted_content": ""}
    yield {"type": "response.output_item.added", "item": item | {k: v for k, v in empty.items() if k in item}}
    match item["type"]:
        case "message":
            for at, part in enumerate(item["content"]):
                yield from (
                    {**event, **named, "content_index": at} for event in _part_events(part, piece_chars)
                )
        case "function_call":
            for piece in _pieces(item["arguments"], piece_chars):
                yield {"type": "response.function_call_arguments.delta", "delta": piece, **named}
            yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"], **named}
        case "reasoning":
            for at, part in enumerate(item["summary"]):
                place = {"summary_index": at, **named}
                yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}, **place}
                for piece in _pieces(part["text"], piece_chars):
                    yield {"type": "response.reasoning_summary_text.delta", "delta": piece, **place}
                yield {"type": "response.reasoning_summary_part.done", "part": part, **place}
        case kind:
            yield {"type": f"response.{kind}.in_progress", **named}
    yield {"type": "response.output_item.done", "item": item}


def _part_events(part: Body, piece_chars: int) -> Iterator[Body]:
    kind, field = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    yield {"type": "response.content_part.added", "part": part | {field: ""}}
    for piece in _pieces(part[field], piece_chars):
        yield {"type": f"response.{kind}.delta", "delta": piece}
    yield {"type": f"response.{kind}.done", field: part[field]}
    yield {"type": "response.content_part.done", "part": part}


def _usage(report: Body) -> Body:
    used: Body = {}
    if "prompt_tokens" in report:
        cached = report.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        used |= {
            "input_tokens": report["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        }
    answer = report["completion_tokens"]
    used |= {"output_tokens": answer, "output_tokens_details": {"reasoning_tokens": answer // 2}}
    return used | {"total_tokens": report.get("prompt_tokens", 0) + answer}


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))
