"""Where in our values people, models and programs speak: only there is anything taken out.

Roles, statuses, kinds, reasons, finish reasons, names of tools, models and callbacks, and ids of sessions,
runs and calls make up a session. They are never rewritten, whatever they look like: a value that happens to
be `assistant` would leave no message anybody can read. Files and folders are found by their names.
"""

from collections.abc import Mapping
from typing import Any

FREE_TEXT: Mapping[str, tuple[str, ...]] = {
    "Message": ("content", "tool_calls", "extra"),
    "ToolCall": ("arguments", "extra"),
    "Record": ("event",),
    "MessageAdded": ("message",),
    "ClearedItem": ("message",),
    "Cleared": ("items",),
    "Compacted": ("replacement", "answer", "cleared", "why", "lost"),
    "Restored": (),
    "ModelCalled": (),
    "RunStarted": (),
    "RunEnded": ("output", "error", "reason"),
    "Described": ("title",),
    "Noted": ("data",),
    "Unknown": ("body",),
    "TextDelta": ("text",),
    "ToolStarted": ("arguments",),
    "ToolProgress": ("text",),
    "ToolEnded": (),
    "ResultsCleared": (),
    "CompactionStarted": ("why",),
    "CompactionEnded": ("lost", "error"),
    "ContextWarning": ("text",),
    "Retrying": ("error",),
    "CallbackFailed": ("error",),
    "SessionInfo": ("title",),
    "CompactionRequest": ("why", "messages", "focus"),
    "Positioned": ("message",),
    "Occasion": ("why", "focus"),
    "Standing": ("text", "shadow", "fault"),
}
"""The fields that hold free text, by the name of the type; of a type that is not here it is every field."""

PROVIDER_FIELDS = ("content", "extra", "body")
"""Fields whose mappings have keys that a provider or this library gave them: those stay."""

STRUCTURE = frozenset(
    {
        *("role", "type", "kind", "id", "object", "index", "name", "model", "status", "format", "media_type"),
        *("call_id", "tool_call_id", "item_id", "response_id", "session_id", "run_id", "request_hash"),
        *("finish", "finish_reason", "stop_reason", "reason", "purpose", "strategy", "made", "encoding"),
    }
)
"""Keys in those mappings whose texts stay too."""

USERS_OWN = frozenset({"input", "arguments", "args"})
"""Keys in those mappings behind which a tool's own fields stand: nothing there is a provider's."""

_SEALED_KEYS = frozenset(
    {
        *("encrypted_content", "encrypted_index", "encrypted_stdout", "reasoning_opaque", "signature"),
        *("thought_signature", "thought_signatures", "thoughtSignature", "thoughtSignatures"),
        *("redacted_content", "redactedContent"),
    }
)
_SEALED_DATA = ("reasoning.encrypted", "redacted_thinking")


def is_sealed(key: object, value: object, beside: Mapping[Any, Any]) -> bool:
    """Whether a provider alone can read the text behind this key of a mapping, and wants it back as it is.

    It is base64 as a rule, which has the shape of a key now and then. Documented at
    https://platform.openai.com/docs/guides/reasoning (`encrypted_content`),
    https://docs.claude.com/en/docs/build-with-claude/extended-thinking (`signature`, `redacted_thinking`),
    https://docs.claude.com/en/docs/agents-and-tools/tool-use/web-search-tool (`encrypted_index`),
    https://ai.google.dev/gemini-api/docs/thought-signatures,
    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ReasoningContentBlock.html and
    https://openrouter.ai/docs/use-cases/reasoning-tokens (`reasoning.encrypted`).
    """
    texts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) for text in texts):
        return False
    return beside.get("type") in _SEALED_DATA if key == "data" else key in _SEALED_KEYS
