"""The content of a message in wire form."""

from collections.abc import Mapping


def text_of(content: object) -> str:
    """The text of a message's content, that of its parts one a line.

    Example:
        >>> text_of([{"type": "text", "text": "Hello"}, {"type": "refusal", "refusal": "No."}])
        'Hello\\nNo.'
    """
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    texts = (part.get("text") or part.get("refusal") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))
