"""How servers refuse what they do not know: fields, roles, streams and answers that are too long.

`refused` looks at what came; the words are those of one of `WORDINGS`. A path is the keys and places from the
body down to a field.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tests.strict_bodies import Body
from tests.strict_replies import Fault, fault, invalid
from tests.strict_rules import output_limit

Path: TypeAlias = tuple[str | int, ...]
Wording: TypeAlias = Callable[[Sequence[Path]], Fault]

DIALECTS = frozenset(
    {"no-system", "no-streams", "only-streams", "no-message-fields", "plain-schemas"}
    | {"ids-of-40", "ids-of-words", "ids-of-9"}
    | {"no-tools", "no-formats"}
)
"""Modes of the provider that are found out by a refusal."""

OF_BOTH_APIS = frozenset({"no-tools", "no-formats"})
"""Those that the Responses API may have, too."""

_MESSAGE_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_CALL_FIELDS = frozenset({"id", "type", "function"})
_SCHEMA_WORDS = frozenset(
    {"type", "function", "name", "description", "parameters", "properties", "items", "required", "enum"}
)


def refused(
    body: Body,
    *,
    modes: Collection[str],
    refuses: Collection[str],
    wording: str,
    most_output: int | None,
    no_tools: str,
    no_formats: str,
) -> Fault | None:
    """The refusal of what this server does not know, None where it knows all of it."""
    if "no-tools" in modes and (body.get("tools") or _has_calls(body)):
        return NO_TOOLS[no_tools]
    if "no-formats" in modes and (body.get("response_format") or body.get("text", {}).get("format")):
        return NO_FORMATS[no_formats]
    if paths := [*_fields(body, modes, refuses)]:
        return WORDINGS[wording](paths)
    if "no-system" in modes and body["messages"][0]["role"] in ("system", "developer"):
        return invalid(400, "Error rendering the chat template: System role not supported")
    if "no-streams" in modes and body.get("stream"):
        return invalid(400, "Streaming is not supported by this deployment.", param="stream")
    if "only-streams" in modes and not body.get("stream"):
        return invalid(400, "This model only supports stream mode, please enable the stream parameter.")
    if (fault := next(_ids(body, modes), None)) is not None:
        return fault
    if most_output is not None and output_limit(body) > most_output:
        asked = output_limit(body)
        return invalid(
            400,
            f"max_tokens is too large: {asked}. This model supports at most {most_output} completion tokens, "
            f"whereas you provided {asked}.",
            param="max_tokens",
            code="invalid_value",
        )
    return None


def _has_calls(body: Body) -> bool:
    messages = any(each["role"] == "tool" or each.get("tool_calls") for each in body.get("messages", ()))
    return messages or any("call" in each["type"] for each in body.get("input", ()))


def _ids(body: Body, modes: Collection[str]) -> Iterator[Fault]:
    """The refusals of ids of calls that have not the form that this server wants."""
    if not any(mode.startswith("ids-") for mode in modes):
        return
    for at, message in enumerate(body.get("messages", ())):
        for number, call in enumerate(message.get("tool_calls") or ()):
            name = call["id"]
            if "ids-of-40" in modes and len(name) > 40:
                yield _too_long(f"messages[{at}].tool_calls[{number}].id", len(name))
            if "ids-of-words" in modes and not re.fullmatch("[a-zA-Z0-9_-]+", name):
                wanted = "String should match pattern '^[a-zA-Z0-9_-]+$'"
                yield invalid(400, f"messages.{at}.content.{number}.tool_use.id: {wanted}")
            if "ids-of-9" in modes and not re.fullmatch("[a-zA-Z0-9]{9}", name):
                yield _no_nine(name)


def _too_long(place: str, length: int) -> Fault:
    wanted = f"Expected a string with maximum length 40, but got a string with length {length} instead."
    message = f"Invalid '{place}': string too long. {wanted}"
    return invalid(400, message, param=place, code="string_above_max_length")


def _no_nine(name: str) -> Fault:
    message = f"Value error, Tool call id was {name} but must be a-z, A-Z, 0-9, with a length of 9."
    detail = {"detail": [{"type": "value_error", "msg": message}]}
    kind = {"object": "error", "type": "invalid_request_message_order", "code": "3280"}
    return Fault(status=400, body={**kind, "message": detail})


def _fields(body: Body, modes: Collection[str], refuses: Collection[str]) -> Iterator[Path]:
    yield from ((name,) for name in body if name in refuses)
    if "no-message-fields" in modes:
        for at, message in enumerate(body["messages"]):
            yield from (("messages", at, name) for name in message if name not in _MESSAGE_FIELDS)
            for number, call in enumerate(message.get("tool_calls") or ()):
                place: Path = ("messages", at, "tool_calls", number)
                yield from ((*place, name) for name in call if name not in _CALL_FIELDS)
                inner = call["function"]
                yield from ((*place, "function", name) for name in inner if name not in ("name", "arguments"))
    if "plain-schemas" in modes:
        for at, tool in enumerate(body.get("tools") or ()):
            yield from _schema_fields(tool, ("tools", at))


def _schema_fields(schema: Any, place: Path) -> Iterator[Path]:
    if isinstance(schema, list):
        for at, each in enumerate(schema):
            yield from _schema_fields(each, (*place, at))
    if not isinstance(schema, Mapping):
        return
    for key, inner in schema.items():
        if key == "properties":
            for name, each in inner.items():
                yield from _schema_fields(each, (*place, key, name))
        elif key not in _SCHEMA_WORDS:
            yield (*place, key)
        else:
            yield from _schema_fields(inner, (*place, key))


def _dotted(path: Path) -> str:
    """E.g. `messages[2].tool_calls[0].extra`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _openai(paths: Sequence[Path]) -> Fault:
    name = _dotted(paths[0])
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(name)
    hint = f" Use '{other}' instead." if other else ""
    message = f"Unsupported parameter: '{name}' is not supported with this model.{hint}"
    return invalid(400, message, param=name, code="unsupported_parameter")


