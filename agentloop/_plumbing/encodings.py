"""In which Unicode encoding a file is written, by the mark that it begins with."""

import codecs

_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def encoding_of(data: bytes) -> str:
    """UTF-16 where the bytes begin with its mark, as Windows writes it, else UTF-8.

    Example:
        >>> encoding_of("hello".encode("utf-16")), encoding_of(b"hello")
        ('utf-16-le', 'utf-8')
    """
    return next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")


def decoded(data: bytes) -> str:
    """The text without its mark; what is none in its encoding is shown as U+FFFD."""
    return data.decode(encoding_of(data), "replace").removeprefix("\ufeff")
