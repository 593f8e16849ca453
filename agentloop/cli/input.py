"""The prompt of a call: its own words, and what standard input adds to them.

Standard input is read in a thread, so that a silent pipe keeps no signal waiting.
"""

import os
import queue
import re
import shlex
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

from agentloop._plumbing.files import read_path
from agentloop.cli.process import interrupt, on_signals
from agentloop.errors import UsageError
from agentloop.media import File, Image

_PIECE = 65_536
FIRST_WORD_SECONDS = 2.0
"""How long a pipe beside a prompt may take to say its first word."""
MOST_MEGABYTES = 10
_MOST_BYTES = MOST_MEGABYTES * 1_000_000
_LOOK_UP_SECONDS = 0.25
"""How late a signal is answered at most while nothing comes."""
_SILENCE = (
    f"standard input said nothing for {FIRST_WORD_SECONDS:g} s and was left alone "
    "(< /dev/null avoids the wait)"
)
_MISREAD = "the prompt is not in UTF-8: � stands for each byte that cannot be read"
_LABEL = "standard_input"
_SENTENCE_ENDS = ".,;:!?)"
_DROPPED = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
_CLOSING = re.compile(rf"<(?=/?\s*{_LABEL})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the user asks, None to go on with what is pending; `notices` are what the user should know."""

    text: str | None
    notices: tuple[str, ...] = ()
    attached: tuple[File, ...] = ()

    @property
    def whole(self) -> str | list[str | Image | File] | None:
        """The prompt with what is attached to it."""
        return self.text if self.text is None or not self.attached else [self.text, *self.attached]


def prompt_for(
    option: str | None, words: tuple[str, ...], *, continues: bool, call: str = "agentloop -p"
) -> Prompt:
    """Put the prompt together; `continues` says that the call names a session that may have work pending.

    `call` is what a prompt is written behind.

    Raises:
        UsageError: there is no prompt, or more than one.
    """
    given = one_prompt(option, words)
    if option == "-":
        return _read_prompt()
    if given is None:
        return _from_input(call, continues=continues)
    is_misread = "\ufffd" in given and "\ufffd" not in (option or words[0])
    notices = (_MISREAD,) if is_misread else ()
    if is_terminal():
        return Prompt(text=given, notices=notices)
    piped, more = _piped(FIRST_WORD_SECONDS)
    return Prompt(text=append_piped(given, piped), notices=(*notices, *more))


def _read_prompt() -> Prompt:
    if is_terminal():
        raise UsageError("-p - reads a pipe or a file, and standard input is a terminal: pipe the prompt in")
    text, notices = _piped()
    if not text.strip():
        raise UsageError("the prompt is empty: standard input ended without one")
    return Prompt(text=text, notices=notices)


def _from_input(call: str, *, continues: bool) -> Prompt:
    first_word_seconds = FIRST_WORD_SECONDS if continues else None
    text, notices = ("", ()) if is_terminal() else _piped(first_word_seconds)
    if text.strip() or continues:
        return Prompt(text=text if text.strip() else None, notices=notices)
    raise UsageError(f'the prompt is empty: say what to do, e.g. {call} "…", or pipe it in')


def dropped_files(text: str) -> tuple[File, ...]:
    """The images and PDFs whose absolute paths stand in the text, as terminals write what is dropped."""
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed, as in any text
        words = text.split()
    found = []
    for word in dict.fromkeys(word.removeprefix("file://").rstrip(_SENTENCE_ENDS) for word in words):
        if word.startswith(("/", "~")) and word.lower().endswith(_DROPPED):
            with suppress(UsageError):  # no such file or home: a word like any other
                found.append(File(path=read_path(word)))
    return tuple(found)


def one_prompt(option: str | None, words: tuple[str, ...]) -> str | None:
    """The one prompt of the call itself, None where it has none.

    Raises:
        UsageError: it has several, or an empty one.
    """
    if len(words) > 1:
        raise UsageError(f"{words[1]!r} is too many: put the prompt in quotes; --help lists the commands")
    if option is not None and words:
        raise UsageError(f"two prompts, -p and {words[0]!r}: give one")
    given = option if option is not None else (words[0] if words else None)
    given = None if given is None else decode_typed(given)
    if given is not None and not given.strip():
        raise UsageError("the prompt is empty: say what to do")
    return given


def decode_typed(text: str) -> str:
    """A text of the command line as UTF-8, whatever the locale; what is none becomes U+FFFD.

    Paths are to stay as Python has them: it finds them by that.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def append_piped(prompt: str, piped: str) -> str:
    """The prompt, and what was piped beside it in a labelled block that it cannot close itself."""
    if not piped.strip():
        return prompt
    body = _CLOSING.sub("&lt;", piped.rstrip("\n"))
    return f"{prompt}\n\n<{_LABEL}>\n{body}\n</{_LABEL}>"


def is_terminal() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and os.isatty(0)


def read_bytes() -> bytes:
    """Everything up to the end of standard input, however long that takes; a signal ends the wait.

    Raises:
        UsageError: it holds more than `MOST_MEGABYTES`.
        KeyboardInterrupt: a signal came.
    """
    return _Pump().rest(None)


def _piped(first_word_seconds: float | None = None) -> tuple[str, tuple[str, ...]]:
    """What standard input holds as text, nothing where it is silent for so long; and what to say of that."""
    try:
        data = _Pump().rest(first_word_seconds)
    except queue.Empty:
        return "", (_SILENCE,)
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        notice = f"line {line} of standard input is not in UTF-8: � stands for each byte that cannot be read"
        return data.decode("utf-8-sig", "replace"), (notice,)


class _Pump:
    """Reads in a thread of its own, which nobody waits for; an empty piece is the end."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def rest(self, first_word_seconds: float | None) -> bytes:
        """Everything up to the end, if it begins or ends within that time; raises as `read_bytes`.

        Raises:
            queue.Empty: it did neither.
        """
        data = bytearray()
        with on_signals(interrupt):
            piece = self._pieces.get(timeout=first_word_seconds) if first_word_seconds else self._next()
            while piece:
                data += piece
                piece = self._next()
        if len(data) > _MOST_BYTES:
            raise UsageError(f"standard input holds more than {MOST_MEGABYTES} MB: name a file instead")
        return bytes(data)

    def _next(self) -> bytes:
        """A signal that comes just before a wait does not end that wait, so none is for ever."""
        while True:
            with suppress(queue.Empty):
                return self._pieces.get(timeout=_LOOK_UP_SECONDS)

    def _read(self) -> None:
        room = _MOST_BYTES
        try:
            while room >= 0 and (piece := os.read(0, _PIECE)):
                room -= len(piece)
                self._pieces.put(piece)
        except OSError:
            pass  # what cannot be read has ended
        finally:
            self._pieces.put(b"")
