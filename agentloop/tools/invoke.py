"""One call: arguments checked, run, its outcome as text; long ones spilled."""

import asyncio
import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from agentloop._plumbing.aio import (
    DeadlineError,
    SelfCancelledError,
    WorkThread,
    in_thread,
    in_turn,
    is_ctrl_c,
    within,
)
from agentloop._plumbing.callables import is_async
from agentloop._plumbing.private_files import make_ignored_folder, new_whole_file, refuse_link, sync_folder
from agentloop._plumbing.strict_json import strict_value
from agentloop._plumbing.to_text import as_text, error_text, rest_failed
from agentloop.approvals import Pending
from agentloop.errors import RetryTool
from agentloop.media import File, Image
from agentloop.messages import Json

Status: TypeAlias = Literal["ok", "error", "timeout"]
BoundArguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]

T = TypeVar("T")

_MOST_YIELDED = 10_000


class ArgumentsError(Exception):
    """The arguments do not fit the tool; the text says in one line which and why."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the model is told of a call, and how it went; `media` are parts with images and files.

    With `pending` it is nothing yet: calls of a sub-agent wait for a yes.
    """

    text: str
    status: Status
    media: tuple[Json, ...] = ()
    pending: tuple[Pending, ...] = ()


class RunThread:
    """The one thread of a run, for the tools that ask for it; it begins with the first of their calls.

    These run one after the other. One that nobody waits for any more before its turn comes is not begun, nor
    one that `refusal` then has an answer for.
    """

    def __init__(self, refusal: Callable[[], ToolAnswer | None] = lambda: None) -> None:
        self.refusal = refusal
        self.turn = asyncio.Lock()
        self._thread: WorkThread | None = None

    async def call(self, work: Callable[[], T | None]) -> T | None:
        """Call it on the thread; what it gives."""
        self._thread = self._thread or WorkThread("agentloop-run")
        is_awaited = True
        try:
            return await in_turn(self._thread, lambda: work() if is_awaited else None)
        finally:
            is_awaited = False

    def stop(self) -> None:
        """End the thread, once what is under way there has ended; returns at once."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None


async def answer_call(
    name: str,
    function: Callable[..., Any],
    bind: Callable[[Json], BoundArguments],
    text: str,
    *,
    seconds: float,
    thread: RunThread | None = None,
) -> ToolAnswer:
    """Call the function with the arguments in `text`, on that thread if there is one; say what came of it.

    `bind` checks and converts them. The `seconds` begin with the call's turn on the thread. Raises nothing
    but `asyncio.CancelledError`, and that only when the caller is cancelled, and the `KeyboardInterrupt` of
    a Ctrl-C, for which one on the main thread is taken; one of a tool in its own thread is an answer.
    """
    try:
        args, kwargs = bind(object_of(text))
    except ArgumentsError as error:
        return ToolAnswer(f"{name} was not called, since its arguments do not fit: {error}", "error")
    except Exception as error:  # noqa: BLE001 — a validator of the tool's author may raise anything
        return _failure(name, error)
    work = _Work(name, functools.partial(function, *args, **kwargs), thread)
    try:
        async with thread.turn if thread else contextlib.nullcontext():
            if thread and (refused := thread.refusal()):
                return refused
            return await within(work.do(), seconds=seconds)
    except asyncio.CancelledError:
        if work.answer:  # it ended in spite of the cancelling: what it did is done
            return work.answer
        raise
    except DeadlineError:
        return ToolAnswer(work.why_late(seconds), "timeout")
    except SelfCancelledError:
        return ToolAnswer(f"{name} failed: it was cancelled before it had a result", "error")


@dataclass(slots=True)
class _Work:
    """One call under way, on that thread if there is one; `answer` is what came of it."""

    name: str
    call: Callable[[], Any]
    thread: RunThread | None
    has_begun: bool = False
    answer: ToolAnswer | None = None

    async def do(self) -> ToolAnswer:
        try:
            self.answer = await self._answer()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a tool may raise anything, SystemExit too: all are answers
            if is_ctrl_c(error):
                raise
            self.answer = _failure(self.name, error)
        return self.answer

    def why_late(self, seconds: float) -> str:
        if self.thread and not self.has_begun:
            return f"{self.name} was not run: a call before it still holds the thread of both"
        return (
            f"{self.name} timed out after {seconds:g} s; what it did until then stays done: look at that "
            "first, then ask for less at a time"
        )

    async def _answer(self) -> ToolAnswer:
        if self.thread:
            value = await self.thread.call(self._in_thread)
        else:
            value = self.call() if is_async(self.call) else await in_thread(self._in_thread)
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, AsyncIterator):
            value = await _collect(value)
        if isinstance(value, ToolAnswer):
            return value
        return _answer_of(value) if isinstance(value, str) else await in_thread(_answer_of, value)

    def _in_thread(self) -> ToolAnswer | Awaitable[Any] | AsyncIterator[Any]:
        """Runs in the tool's own thread, the making of the text included: both may take long."""
        self.has_begun = True
        try:
            value = self.call()
            later = inspect.isawaitable(value) or isinstance(value, AsyncIterator)
            return value if later else _answer_of(value)
        except BaseException as error:  # noqa: BLE001 — nothing raised in a tool's thread may reach the event loop
            return _failure(self.name, error)


