"""The text of an answer as it is shown while it comes."""

from agentloop._plumbing.strict_json import cleaned, without_half
from agentloop.openai_responses.from_items import BETWEEN_MESSAGES


class ShownText:
    """Pieces of text as they are shown: together they are the text of the whole message.

    Half of a surrogate pair waits for the other half, and what comes from another item of the output begins
    as a paragraph of its own.
    """

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._half = ""
        self._item: object = None

    def add(self, item: object, delta: str) -> str:
        """The text to show now that this piece of that item has come."""
        if not delta:
            return ""
        between = ""
        if item is not self._item and self._item is not None:
            between, self._half = cleaned(self._half) + BETWEEN_MESSAGES, ""
        self._item = item
        piece, self._half = without_half(self._half + delta)
        self._shown.append(between + piece)
        return str(between + piece)

    def rest(self, text: str) -> str:
        """What of the whole text has not been shown; nothing where other text than this was."""
        shown = "".join(self._shown)
        return text[len(shown) :] if text.startswith(shown) else ""
