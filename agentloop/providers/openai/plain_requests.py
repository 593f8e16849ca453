"""Requests for servers that take neither tools nor formats: what they would say stands in words.

The log holds calls whatever the server: an answer that does not fit is one in vain, and an older part of the
session may have come from a server with tools.
"""

from collections.abc import Sequence

from agentloop.context import SYSTEM_ROLES
from agentloop.messages import Json, text_of
from agentloop.prompts import CALLED_IN_TEXT, FINAL_ANSWER, RESULT_IN_TEXT


def with_answer_words(messages: Sequence[Json], words: str) -> tuple[Json, ...]:
    """The messages with these words behind the instructions.

    Example:
        >>> with_answer_words([{"role": "system", "content": "Be brief."}], "Give JSON.")[0]["content"]
        'Be brief.\\n\\nGive JSON.'
    """
    if not messages or messages[0].get("role") not in SYSTEM_ROLES:
        return {"role": "system", "content": words}, *messages
    first, *rest = messages
    return {**first, "content": f"{text_of(first.get('content'))}\n\n{words}"}, *rest


def without_calls(messages: Sequence[Json]) -> tuple[Json, ...]:
    """The messages with calls and their results in words, the results of one message in one of a user.

    Example:
        >>> call = {"id": "a", "function": {"name": "look", "arguments": "{}"}}
        >>> said = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        >>> without_calls([*said, {"role": "tool", "tool_call_id": "a", "content": "A door."}])[1]
        {'role': 'user', 'content': '[result of a call]\\nA door.'}
    """
    said: list[Json] = []
    answers: set[str] = set()
    results: list[Json] = []
    for message in messages:
        if message.get("role") == "tool":
            results += _parts_of(message, label=message["tool_call_id"] not in answers)
            continue
        said += _as_user_message(results)
        results = []
        if calls := message.get("tool_calls"):
            answers = {call["id"] for call in calls if _gives_answer(call)}
            message = {"role": "assistant", "content": _with_calls(text_of(message.get("content")), calls)}
        said.append(message)
    return *said, *_as_user_message(results)


def _gives_answer(call: Json) -> bool:
    return bool(call["function"]["name"].startswith(FINAL_ANSWER))


def _with_calls(text: str, calls: Sequence[Json]) -> str:
    """The text and the calls behind it; one that gives an answer is that answer, unless it was in vain."""
    lines = [text]
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if not _gives_answer(call):
            lines.append(CALLED_IN_TEXT.format(name=name, arguments=arguments))
        elif arguments != "{}" or not text:
            lines.append(arguments)
    return "\n".join(filter(None, lines))


def _parts_of(result: Json, *, label: bool) -> list[Json]:
    content = result["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": RESULT_IN_TEXT.format(result=content) if label else content}]
    return [{"type": "text", "text": RESULT_IN_TEXT.format(result="").strip()}, *content]


def _as_user_message(parts: Sequence[Json]) -> list[Json]:
    """The results as one message of a user, as text where they are text alone."""
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    content = "\n".join(texts) if len(texts) == len(parts) else [*parts]
    return [{"role": "user", "content": content}] if parts else []
