"""Where in our values people, models and programs speak: only there is anything taken out.

Roles, statuses, kinds, reasons, finish reasons, names of tools, models and callbacks, and ids of sessions,
runs and calls make up a session. They are never rewritten, whatever they look like: a value that happens to
be `assistant` would leave no message anybody can read. Files and folders are found by their names.
"""

from collections.abc import Mapping

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
