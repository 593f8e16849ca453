"""The words in which servers say why an answer ended, brought to those of OpenAI.

DeepSeek, Mistral, Z.ai and gateways to Anthropic and Gemini have words of their own; one not known here is
passed on as it is. Documented at https://api-docs.deepseek.com/api/create-chat-completion,
https://docs.mistral.ai/api/, https://docs.z.ai/api-reference/llm/chat-completion,
https://docs.claude.com/en/api/handling-stop-reasons and
https://ai.google.dev/api/generate-content#FinishReason.
"""

WINDOW_FULL = "model_context_window_exceeded"
"""The answer ended since nothing more fits into the window."""

_SAME = {
    "max_tokens": "length",
    "model_length": "length",
    WINDOW_FULL: "length",
    "sensitive": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
}
_GIVEN_UP = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "cancelled"})
_NONE_YET = frozenset({"", "null", "none"})


def finish_of(word: object) -> str | None:
    """The server's word in the words of OpenAI; None where the answer goes on."""
    if not isinstance(word, str) or word.lower() in _NONE_YET:
        return None
    return _SAME.get(word.lower(), word)


def is_given_up(finish: str | None) -> bool:
    """Whether the server ended the answer for a reason of its own, which may pass."""
    return finish in _GIVEN_UP