def _answer_of(value: object) -> ToolAnswer:
    """What the tool gave as a text, and what it has beside."""
    if isinstance(value, Image | File | list | tuple) and (answer := _with_media(value)):
        return answer
    return ToolAnswer(as_text(_start_values(value) if isinstance(value, Generator) else value), "ok")


def _with_media(value: object) -> ToolAnswer | None:
    """What the tool gave as a text and what it has beside; None where there is no image and no file in it."""
    given = value if isinstance(value, list | tuple) else [value]
    if not any(isinstance(each, Image | File) for each in given):
        return None
    parts: list[Json] = []
    for each in given:
        parts += each.parts if isinstance(each, Image | File) else [{"type": "text", "text": as_text(each)}]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return ToolAnswer("\n".join(texts), "ok", tuple(part for part in parts if part["type"] != "text"))


def _start_values(values: Generator[Any, Any, Any]) -> Iterator[Any]:
    """The same values; raises what is raised in place of the first: then nothing is a result."""
    return itertools.chain(list(itertools.islice(values, 1)), values)


def _failure(name: str, error: BaseException) -> ToolAnswer:
    if isinstance(error, RetryTool):
        return ToolAnswer(f"Call {name} again, differently: {error}".rstrip(": "), "error")
    return ToolAnswer(f"{name} failed: {error_text(error)}", "error")


async def _collect(values: AsyncIterator[Any]) -> list[Any]:
    """What it yields; where it raises midway, what came before is a result, with a note, as of a list."""
    collected: list[Any] = []
    try:
        async for value in values:
            if len(collected) >= _MOST_YIELDED:
                collected.append("[more values left out]")
                break
            collected.append(value)
    except Exception as error:  # a tool may raise anything
        if not collected:
            raise
        collected.append(rest_failed(error))
    finally:
        if isinstance(values, AsyncGenerator):
            await values.aclose()
    return collected


def object_of(text: str) -> Json:
    """The JSON object that the text is; nothing is an empty one.

    Raises:
        ArgumentsError: it is none.
    """
    if not text.strip():
        return {}
    try:
        value = strict_value(text)
    except ValueError as error:
        raise ArgumentsError(f"they are not valid JSON ({error}); give one JSON object") from None
    if not isinstance(value, dict):
        raise ArgumentsError(f"they are {_kind(value)}; give one JSON object")
    return value


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "a JSON list"
        case str():
            return "a JSON string"
        case _:
            return "a JSON number or truth value"


def spill(folder: Path, name: str, text: str) -> Path:
    """Write the whole text to a new file `result_<name>.txt` in the folder, synced, and say where it is.

    The first 200 characters of the name are used; those other than A-Z a-z 0-9 _ - become `_`. No file is
    ever overwritten and no link followed: where the name is taken, the file is called
    `result_<name>-2.txt` and so on. The file is made with mode 0600, a folder that is not there with 0700.
    Lone surrogates, which UTF-8 cannot hold, are written as `\\udXXX`.

    Raises:
        OSError: it could not be written, or the folder is a symbolic link; nothing is left behind.
    """
    make_ignored_folder(folder)
    refuse_link(folder)
    stem = "result_" + (re.sub(r"[^A-Za-z0-9_-]", "_", name)[:200] or "unnamed")
    path, number = folder / f"{stem}.txt", 1
    while True:
        try:
            with new_whole_file(path) as file:
                file.write(text.encode("utf-8", "backslashreplace"))
        except FileExistsError:
            number += 1
            path = folder / f"{stem}-{number}.txt"
        else:
            sync_folder(folder)
            return path
