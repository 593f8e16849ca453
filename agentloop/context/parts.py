"""What other APIs say in parts and items of their own, as chat completions say it.

`chat_messages` is for what comes in: Anthropic's blocks (https://docs.anthropic.com/en/api/messages) and the
items of the Responses API (https://platform.openai.com/docs/api-reference/responses) become calls, results,
reasoning and text. `sent_part` is for what goes out, whatever a log holds: a part that no API takes in a
message of that role stands there as text behind a label. `for_chat` makes of that what chat completions take.
`for_chat_completions` is the same without what only the Responses API knows.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentloop._plumbing.strict_json import cleaned, list_or_empty
from agentloop._plumbing.truncate import beginning, ends
from agentloop.media import bare
from agentloop.messages import Content, Json, labelled_part, text_of
from agentloop.prompts import (
    ACKNOWLEDGEMENT,
    CALLED_IN_TEXT,
    FOREIGN_PART,
    MEDIA_BELOW,
    MEDIA_OF_RESULT,
    MEDIA_OF_RESULTS,
    around_result,
)

_MOST_STUB_CHARS = 300

_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"})
_OWN_THOUGHT = "thinking[]"
"""A thought in the form of chat completions themselves, in pieces, as Mistral's servers write and read it."""
_CALLS = frozenset({"tool_use", "function_call", "custom_tool_call", "local_shell_call"})
_RESULTS = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_MOVED = _THOUGHTS | _CALLS | _RESULTS
_OTHERS_TEXTS = frozenset({"input_text", "output_text"})
_OTHERS_MEDIA = frozenset({"image", "document", "input_image", "input_file"})
_FOREIGN = _MOVED | _OTHERS_TEXTS | _OTHERS_MEDIA

_ENVELOPE = frozenset(
    {"type", "id", "model", "status", "phase", "stop_reason", "stop_sequence", "usage", "content"}
)
"""What other APIs write around a message's content, and no request takes."""

_MEDIA = frozenset({"image_url", "input_audio", "file", "video_url", "audio_url"})
"""The media of chat completions, of vLLM's too, by the field of that name that holds what they are."""

_ONLY_RESPONSES = frozenset({"input_image", "input_file"})

RESPONSE_ITEMS = "response_items"
"""The items that an assistant message of the Responses API came as; no other API knows the field.

What the typed fields of the message say is left out there, and filled in again when it is sent.
"""


def chat_messages(said: Iterable[Json]) -> list[Json]:
    """The messages and items as messages of chat completions; what is one already stays as it is.

    A message of several results becomes several, and a row of calls one. What is neither is left alone.

    Example:
        >>> block = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "x"}}
        >>> result = {"type": "tool_result", "tool_use_id": "t1", "content": "A tree."}
        >>> said = [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
        >>> for message in chat_messages(said):
        ...     print(message["role"], message.get("tool_call_id") or message["tool_calls"][0]["id"])
        assistant t1
        tool t1
    """
    rows: list[list[Json]] = []
    is_open = False
    for data in said:
        goes_on = _is_item(data)
        for message in _of_item(data) if goes_on and "role" not in data else _of_message(data):
            if goes_on and is_open and message.get("role") == "assistant":
                rows[-1].append(message)
            else:
                rows.append([message])
        is_open = goes_on and bool(rows) and rows[-1][-1].get("role") == "assistant"
    return [row[0] if len(row) == 1 else _joined(row) for row in rows]


def sent_part(part: Json, role: str) -> Json | None:
    """The part as it may stand in a request's message of that role; None where nobody is to read it."""
    part = _chat_part(part)
    kind, text = _kind(part), part.get("text")
    if kind in _THOUGHTS:
        return None
    if kind == _OWN_THOUGHT:
        return part if role == "assistant" else None
    if kind in ("", "text") and isinstance(text, str):
        return {**part, "type": "text"}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return part if role == "assistant" else _text(part["refusal"])
    if role in ("user", "tool") and (_is_media(part) or kind in _ONLY_RESPONSES):
        return bare(part)
    if kind in _CALLS:
        call = _call(part)["function"]
        return _text(CALLED_IN_TEXT.format(name=call["name"], arguments=_end_of(call["arguments"])))
    if kind in _RESULTS:
        said = _end_of(text_of(_result(part)["content"]))
        begins, end = around_result(said)
        return _text(f"{begins}\n{said}\n{end}")
    return stub(part) if kind else _text(json.dumps(cleaned(part), ensure_ascii=False))


def speaks(content: Content) -> bool:
    """Whether an assistant's content holds a text that is sent and is not blank."""
    if not isinstance(content, tuple):
        return bool(content and content.strip())
    return bool(text_of([sent_part(part, "assistant") for part in content]).strip())


