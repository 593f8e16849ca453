"""The ids of calls in a request, in the form that its server takes.

A server's own ids mean something to it: those of Kimi's models name the tool and number the call, and a
model that sees others loses its own form; some gateways carry signatures in them that they want back
(https://ai.google.dev/gemini-api/docs/thought-signatures). So ids go back as they came. Those of another
server are refused then by some: OpenAI takes at most 40 characters, Anthropic letters, digits, `_` and `-`,
Mistral exactly nine letters and digits. Only such a refusal changes them, in the request and not in the log.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from agentloop.messages import Json

IdForm: TypeAlias = Literal["as they came", "short", "nine letters"]
"""In what form ids are sent: `short` ones have at most 40 letters, digits, `_` and `-`."""

ID_FORMS: tuple[IdForm, ...] = ("as they came", "short", "nine letters")
"""In the order in which they are tried: one that is refused is not gone back to."""

_TAKEN_AS_THEY_ARE: Mapping[IdForm, re.Pattern[str]] = {
    "short": re.compile(r"[a-zA-Z0-9_-]{1,40}"),
    "nine letters": re.compile(r"[a-zA-Z0-9]{9}"),
}
_HASHED: Mapping[IdForm, Callable[[str], str]] = {
    "short": lambda digest: f"call_{digest[:24]}",
    "nine letters": lambda digest: digest[:9],
}


def with_ids(said: Sequence[Json], form: IdForm) -> Sequence[Json]:
    """The messages of chat completions, or the items of the Responses API, with ids of calls in this form.

    Calls and their results change alike, and ids that differ stay different. One that has the form stays;
    any other becomes a hash of itself, so that a call has one id in all requests.

    Example:
        >>> with_ids([{"role": "tool", "tool_call_id": "call_1", "content": "5"}], "short")
        [{'role': 'tool', 'tool_call_id': 'call_1', 'content': '5'}]
        >>> with_ids([{"role": "tool", "tool_call_id": "call_1", "content": "5"}], "nine letters")
        [{'role': 'tool', 'tool_call_id': 'ec23f0d3d', 'content': '5'}]
    """
    if form == "as they came":
        return said
    names = _Names(form)
    return [_renamed(each, names) for each in said]


class _Names:
    """The ids of one request, by those that they stand for."""

    def __init__(self, form: IdForm) -> None:
        self._fits, self._hashed = _TAKEN_AS_THEY_ARE[form], _HASHED[form]
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, call_id: str) -> str:
        if call_id not in self._names:
            name = call_id
            while name in self._taken or not self._fits.fullmatch(name):
                name = self._hashed(hashlib.sha256(f"{call_id}{name}".encode()).hexdigest())
            self._taken.add(name)
            self._names[call_id] = name
        return self._names[call_id]


def _renamed(said: Json, names: _Names) -> Json:
    changed: dict[str, Any] = {
        key: names.of(said[key]) for key in ("tool_call_id", "call_id") if isinstance(said.get(key), str)
    }
    if calls := said.get("tool_calls"):
        changed["tool_calls"] = [{**call, "id": names.of(call["id"])} for call in calls]
    return {**said, **changed} if changed else said
