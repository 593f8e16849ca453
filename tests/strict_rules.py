"""What strict providers refuse, as a pure function over a request's body.

V1 to V7 and V12, the parts of a message's content, hold for every provider; V8, V9, V11 and
`content-never-null` are the rules of some. V10, the window, is held against this file's own count of tokens.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.strict_bodies import Body, is_object, misencoded, size_of

MODES = frozenset({"V8", "V9", "V11", "content-never-null"})
BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
_MEDIA = {
    "image_url": Mapping,
    "input_audio": Mapping,
    "file": Mapping,
    "video_url": Mapping,
    "audio_url": Mapping,
}
_PARTS: Mapping[str, Mapping[str, type]] = {
    "system": {"text": str},
    "developer": {"text": str},
    "user": {"text": str, **_MEDIA},
    "assistant": {"text": str, "refusal": str, "thinking": list},
    "tool": {"text": str},
}
_ROLES = frozenset(_PARTS)


def violations(
    body: object,
    *,
    modes: Iterable[str] = (),
    reasoning: Mapping[tuple[str, ...], str] | None = None,
    window: int | None = None,
    factor: float = 1.0,
    default_output: int = 0,
) -> list[str]:
    """Every rule the body breaks, as lines that begin with the rule's name; none for a valid body.

    `reasoning` maps the ids of calls sent together to the `reasoning_content` that came with them (V11).
    With a `window`, V10 is held by `prompt_tokens` with that `factor`; the answer counts as the limit asked
    for, else as `default_output`.
    """
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        return ["V0 the body is no object with a list of messages that is not empty"]
    messages = [message for message in body["messages"] if isinstance(message, dict)]
    found = [] if len(messages) == len(body["messages"]) else ["V0 a message is no object"]
    found += [*_shapes(messages), *_pairing(messages), *_ids(messages), *_arguments(messages)]
    found += [*_emptiness(messages), *misencoded(body), *_systems(messages)]
    chosen = frozenset(modes)
    assert chosen <= MODES, f"no such mode: {chosen - MODES}"
    if "V8" in chosen:
        found += _alternation(messages)
    if "V9" in chosen:
        found += _tool_history(body, messages)
    if "V11" in chosen:
        found += _reasoning(messages, reasoning or {})
    if "content-never-null" in chosen:
        nulls = [at for at, message in _each(messages) if message.get("content") is None]
        found += [f"content-never-null message {at}" for at in nulls]
    if window is not None:
        found += _fits(body, window, factor, default_output)
    return found


def prompt_tokens(body: Body, factor: float = 1.0) -> int:
    """The server's own count: UTF-8 bytes of texts, arguments and tools by four, and four a message."""
    messages = [message for message in body.get("messages", ()) if isinstance(message, dict)]
    size = sum(_bytes_of(message) for message in messages) + size_of(body.get("tools") or "")
    return math.ceil((size / BYTES_PER_TOKEN + TOKENS_PER_MESSAGE * len(messages)) * factor)


def output_limit(body: Body) -> int:
    """The most tokens of an answer that the request asks for; 0 where it asks for no limit."""
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    return limit if isinstance(limit, int) else 0