def for_chat(messages: Iterable[Json]) -> Iterator[Json]:
    """The wire messages as chat completions take them: media stand in users' messages alone.

    What results hold of them follows behind the results of a batch, in a message that says whose it is.

    Example:
        >>> image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        >>> result = {"role": "tool", "tool_call_id": "c", "content": [image]}
        >>> [message["role"] for message in for_chat([result])]
        ['tool', 'assistant', 'user']
    """
    below: list[Json] = []
    for message in messages:
        if message.get("role") != "tool":
            yield from _of_results(below)
            below = []
        content = message.get("content")
        if not isinstance(content, list) or all(map(_is_plain, content)):
            yield message
            continue
        role = str(message.get("role"))
        if role == "tool" and (media := [part for part in content if _kind(part) in _MEDIA]):
            below += (_text(MEDIA_OF_RESULT.format(call=message.get("tool_call_id"))), *media)
        yield {**message, "content": [_in_chat(part, role) for part in content]}
    yield from _of_results(below)


def for_chat_completions(messages: Iterable[Json]) -> tuple[Json, ...]:
    """The messages without what only the Responses API takes: its items, and media in results.

    Example:
        >>> for_chat_completions([{"role": "assistant", "content": "Yes.", "response_items": []}])
        ({'role': 'assistant', 'content': 'Yes.'},)
    """
    return tuple(
        {key: value for key, value in message.items() if key != RESPONSE_ITEMS}
        if RESPONSE_ITEMS in message
        else message
        for message in for_chat(messages)
    )


def _in_chat(part: Json, role: str) -> Json:
    if _is_plain(part) or (role == "user" and _kind(part) in _MEDIA):
        return part
    if role == "tool" and _kind(part) in _MEDIA:
        return labelled_part(part, MEDIA_BELOW) or _text(MEDIA_BELOW.format(what=_kind(part)))
    return stub(part)


def _of_results(media: Sequence[Json]) -> Iterator[Json]:
    """What results hold, as a user's; some servers take no user's message right behind a result."""
    if media:
        yield {"role": "assistant", "content": ACKNOWLEDGEMENT}
        yield {"role": "user", "content": [_text(MEDIA_OF_RESULTS), *media]}


def stub(part: Json) -> Json:
    """A text that says that here a part stood which is not taken."""
    shown = json.dumps(cleaned(part), ensure_ascii=False)
    kind = beginning(_kind(part), 40)
    return _text(FOREIGN_PART.format(kind=kind, part=ends(shown, max_chars=_MOST_STUB_CHARS)))


def _is_plain(part: Json) -> bool:
    return _kind(part) in ("text", "refusal", _OWN_THOUGHT)


def _is_media(part: Json) -> bool:
    kind = _kind(part)
    held = part.get(kind) if kind in _MEDIA else None
    match kind, held:
        case "input_audio", {"data": str(), "format": str()}:
            return True
        case "file", {"file_data": str()} | {"file_id": str()}:
            return True
        case _, {"url": str(url)}:
            return bool(url)
    return False


def _end_of(text: str) -> str:
    return ends(text, max_chars=_MOST_STUB_CHARS * 10)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _is_item(data: object) -> bool:
    """Whether it is one of the Responses API's items: a message among them, or one that has no role."""
    if not isinstance(data, Mapping):
        return False
    kind = _kind(data)
    if "role" in data:
        return kind == "message"
    return kind in _MOVED or kind.endswith(("_call", "_call_output"))


def _of_item(item: Json) -> Iterator[Json]:
    kind = str(item["type"])
    if kind in _CALLS:
        yield {"role": "assistant", "content": None, "tool_calls": [_call(item)]}
    elif kind in _RESULTS:
        yield _result(item)
    elif kind in _THOUGHTS:
        if thought := _thought(item):
            yield {"role": "assistant", "content": "", "reasoning_content": thought}
    else:
        yield {"role": "assistant", "content": [stub(item)]}


def _joined(row: Sequence[Json]) -> Json:
    kept = {key: value for message in row for key, value in message.items()}
    parts = [part for message in row for part in _parts(message.get("content")) if part != _text("")]
    calls = [call for message in row for call in list_or_empty(message.get("tool_calls"))]
    said = (message.get("reasoning_content") for message in row)
    thoughts = [thought for thought in said if isinstance(thought, str) and thought]
    return _assistant(kept, parts, calls, thoughts)


