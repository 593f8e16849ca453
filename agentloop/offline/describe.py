"""What a file says of itself, in one line taken from its beginning; nothing is made up."""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

LONGEST = 120
_MOST_NAMES = 6

Finder = Callable[[str], str | None]


def described(path: str, lines: Sequence[str]) -> str:
    """The first that the file has of: its own description, a leading comment, its names, a line."""
    text = "\n".join(line.rstrip() for line in lines).lstrip("\ufeff")
    if not text.strip():
        return "is empty"
    for finder in (*_FINDERS.get(PurePosixPath(path).suffix.lower(), (_comment, _definitions)), _first_line):
        if what := finder(text):
            return what
    return "says nothing of itself"


def first_sentence(text: str, longest: int = LONGEST) -> str:
    """The first sentence of the first paragraph on one line, cut between words at `longest` characters."""
    paragraph = " ".join(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0].split())
    found = _SENTENCE.match(paragraph)
    return shortened(found.group() if found else paragraph, longest)


def shortened(text: str, longest: int) -> str:
    """The text itself, or its beginning up to `longest` characters, cut between words and marked with …."""
    if len(text) <= longest:
        return text
    cut = text[: max(1, longest - 1)]
    return (cut.rpartition(" ")[0] or cut).rstrip(" ,;:.-") + "…"


_SENTENCE = re.compile(r".+?(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\betc)[.!?](?=\s|$)", re.IGNORECASE)
_DOCSTRING = re.compile(
    r"\A(?:[ \t]*(?:\#[^\n]*)?\n)*[rRuU]{0,2}(\"\"\"|'''|\"|')(?P<text>.*?)(?:(?<!\\)\1|\Z)", re.DOTALL
)
_COMMENT = re.compile(r"[ \t]*(?:\#(?!include|define|if|undef|pragma|!\[)|//|/\*|\*|--|;|%|<!--)(?P<text>.*)")
_PREPROCESSOR = re.compile(r"#(?:include|define|if|undef|pragma)")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_MARKS = re.compile(r"^[\s/*#;%!<>=~-]+|[\s/*#=~>-]+$")
_NO_DESCRIPTION = re.compile(
    r"copyright|\(c\)|licen[sc]e|all rights reserved|permission is hereby|redistribution|warrant|\bauthor"
    r"|contact:|spdx|coding[:=]|-\*-|\bvim?:|pylint|ruff:|noqa|mypy:|eslint|^!|@ts-",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"^[ \t]{0,3}#{1,6}[ \t]+(?P<text>.+?)[ \t#]*$|^(?P<under>\S.*)\n[=-]{3,}[ \t]*$", re.MULTILINE
)
_DEFINITION = re.compile(
    r"^(?:(?:export|default|pub|public|private|static|async|abstract|final)[ \t]+)*"
    r"(?:def|class|function|fn|func|struct|enum|trait|interface|type|module)[ \t]+(\w+)",
    re.MULTILINE,
)
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_ALL = re.compile(r"^__all__\s*(?::[^=\n]+)?\+?=\s*[\[(]([^\])]*)", re.MULTILINE)
_SECTION = re.compile(r"^\[+([^\[\]\n]+)\]+[ \t]*(?:#.*)?$", re.MULTILINE)
_KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*[:=]", re.MULTILINE)
_FIELD = re.compile(r'^(?:\{?[ \t]{1,4}|\{)"([^"\n]+)"[ \t]*:', re.MULTILINE)
_TITLE = re.compile(r"<title[^>]*>(?P<text>.*?)</title>", re.IGNORECASE | re.DOTALL)


def _docstring(text: str) -> str | None:
    found = _DOCSTRING.match(text)
    return first_sentence(found["text"]) or None if found else None


def _comment(text: str) -> str | None:
    """The first sentence of the leading comment that is no licence, author or setting of an editor."""
    lines: list[str] = []
    for line in text.split("\n"):
        found = _COMMENT.match(line)
        if found:
            lines.append(_MARKS.sub("", found["text"]))
        elif line.strip() and not _PREPROCESSOR.match(line):
            break
        else:
            lines.append("")
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    telling = (each for each in paragraphs if each.strip() and not _NO_DESCRIPTION.search(each))
    return next((first_sentence(each) for each in telling), None)


def _heading(text: str) -> str | None:
    found = _HEADING.search(_FRONT_MATTER.sub("", text))
    return first_sentence(found["text"] or found["under"]) if found else None


def _title(text: str) -> str | None:
    found = _TITLE.search(text)
    return first_sentence(found["text"]) or None if found else None


def _columns(text: str) -> str | None:
    return _named("has the columns", re.split(r"[,;\t]", text.strip().split("\n")[0]))


def _definitions(text: str) -> str | None:
    return _named("defines", _DEFINITION.findall(text))


def _exports(text: str) -> str | None:
    found = _ALL.search(text)
    return _named("exports", re.findall(r"['\"](\w+)['\"]", found[1])) if found else None


def _assignments(text: str) -> str | None:
    return _named("sets", _ASSIGNMENT.findall(text))


def _sections(text: str) -> str | None:
    return _named("has the sections", _SECTION.findall(text))


def _keys(text: str) -> str | None:
    return _named("sets", _KEY.findall(text))


def _fields(text: str) -> str | None:
    return _named("has the fields", _FIELD.findall(text))


def _first_line(text: str) -> str | None:
    return first_sentence(text) or None


def _named(lead: str, names: Sequence[str]) -> str | None:
    """The names after the lead: public ones first, and how many more there are."""
    found = dict.fromkeys(name.strip(" \"'") for name in names if name.strip(" \"'"))
    ordered = sorted(found, key=lambda name: name.startswith("_"))
    more = len(ordered) - _MOST_NAMES
    shown = ", ".join(ordered[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return shortened(f"{lead} {shown}", LONGEST) if ordered else None


_PYTHON = (_docstring, _comment, _definitions, _exports, _assignments)
_FINDERS: dict[str, tuple[Finder, ...]] = {
    ".py": _PYTHON,
    ".pyi": _PYTHON,
    ".md": (_heading,),
    ".markdown": (_heading,),
    ".rst": (_heading,),
    ".txt": (_first_line,),
    ".html": (_title, _comment),
    ".htm": (_title, _comment),
    ".json": (_fields,),
    ".csv": (_columns,),
    ".toml": (_comment, _sections, _keys),
    ".ini": (_comment, _sections, _keys),
    ".cfg": (_comment, _sections, _keys),
    ".yaml": (_comment, _keys),
    ".yml": (_comment, _keys),
}