def _words(paths: Sequence[Path]) -> Fault:
    return invalid(400, f"Unrecognized request argument supplied: {paths[0][-1]}")


def _pydantic(paths: Sequence[Path]) -> Fault:
    detail = [
        {
            "type": "extra_forbidden",
            "loc": ["body", *path],
            "msg": "Extra inputs are not permitted",
            "input": "what was sent",
        }
        for path in paths
    ]
    return Fault(status=422, body={"detail": detail})


def _mistral(paths: Sequence[Path]) -> Fault:
    detail = []
    for path in paths:
        tagged = [*path[:2], "assistant", *path[2:]] if path[0] == "messages" else path
        detail.append(
            {"type": "extra_forbidden", "loc": ["body", *tagged], "msg": "Extra inputs are not permitted"}
        )
    message = {"detail": detail}
    return Fault(
        status=422,
        body={"object": "error", "message": message, "type": "invalid_request_error", "code": None},
    )


def _google(paths: Sequence[Path]) -> Fault:
    lines = [
        f'Invalid JSON payload received. Unknown name "{path[-1]}"{_at(path)}: Cannot find field.'
        for path in paths
    ]
    error = {"code": 400, "message": "\n".join(lines), "status": "INVALID_ARGUMENT"}
    return Fault(status=400, body=[{"error": error}])


def _at(path: Path) -> str:
    return f" at '{_dotted(path[:-1])}'" if len(path) > 1 else ""


def _groq(paths: Sequence[Path]) -> Fault:
    path = paths[0]
    if path[0] == "messages":
        place = f"messages.{path[1]}"
        message = (
            f"'{place}' : for 'role:assistant' the following must be satisfied"
            f"[('{place}' : property '{path[-1]}' is unsupported)]"
        )
        return invalid(400, message)
    return invalid(400, f"property '{path[-1]}' is unsupported")