def _of_message(data: Json) -> Iterator[Json]:
    """The results that the message holds, then what else it says."""
    content = data.get("content") if isinstance(data, Mapping) else None
    parts = _parts(content)
    is_foreign = _is_item(data) or any(_kind(part) in _FOREIGN for part in parts)
    if not is_foreign or not isinstance(data.get("role"), str):
        yield data
        return
    kept = {key: value for key, value in data.items() if key not in _ENVELOPE}
    said = [_chat_part(part) for part in parts if _kind(part) not in _MOVED]
    if kept["role"] == "assistant":
        calls = [
            *list_or_empty(data.get("tool_calls")),
            *(_call(part) for part in parts if _kind(part) in _CALLS),
        ]
        thoughts = [thought for part in parts if (thought := _thought(part))]
        yield _assistant(kept, said, calls, thoughts)
        yield from (_result(part) for part in parts if _kind(part) in _RESULTS)
        return
    said += [_chat_part(part) for part in parts if _kind(part) in _CALLS]
    if kept["role"] != "tool":
        yield from (_result(part) for part in parts if _kind(part) in _RESULTS)
    else:
        said += [part for part in parts if _kind(part) in _RESULTS]
    if said:
        yield {**kept, "content": _plainest(said) or ""}


def _assistant(kept: Json, parts: Sequence[Json], calls: Sequence[Json], thoughts: Sequence[str]) -> Json:
    message = {**kept, "role": "assistant", "content": _plainest(parts) or (None if calls else "")}
    if calls:
        message["tool_calls"] = list(calls)
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    return message


def _plainest(parts: Sequence[Json]) -> str | list[Json]:
    """The one text where there is nothing else."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and isinstance(parts[0]["text"], str):
        return str(parts[0]["text"])
    return [part for part in parts if part != _text("")]


def _parts(content: object) -> list[Json]:
    if isinstance(content, str):
        return [_text(content)]
    return [part if isinstance(part, Mapping) else _text(str(part)) for part in list_or_empty(content)]


def _kind(part: Json) -> str:
    kind = part.get("type")
    if kind == "thinking" and isinstance(part.get("thinking"), list):
        return _OWN_THOUGHT
    return kind if isinstance(kind, str) else ""


def _call(part: Json) -> dict[str, Any]:
    given: Any = next((part[field] for field in ("arguments", "input", "action") if field in part), {})
    if _kind(part) == "custom_tool_call" or (_kind(part) == "tool_use" and not isinstance(given, Mapping)):
        given = {"input": given}
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    name = part.get("name") or _kind(part).removesuffix("_call")
    function = {"name": str(name), "arguments": arguments}
    return {"id": str(part.get("call_id") or part.get("id") or ""), "type": "function", "function": function}


def _result(part: Json) -> Json:
    """The result that a block or an item holds, as a message; one that failed says so."""
    content = part.get("content", part.get("output"))
    said = [_chat_part(each) for each in _parts(content)]
    if not said and content not in (None, "", [], {}):
        said = [_text(json.dumps(content, ensure_ascii=False, default=str))]
    if part.get("is_error"):
        said.insert(0, _text("error"))
    name = part.get("tool_use_id") or part.get("call_id")
    return {"role": "tool", "tool_call_id": str(name or ""), "content": _plainest(said) or ""}


def _thought(part: Json) -> str:
    """What a part or an item of reasoning says; nothing where it is sealed."""
    if _kind(part) not in _THOUGHTS:
        return ""
    said = part.get("thinking") or part.get("text")
    if isinstance(said, str):
        return said
    return text_of(list_or_empty(part.get("summary") or part.get("content")))


def _chat_part(part: Json) -> Json:
    """A part of another API in the form of chat completions; others as they are."""
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return _text(text)
        case {"type": "image" | "document", "source": {"type": "text", "data": str(text)}}:
            return _text(text)
        case {"type": "image" | "document", "source": {"data": str(data), "media_type": str(medium)}}:
            return _with_source(part, f"data:{medium};base64,{data}")
        case {"type": "image" | "document", "source": {"url": str(url)}}:
            return _with_source(part, url)
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url} | _texts(part, "detail")}
        case {"type": "input_file", "file_data": str()} | {"type": "input_file", "file_id": str()}:
            return {"type": "file", "file": _texts(part, "file_data", "file_id", "filename")}
        case {"type": "image_url", "image_url": str(url)}:
            return {**part, "image_url": {"url": url}}
    return part


def _with_source(part: Json, url: str) -> Json:
    if part["type"] == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    name = part.get("title") if isinstance(part.get("title"), str) else "document"
    return {"type": "file", "file": {"filename": name, "file_data": url}} if url[:5] == "data:" else part


def _texts(part: Json, *keys: str) -> dict[str, str]:
    return {key: part[key] for key in keys if isinstance(part.get(key), str)}
