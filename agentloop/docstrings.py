"""What a function's docstring says of it and of its parameters, in Google, NumPy or Sphinx style.

The one door to docstring-parser.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docstring_parser
from docstring_parser import DocstringStyle

from agentloop._plumbing.callables import inner_function, without_partials

_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """The summary and the long description as one text, and a line for each parameter described."""

    description: str
    parameters: Mapping[str, str]


def documentation_of(function: Callable[..., Any]) -> Documentation:
    """Read the docstring of a function, or of a callable object's `__call__` or else its class."""
    text = inner_function(function).__doc__
    called = without_partials(function)
    if not text and not inspect.isroutine(called):
        text = type(called).__doc__
    read = max(_parsed(inspect.cleandoc(text or "")), key=_fitness)
    lines = {each.arg_name: " ".join((each.description or "").split()) for each in read.params}
    return Documentation(description=(read.description or "").strip(), parameters=lines)


def _parsed(text: str) -> Iterator[docstring_parser.Docstring]:
    """The text as each style reads it, and last as nothing but a description."""
    for style in _STYLES:
        # docstring-parser answers text that it cannot read with ParseError, IndexError and others
        with contextlib.suppress(Exception):
            yield docstring_parser.parse(text, style)
    plain = docstring_parser.Docstring()
    plain.short_description = text
    yield plain


def _fitness(read: docstring_parser.Docstring) -> tuple[int, int]:
    """How much a style found; the parser's own choice also counts what no style means, like `:note`."""
    return len(read.params), bool(read.returns) + len(read.raises)