def _vllm(paths: Sequence[Path]) -> Fault:
    parts = [
        f"[{{'type': 'extra_forbidden', 'loc': ('body', {', '.join(map(repr, path))}), "
        "'msg': 'Extra inputs are not permitted', 'input': 1}]"
        for path in paths
    ]
    message = " ".join(parts)
    return Fault(
        status=400,
        body={"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400},
    )


def _go(paths: Sequence[Path]) -> Fault:
    return invalid(400, f'json: unknown field "{paths[0][-1]}"')


def _anthropic(paths: Sequence[Path]) -> Fault:
    name = ".".join(map(str, paths[0]))
    return Fault(
        status=400,
        body={
            "type": "error",
            "error": {"type": "invalid_request_error", "message": f"{name}: Extra inputs are not permitted"},
        },
    )


WORDINGS: dict[str, Wording] = {
    "openai": _openai,
    "words": _words,
    "pydantic": _pydantic,
    "mistral": _mistral,
    "google": _google,
    "groq": _groq,
    "vllm": _vllm,
    "go": _go,
    "anthropic": _anthropic,
}

NO_TOOLS: dict[str, Fault] = {
    "ollama": fault(400, "registry.ollama.ai/library/gemma3:4b does not support tools", type="api_error"),
    "openai": invalid(
        400,
        "tools is not supported in this model. For a list of supported models, refer to the guide on "
        "function calling, models supporting function calling.",
        param="tools",
    ),
    "openai's newer": invalid(
        400, "Unsupported parameter: 'tools' is not supported with this model.", param="tools"
    ),
    "azure": Fault(
        status=400,
        body={"error": {"code": 400, "message": "Functions are not supported for this model version."}},
    ),
    "llama.cpp": Fault(
        status=500,
        body={"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}},
    ),
    "llama.cpp's older": Fault(
        status=500,
        body={"error": {"code": 500, "message": "Unsupported param: tools", "type": "server_error"}},
    ),
    "vllm": Fault(
        status=400,
        body={
            "object": "error",
            "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
            "to be set",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "openrouter": Fault(
        status=404,
        body={"error": {"message": "No endpoints found that support tool use. Read more.", "code": 404}},
    ),
    "groq": invalid(400, "`tool calling` is not supported with this model"),
    "google": Fault(
        status=400,
        body=[{"error": {"code": 400, "message": "Function calling is not enabled for models/gemma-3"}}],
    ),
    "vertex": invalid(400, "Tool use with function calling is unsupported"),
    "bedrock": invalid(400, "This model doesn't support tool use."),
    "dashscope": invalid(400, "<400> InternalError.Algo.InvalidParameter: The tool call is not supported."),
    "xai": invalid(400, "Argument not supported on this model: tools"),
    "no verb": invalid(400, "Tool calling not supported"),
    "a feature": invalid(400, "The tools feature is disabled for this deployment"),
    "capable": invalid(400, "The model `m` is not capable of tool calling"),
    "a noun": invalid(400, "This model has no tool support"),
    "a gateway": invalid(400, "Function call is not supported for this model."),
    "deepseek": invalid(400, "deepseek-reasoner does not support Function Calling"),
    "words": invalid(400, "Unrecognized request argument supplied: tools"),
    "pydantic": _pydantic([("tools",)]),
    "google's fields": _google([("tools",)]),
    "go": _go([("tools",)]),
    "chinese": invalid(400, "该模型不支持工具调用"),
}
"""How servers without tools say so."""

NO_FORMATS: dict[str, Fault] = {
    "openai": invalid(
        400,
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        param="response_format",
    ),
    "deepseek": invalid(400, "This response_format type is unavailable now"),
    "groq": invalid(400, "This model does not support response format `json_schema`."),
    "a schema": invalid(
        400,
        "Invalid schema for response_format 'answer': In context=(), '$ref' is not permitted.",
        param="response_format",
    ),
    "vllm": invalid(400, "The provided JSON schema contains features not supported by xgrammar."),
    "responses": invalid(
        400, "Unsupported parameter: 'text.format' is not supported with this model.", param="text.format"
    ),
    "pydantic": _pydantic([("response_format",)]),
    "google": invalid(400, "Function calling with a response mime type: 'application/json' is unsupported"),
    "groq's mode": invalid(400, "json mode cannot be combined with tool/function calling"),
}
"""How servers without formats of answers say so."""
