"""A response as an `Answer`: what it says of its end, of its usage and of its output."""

from collections.abc import Hashable, Mapping
from typing import Any

from agentloop._plumbing.strict_json import cleaned
from agentloop.errors import BadAnswerError, UsageError
from agentloop.messages import Json, Usage
from agentloop.models import Answer
from agentloop.openai_api.said_once import calls_once
from agentloop.openai_api.server_events import ServerSaidError
from agentloop.openai_responses.from_items import INPUT_FIELDS, message_of

NO_OUTPUT = "the server's answer holds no output: check that the base URL is a Responses API's"

_UNFINISHED = frozenset({"queued", "in_progress"})
_NO_END = "the server answers in the background, later: take `background` out of extra_body"


def answer_of(response: Json, items: list[Any]) -> Answer:
    """The answer that a response gives with these items of output.

    Raises:
        BadAnswerError: it is no finished response.
        ServerSaidError: it failed.
    """
    check_not_failed(response)
    if str(response.get("status")) in _UNFINISHED:
        raise BadAnswerError(_NO_END)
    try:
        message = message_of([_plain(item) for item in _each_once(cleaned(items))])
    except (UsageError, RecursionError) as error:
        raise BadAnswerError("the server's answer is nested too deep") from error
    finish = _finish(response, items) or ("tool_calls" if message.tool_calls else "stop")
    return Answer(message=message, usage=_usage(response.get("usage")), finish=finish)


def check_not_failed(response: Json) -> None:
    """Refuse what is an error in place of a response.

    Raises:
        ServerSaidError: it is one.
    """
    if error := response.get("error"):
        raise ServerSaidError(error)
    if response.get("object") == "error" or response.get("type") == "error":
        raise ServerSaidError({key: value for key, value in response.items() if value != "error"})
    if str(response.get("status")) in ("failed", "cancelled"):
        raise ServerSaidError({"code": "server_error", "message": f"the response was {response['status']}"})


def _finish(response: Json, items: list[Any]) -> str | None:
    """Why the answer is cut short, in the words of chat completions; None where it is whole.

    A call that says of itself that it is not whole was cut short too.
    """
    if response.get("status") != "incomplete":
        return "length" if any(map(_is_cut_call, items)) else None
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return "content_filter" if reason == "content_filter" else "length"


def _is_cut_call(item: object) -> bool:
    if not isinstance(item, Mapping) or str(item.get("type")) not in INPUT_FIELDS:
        return False
    return item.get("status") == "incomplete"


def _each_once(items: list[Any]) -> list[Json]:
    """The items that are objects; a call that is sent twice is one."""
    return calls_once([item for item in items if isinstance(item, Mapping)], _told)


def _told(item: Json) -> tuple[Hashable, Hashable]:
    """Both ids of a call, none of another item, and what the call says where it is for us to answer."""
    kind, call_id = str(item.get("type")), item.get("call_id")
    if not (isinstance(call_id, str) and call_id):
        return (), ()
    given = item.get(INPUT_FIELDS.get(kind, ""))
    return (kind, call_id, str(item.get("id"))), (str(item.get("name")), str(given))


def _plain(item: Json) -> Json:
    """The item, a message whose text some servers send in a shape of their own in the API's shape."""
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return item
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**item, "content": [_output_text(part) for part in parts]}


def _output_text(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") == "text":
        return {"annotations": [], **part, "type": "output_text"}
    return part


def _usage(data: object) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    if "input_tokens" not in data and "output_tokens" not in data:
        return Usage.from_openai(data)
    return Usage.from_openai(
        {
            "prompt_tokens": data.get("input_tokens"),
            "completion_tokens": data.get("output_tokens"),
            "prompt_tokens_details": data.get("input_tokens_details"),
        }
    )