def text_of(message: Body) -> str:
    """The text of a message: its content, text parts of it, and the arguments of its calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [str(part.get("text") or "") for part in parts if isinstance(part, dict)]
    return "\n".join(texts + [str(_function(call).get("arguments", "")) for call in _calls(message)])


def _shapes(messages: Sequence[Body]) -> Iterator[str]:
    for at, message in _each(messages):
        if message.get("role") not in _ROLES:
            yield f"V0 message {at} has the role {message.get('role')!r}"
        if "content" not in message:
            yield f"V5 message {at} has no content"
        if not isinstance(message.get("content"), str | list | None):
            yield f"V5 message {at} has content that is neither text nor parts"
        if message.get("role") != "assistant" and message.get("content") is None:
            yield f"V5 message {at} ({message.get('role')}) has content null"
        if isinstance(message.get("content"), list):
            yield from _parts(at, message["content"], _PARTS.get(str(message.get("role")), {}))
        if "tool_calls" in message and (message.get("role") != "assistant" or not message["tool_calls"]):
            yield f"V1 message {at} has tool_calls that are empty or not an assistant's"


def _parts(at: int, parts: Sequence[object], known: Mapping[str, type]) -> Iterator[str]:
    if not parts:
        yield f"V12 message {at} has an empty list of parts"
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in known:
            yield f"V12 message {at} has a part of a kind that its role has not: {kind!r}"
        elif not isinstance(part, dict) or not isinstance(part.get(kind), known[kind]):
            yield f"V12 message {at} has a part {kind!r} of another shape"
        elif kind == "image_url" and (fault := _fault_of_image(part[kind].get("url"))):
            yield f"V13 message {at} has {fault}"


def _fault_of_image(url: object) -> str | None:
    """What OpenAI refuses of an image: no base64, a type that it does not know, too many bytes."""
    if not isinstance(url, str) or not url.startswith(("data:", "blob:")):
        return None
    found = _IMAGE.fullmatch(url)
    if found is None:
        return f"no image of a known type in base64: {url[:40]!r}"
    return "an image of over 20 MB" if len(found[2]) > 27_000_000 else None


_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/]*={0,2})")
IMAGE_BYTES = BYTES_PER_TOKEN * 1_445
"""An image counts as so many bytes at most."""


def _pairing(messages: Sequence[Body]) -> Iterator[str]:
    waiting: list[str] = []
    for at, message in _each(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                yield f"V1 message {at} answers no call right before it: {message.get('tool_call_id')!r}"
            continue
        if waiting:
            yield f"V1 message {at} stands where results of {waiting} are wanted"
        waiting = [str(call.get("id")) for call in _calls(message)]
    if waiting:
        yield f"V1 the request ends where results of {waiting} are wanted"


def _ids(messages: Sequence[Body]) -> Iterator[str]:
    seen: set[str] = set()
    for at, message in _each(messages):
        for call in _calls(message):
            name = call.get("id")
            if not isinstance(name, str) or not name:
                yield f"V2 message {at} has a call without an id"
            elif name in seen:
                yield f"V2 message {at} uses the id {name!r} again"
            else:
                seen.add(name)


def _arguments(messages: Sequence[Body]) -> Iterator[str]:
    for at, message in _each(messages):
        for call in _calls(message):
            if call.get("type") != "function" or not _function(call).get("name"):
                yield f"V3 message {at} has a call that names no function"
            if not is_object(_function(call).get("arguments")):
                yield f"V3 message {at} has arguments that are no text of a JSON object"


def _emptiness(messages: Sequence[Body]) -> Iterator[str]:
    for at, message in _each(messages):
        empty = not message.get("tool_calls") and not _has_content(message.get("content"))
        if message.get("role") == "assistant" and empty:
            yield f"V4 message {at} (assistant) has neither text nor calls"


def _systems(messages: Sequence[Body]) -> Iterator[str]:
    places = [at for at, message in _each(messages) if message.get("role") in ("system", "developer")]
    if places not in ([], [0]):
        yield f"V7 system messages stand at {places}: one, first, is allowed"


def _alternation(messages: Sequence[Body]) -> Iterator[str]:
    before = "nobody's"
    for at, message in _each(messages):
        role = message.get("role")
        if role == "user" and before in ("user", "tool"):
            yield f"V8 message {at} is a user's right after a {before} message"
        if role == "assistant" and before in ("assistant", "nobody's"):
            yield f"V8 message {at} is an assistant's right after {before} message"
        if role in ("user", "assistant", "tool"):
            before = str(role)


def _tool_history(body: Body, messages: Sequence[Body]) -> Iterator[str]:
    used = any(message.get("role") == "tool" or message.get("tool_calls") for message in messages)
    if used and not body.get("tools"):
        yield "V9 there are tool messages and no tools"
    if "tool_choice" in body and not body.get("tools"):
        yield "V9 there is a tool_choice and no tools"


def _reasoning(messages: Sequence[Body], reasoning: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    for at, message in _each(messages):
        sent = reasoning.get(tuple(str(call.get("id")) for call in _calls(message)))
        if message.get("tool_calls") and sent is not None and message.get("reasoning_content") != sent:
            yield f"V11 message {at} does not carry the reasoning_content that came with its calls"


def _fits(body: Body, window: int, factor: float, default_output: int) -> Iterator[str]:
    tokens, answer = prompt_tokens(body, factor), output_limit(body) or default_output
    if tokens + answer > window:
        yield f"V10 {tokens} tokens and {answer} for the answer are more than the window of {window}"


def _each(messages: Sequence[Body]) -> Iterator[tuple[int, Body]]:
    return iter(enumerate(messages))


def _calls(message: Body) -> list[Body]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _function(call: Body) -> Body:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _has_content(content: object) -> bool:
    return bool(content.strip()) if isinstance(content, str) else bool(content)


def _bytes_of(message: Body) -> int:
    names = [str(call.get("id", "")) + str(_function(call).get("name", "")) for call in _calls(message)]
    parts = message.get("content")
    others = [part for part in parts if not _is_text(part)] if isinstance(parts, list) else []
    sizes = sum(min(size_of(part), IMAGE_BYTES) for part in others)
    return len("".join([text_of(message), *names]).encode("utf-8", "surrogatepass")) + sizes


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"
