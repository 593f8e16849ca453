"""The words in which servers say why an answer ended, brought to those of OpenAI.

DeepSeek, Mistral, Z.ai and gateways to Anthropic and Gemini have words of their own; one not known here is
passed on as it is. Documented at https://api-docs.deepseek.com/api/create-chat-completion,
https://docs.mistral.ai/api/, https://docs.z.ai/api-reference/llm/chat-completion,
https://docs.claude.com/en/api/handling-stop-reasons and
https://ai.google.dev/api/generate-content#FinishReason.
"""

from agentloop.models import CUT_SHORT

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
_OURS = frozenset({"stop", "tool_calls", "function_call", *_SAME.values(), *_GIVEN_UP})


def finish_of(word: object) -> str | None:
    """The server's word in the words of OpenAI; None where the answer goes on."""
    if not isinstance(word, str) or (lower := word.lower()) in _NONE_YET:
        return None
    return lower if lower in _OURS else _SAME.get(lower, word)


def is_given_up(finish: str | None) -> bool:
    """Whether the server ended the answer for a reason of its own, which may pass."""
    return finish in _GIVEN_UP


class GrowingFinish:
    """What the choices of a stream have said of its end so far.

    Some servers give each piece the reason for which the answer ends, as if it were the last. So a word of
    the end is `sure` only where all that was said, text or calls, came before the first such word. Where
    some of it came with one it is `likely`: the answer ends there unless more is said without a word.

    What was sure is made likely by text behind it, and undone by a call behind it.

    An answer that was cut short stays so, whatever a server says of its end behind that.
    """

    def __init__(self) -> None:
        self.word: str | None = None
        self.is_over = False
        self.window_full = False
        self._added_without = False
        self._said = False
        self._said_since = False
        self._was_sure = False

    @property
    def sure(self) -> bool:
        """Whether the answer has ended, as far as words go."""
        return self.is_over and self._said and not self._said_since

    @property
    def likely(self) -> bool:
        """Whether it has ended, unless this server says so of each piece."""
        return self.is_over and (self._said or self._added_without or self.word in CUT_SHORT)

    def note(self, word: object, *, adds: bool, text: bool, calls: bool) -> None:
        """Take in the reason of one choice, which `adds` to the answer, and says `text` or `calls`."""
        finish, says = finish_of(word), text or calls
        self._said = self._said or says
        self._said_since = self._said_since or (says and (self.is_over or finish is not None))
        if finish is None:
            self._added_without = self._added_without or adds
            self._was_sure = self._was_sure and not calls
            self.is_over = self._was_sure or (self.is_over and not says)
            return
        self.is_over = True
        self._was_sure = self._was_sure or self.sure
        if self.word not in CUT_SHORT:
            self.word = finish
            self.window_full = str(word).lower() == WINDOW_FULL
