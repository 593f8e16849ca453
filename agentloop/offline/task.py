"""What files a sentence asks to be read: "Read every Python file in this folder and say what each does."."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

_KINDS: dict[str, tuple[str, ...]] = {
    "python": ("py",),
    "markdown": ("md",),
    "text": ("txt",),
    "yaml": ("yaml", "yml"),
    "javascript": ("js",),
    "typescript": ("ts",),
    "rust": ("rs",),
    "ruby": ("rb",),
    "shell": ("sh",),
    "bash": ("sh",),
    "perl": ("pl",),
    "kotlin": ("kt",),
    "latex": ("tex",),
    "restructuredtext": ("rst",),
    "c++": ("cpp",),
    "c#": ("cs",),
}
_SUFFIXES = """c cfg cpp cs css csv go h html ini java js json log lua md php py rb rs rst sh sql swift tex
toml ts txt xml yml"""
_KINDS |= {name: (name,) for name in _SUFFIXES.split()}
_NOUN = re.compile(r"(?:file|module|script|source|document|doc|note|page|program)s?", re.IGNORECASE)
_MANY = re.compile(
    r"\b(?:every|each|all|any)\b|\b(?:files|modules|scripts|sources|documents|docs|notes)\b", re.I
)
_EACH = re.compile(r"\b(?:every|each|all|any)\b", re.IGNORECASE)
_READS = re.compile(
    r"\b(?:read|go(?:ing)? through|look (?:at|into|through)|open|scan|review|summari[sz]e|describe"
    r"|explain)\b",
    re.I,
)
_TELLS = re.compile(r"\b(?:say|tell|report|what)\b", re.IGNORECASE)
_GLOB = re.compile(r"(?<![\w*?/.-])(?:[\w.-]+/|\*\*/)*[\w?-]*\*[\w*?.-]*(?:\{[\w,]+\})?\w*")
_CHOICE = re.compile(r"([^{]*)(?:\{([^}]*)\})?(.*)")
_SUFFIX = re.compile(r"(?<![\w*/)\]-])\.([A-Za-z]\w{0,7})\b(?!\.?/)")
_FOLDERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:in|under|of|inside|below)\s+(?:the\s+)?(?:folder|directory)\s+[`\"']?([\w./-]*\w)",
        r"([\w./-]*\w)/?[`\"']?\s+(?:folder|directory)\b",
        r"\b(?:in|under|of|inside|below)\s+[`\"']?([\w.-]+(?:/[\w.-]+)*)/",
    )
)
_OTHER_WORDS = """this the that current same whole entire each every my your our working a one its and or for
in is of here"""
_PATH = re.compile(r"(?<![\w/*.:-])(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,7}\b")
_BETWEEN = "and or plus source code test each every all the"
_LONGEST_TASK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Files to read: those of the patterns, and those named."""

    patterns: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def takes_in(self, path: str) -> bool:
        """Whether a file is meant, by its name."""
        name = path.rpartition("/")[2]
        return path in self.paths or any(fnmatch(name, each.rpartition("/")[2]) for each in self.patterns)


def file_task(text: str) -> FileTask | None:
    """The files of a kind that the text asks to have read or told about; None where it asks for none."""
    text = text[:_LONGEST_TASK]
    globs = list(_globs(text))
    kinds = list(dict.fromkeys((*_suffixes(text), *_kinds(text))))
    words = _words(text)
    many = bool(globs or _MANY.search(text)) and bool(globs or kinds or any(map(_NOUN.fullmatch, words)))
    if not many or not (_READS.search(text) or (_TELLS.search(text) and _EACH.search(text))):
        return None
    folder = _folder(text)
    if not kinds and not globs:
        kinds = ["py"] if re.search(r"\bmodules?\b", text, re.IGNORECASE) else ["*"]
    patterns = (f"{folder}**/*.{kind}".replace("*.*", "*") for kind in ([] if globs else kinds))
    return FileTask(patterns=tuple(dict.fromkeys((*globs, *patterns))))


def named_files(text: str) -> FileTask | None:
    """The files that the text names and asks to have read or told about; None where it names none."""
    text = text[:_LONGEST_TASK]
    paths = tuple(dict.fromkeys(_PATH.findall(text)))
    return FileTask(paths=paths) if paths and (_READS.search(text) or _TELLS.search(text)) else None


def _globs(text: str) -> Iterator[str]:
    for glob in (found.rstrip(".") for found in _GLOB.findall(text)):
        if "." in glob or "/" in glob:
            head, choice, tail = _CHOICE.match(glob).groups()  # type: ignore[union-attr]
            for each in (choice or "").split(","):
                yield f"{'' if '/' in glob else '**/'}{head}{each}{tail}"


def _words(text: str) -> list[str]:
    return [word.strip(".,;:!?`\"'()") for word in text.split()]


def _suffixes(text: str) -> Iterator[str]:
    return (suffix.lower() for suffix in _SUFFIX.findall(text))


def _kinds(text: str) -> Iterator[str]:
    """The kinds right before a word for files, with nothing between but words such as "and" or "source"."""
    pending: list[str] = []
    for word in (word.lower() for word in _words(text)):
        if word in _KINDS:
            pending += _KINDS[word]
        elif _NOUN.fullmatch(word):
            yield from pending
            pending = []
        elif word not in _BETWEEN.split():
            pending = []


def _folder(text: str) -> str:
    for pattern in _FOLDERS:
        for found in pattern.findall(text):
            name = found.strip("/")
            if name.lower() not in _OTHER_WORDS.split() and name != "." and ".." not in name.split("/"):
                return f"{name}/"
    return ""
