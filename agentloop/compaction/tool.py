"""Layer three: the tool by which the model itself asks for a compaction."""

from agentloop.messages import Json, ToolCall
from agentloop.stream import CompactionResult

COMPACT = "compact"

COMPACT_SCHEMA: Json = {
    "type": "function",
    "function": {
        "name": COMPACT,
        "description": (
            "Replace the older part of this conversation by a summary, to free room in the context. Use it "
            "when a part of the work is done and its details are no longer needed."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "focus": {"type": "string", "description": "What the summary must keep above all."}
            },
            "required": [],
        },
    },
}


def focus_of(call: ToolCall) -> str | None:
    """What the model asked to keep, if it said so."""
    focus = (call.decoded() or {}).get("focus")
    return focus if isinstance(focus, str) and focus.strip() else None


def outcome_text(result: CompactionResult) -> str:
    """What the model is told of the compaction it asked for."""
    if result.status in ("not_due", "skipped"):
        return f"Nothing was compacted: {result.error}. Go on with the task."
    if result.status != "done":
        return f"Nothing was compacted ({result.status}: {result.error}). Go on with the task."
    return (
        f"Compacted: {result.messages_before} messages became {result.messages_after}, "
        f"{result.tokens_before:,} tokens became {result.tokens_after:,}. "
        f"Transcript: {result.transcript or 'none'}. Go on with the task."
    )
