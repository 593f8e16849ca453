"""A task board: what is to be done, in which order, and who does it; shared by agents and processes.

Each change is decided by a pure function of all tasks (`_claimed`, `_completed`, …) and written by the place
that holds them, which lets nothing come between: a folder of files, or a log of a session store.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from time import time
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from agentloop._plumbing.aio import in_thread, to_its_end
from agentloop._plumbing.checks import MOST_COUNT, checked_name, from_to, several, shown, whole
from agentloop._plumbing.files import beginning_of
from agentloop._plumbing.private_files import (
    make_private_folder,
    new_whole_file,
    open_lock,
    refuse_link,
    refused,
    sync_folder,
    try_lock,
)
from agentloop._plumbing.processes import Process, this_process
from agentloop._plumbing.strict_json import encodes, strict_value
from agentloop._plumbing.to_text import first_line
from agentloop._plumbing.truncate import beginning
from agentloop.codec import converters_of
from agentloop.context import results_of
from agentloop.errors import DamagedError, RetryTool, StoreError, UsageError
from agentloop.messages import SeenMessage
from agentloop.prompts import (
    TASK_CLAIMED,
    TASK_ENDED,
    TASK_LIST,
    TASK_NONE_FREE,
    TODO_EMPTY,
    first_given,
)
from agentloop.sessions import ValueLog
from agentloop.stores.base import LAST_MOMENT, SessionStore, branch_id
from agentloop.tools import RunContext, Tool, ToolSet, tool, tools_of
from agentloop.toolsets.todo import MARKS

T = TypeVar("T")
TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed"]

MOST_TASKS = 1_000
MOST_SUBJECT_CHARS = 300
MOST_TEXT_CHARS = 10_000
MOST_FILE_BYTES = 160 * 1024
BUSY_SECONDS = 10.0
"""So long a change waits for another process that has the folder."""
PAUSE_SECONDS = 0.01

TASK_CLAIM, TASK_COMPLETE, TASK_GIVE_BACK = "task_claim", "task_complete", "task_give_back"
_SOURCE = "agentloop.task_board"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of a board: free once all that it is `blocked_by` is completed, then somebody's, then done.

    `owner` is who claimed it, `since` when, in seconds since the epoch, and `process` in which process.
    `result` is what came of it.

    Raises:
        UsageError: one of these is not what it is to be.
    """

    id: int
    subject: str
    description: str = ""
    status: TaskStatus = "pending"
    owner: str | None = None
    blocked_by: tuple[int, ...] = ()
    result: str = ""
    since: float | None = None
    process: Process | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        whole("id of a task", self.id, 1, most=MOST_TASKS)
        _line("subject", self.subject, MOST_SUBJECT_CHARS)
        for name in ("description", "result"):
            checked_text(name, getattr(self, name))
        if self.status not in get_args(TaskStatus):
            raise UsageError(f"status must be pending, in_progress or completed, not {shown(self.status)}")
        _ids(self.blocked_by)
        if (self.owner is None) != (self.status == "pending"):
            raise UsageError(f"a task that is {self.status} must have {'no' if self.owner else 'an'} owner")
        if self.owner is not None:
            checked_name("owner", self.owner)
        if self.since is not None:
            from_to("since of a task", self.since, 0, LAST_MOMENT)
        if self.process is not None:
            whole("pid of a task", self.process.pid, 0, most=MOST_COUNT)

    @property
    def is_left(self) -> bool:
        """Whether it is known that the process that claimed it has ended, with the task in progress."""
        return self.status == "in_progress" and self.process is not None and self.process.is_gone()


_WRITE, _READ = converters_of(Task)
Tasks: TypeAlias = Mapping[int, Task]
Change: TypeAlias = Callable[[Tasks], Task | None]


@dataclass(frozen=True)
class TaskBoard(ToolSet):
    """Tasks that agents share, of which each is claimed by one alone; among an agent's `tools`, its tools.

    `place` is a folder or a store of sessions, `owner` who looks at it. In a folder each task is a file,
    `task_1.json`; in a store the board is a log. `name` tells boards of one place apart, `task` being the
    first part of these names. Any number of processes may share a board. In a store they may be on many
    machines.

    A change is made whole or not at all, whatever is killed. A task that was claimed stays its owner's until
    it is completed or given back: by the owner (`give_back`), by whoever speaks for the owner
    (`board.of("coder").give_back(3)`), or, where the process that claimed it has ended on this machine, by
    `give_back_left`. An owner that claims again is given the task that it has. So give each agent a name of
    its own: it is refused where another process that may live has claimed one under it.

    Example:
        >>> import asyncio
        >>> from agentloop import TaskBoard
        >>> from tempfile import TemporaryDirectory
        >>> async def main() -> None:
        ...     with TemporaryDirectory() as folder:
        ...         board = TaskBoard(folder, owner="ada")
        ...         pot = await board.add("Warm the pot")
        ...         await board.add("Pour", blocked_by=[pot.id])
        ...         print((await board.claim()).subject, await board.of("bob").claim())
        ...         await board.complete(pot.id)
        ...         print((await board.of("bob").claim()).subject)
        >>> asyncio.run(main())
        Warm the pot None
        Pour

    Raises:
        UsageError: the place is none, or the owner or the name is no name.
    """

    place: Path | str | SessionStore
    owner: str = field(kw_only=True)
    name: str = field(default="task", kw_only=True)
    _held: "_Folder | _Log" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_name("owner", self.owner)
        checked_name("name", self.name)
        object.__setattr__(self, "_held", _place(self.place, self.name))

    def of(self, owner: str) -> "TaskBoard":
        """The same board for another owner.

        Raises:
            UsageError: the owner is no name.
        """
        return replace(self, owner=owner)

    async def tasks(self) -> Sequence[Task]:
        """All tasks, oldest first.

        Raises:
            DamagedError: a task cannot be read as one; the text names its file.
            StoreError: the place cannot be read.
        """
        return tuple((await self._held.read()).values())

    async def add(self, subject: str, *, description: str = "", blocked_by: Iterable[int] = ()) -> Task:
        """Put a task on the board, which waits for those that it is blocked by; returns it with its id.

        Raises:
            UsageError: the subject is empty or long, a blocking task is not there, or the board is full.
            StoreError: it could not be written.
        """
        by = _ids(blocked_by)
        return await self._change(lambda tasks: _added(tasks, subject, description, by))

    async def block(self, task_id: int, blocked_by: Iterable[int]) -> Task:
        """Let a task that nobody has begun wait for these too.

        Raises:
            UsageError: a task is not there, it was begun, or they would wait for each other in a circle.
            StoreError: it could not be written.
        """
        by = _ids(blocked_by)
        return await self._change(lambda tasks: _blocked(_task_of(tasks, task_id), by))

    async def claim(self, task_id: int | None = None) -> Task | None:
        """Take this task, or the oldest that is free; None where none is. One that the owner has comes again.

        Cancelled meanwhile, it may be claimed: claim again to hear of it.

        Raises:
            UsageError: the task is not there, not free, or the owner has another; or another process that
                lives has claimed one under this name.
            StoreError: it could not be written.
        """
        return await self._held.change(lambda tasks: _claimed(tasks, self.owner, task_id, self._process()))

    async def complete(self, task_id: int, result: str = "") -> Task:
        """Say that the owner's task is done, and what came of it. Done is done: said again, nothing changes.

        Raises:
            UsageError: the task is not there, or not the owner's.
            StoreError: it could not be written.
        """
        return await self._change(lambda tasks: _completed(tasks, task_id, self.owner, result))

    async def give_back(self, task_id: int) -> Task:
        """Let somebody else claim the owner's task; what is free stays so.

        Raises:
            UsageError: the task is not there, or not the owner's.
            StoreError: it could not be written.
        """
        return await self._change(lambda tasks: _given_back(tasks, task_id, self.owner))

    async def give_back_left(self) -> Sequence[Task]:
        """Give back what is in progress whose process has ended on this machine; returns these tasks.

        What a process of another machine claimed stays: nobody here knows how it is. See `of`.

        Raises:
            StoreError: the place could not be read or written.
        """
        left = [task for task in await self.tasks() if task.is_left]
        back = [await self._held.change(partial(_left, task)) for task in left]
        return tuple(task for task in back if task is not None)

    def _process(self) -> Process | None:
        """The process that a claim is of."""
        return this_process()

    async def _change(self, change: Change) -> Task:
        task = await self._held.change(change)
        assert task is not None, "only a claim and a task that is no more left give none"
        return task

    @property
    def tools(self) -> Sequence[Tool]:
        """All tools of the board."""
        return tools_of(self._list, self._add, self._block, self._claim, self._complete, self._give_back)

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        """The task that was claimed last, where it is out of sight and neither done nor given back since."""
        names = (TASK_CLAIM, TASK_COMPLETE, TASK_GIVE_BACK)
        results = {id(result) for name in names for _, result in results_of(name, said)}
        for seen in reversed(said):
            text = seen.message.text
            if id(seen) in results and text.startswith(_LABELS):
                is_out_of_sight = text.startswith(_CLAIMED) and not seen.in_sight
                return first_given(text) if is_out_of_sight else ""
        return ""

    @tool(name="task_list", idempotent=True)
    async def _list(self, context: RunContext[Any]) -> str:
        """Show all tasks of the board: which are free, who has the others, what waits for what."""
        tasks = await self._held.read()
        lines = [_task_line(task, tasks, context.redact) for task in tasks.values()]
        return "\n".join((TASK_LIST, *(lines or [TODO_EMPTY])))

    @tool(name="task_add")
    async def _add(
        self,
        context: RunContext[Any],
        subject: str,
        description: str = "",
        blocked_by: Sequence[int] = (),
    ) -> str:
        """Put a task on the board, for whoever claims it.

        One that is blocked by others is free once these are completed.

        Args:
            subject: What is to be done, in one line.
            description: All that who does it must know.
            blocked_by: Tasks that come first.
        """
        task = await as_retry(self.add(subject, description=description, blocked_by=blocked_by))
        return _task_line(task, await self._held.read(), context.redact)

    @tool(name="task_block")
    async def _block(self, context: RunContext[Any], task_id: int, blocked_by: Sequence[int]) -> str:
        """Let a task that nobody has begun wait for others.

        Args:
            task_id: The number of the task.
            blocked_by: Tasks that come first.
        """
        task = await as_retry(self.block(task_id, blocked_by))
        return _task_line(task, await self._held.read(), context.redact)

    @tool(name=TASK_CLAIM, idempotent=True, keep=True)
    async def _claim(self, context: RunContext[Any], task_id: int | None = None) -> str:
        """Take a task, so that nobody else does it; you have one at a time.

        Args:
            task_id: The number of the task; without one it is the oldest that is free.
        """
        if task := await as_retry(self.claim(task_id)):
            return claimed_text(task, await self.tasks(), context.redact)
        return f"{TASK_NONE_FREE}\n{await self._list(context)}"

    @tool(name=TASK_COMPLETE, idempotent=True)
    async def _complete(self, task_id: int, result: str = "") -> str:
        """Say that your task is done, and what came of it.

        Args:
            task_id: The number of the task.
            result: What came of it, for those who go on from there.
        """
        task = await as_retry(self.complete(task_id, result))
        return f"{TASK_ENDED.format(id=task.id, how='completed')} {task.subject}"

    @tool(name=TASK_GIVE_BACK)
    async def _give_back(self, task_id: int) -> str:
        """Give your task back, undone, so that somebody else can claim it.

        Args:
            task_id: The number of the task.
        """
        task = await as_retry(self.give_back(task_id))
        return f"{TASK_ENDED.format(id=task.id, how='given back')} {task.subject}"


class MemberBoard(TaskBoard):
    """The board of an owner that works in one process at a time, whichever: its claims are of none."""

    def _process(self) -> None:
        return None


def claimed_text(task: Task, tasks: Iterable[Task], redact: Callable[[str], str]) -> str:
    """A task that was claimed, with what came of those that it waited for, redacted before it is cut."""
    before = [each for each in tasks if each.id in task.blocked_by and each.result]
    room = MOST_TEXT_CHARS // max(1, len(before))
    told = ((f"Task {each.id}, {each.subject}:", beginning(redact(each.result), room)) for each in before)
    results = map(" ".join, told)
    lines = (f"{TASK_CLAIMED.format(id=task.id)} {task.subject}", task.description, *results)
    return "\n".join(line for line in lines if line)


async def as_retry(work: Awaitable[T]) -> T:
    """What the work comes to; what it refuses is said to the model."""
    try:
        return await work
    except UsageError as error:
        raise RetryTool(str(error)) from error


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_TASKS


def _ids(given: Iterable[int]) -> tuple[int, ...]:
    several("blocked_by", given, "a list of ids of tasks")
    ids = tuple(given)
    if not all(map(_is_id, ids)):
        raise UsageError(f"blocked_by must be ids of tasks, such as (1, 2), not {shown(ids)}")
    return tuple(dict.fromkeys(ids))


def _line(what: str, value: str, most: int) -> None:
    checked_text(what, value)
    if not value.strip() or len(value) > most or len(value.splitlines()) > 1:
        raise UsageError(f"{what} must be one line of 1 to {most} characters, not {shown(value)}")


def checked_text(what: str, value: str, least: int = 0) -> str:
    """The text itself.

    Raises:
        UsageError: it is none, long, or blank where it is to say at least that much.
    """
    is_text = isinstance(value, str) and least <= len(value.strip())
    if is_text and len(value) <= MOST_TEXT_CHARS and encodes(value):
        return value
    wanted = f"a text of {least} to {MOST_TEXT_CHARS:,} characters, in Unicode"
    raise UsageError(f"{what} must be {wanted}, not {shown(value)}")


def _task_of(tasks: Tasks, task_id: int) -> Task:
    if _is_id(task_id) and task_id in tasks:
        return tasks[task_id]
    if not isinstance(task_id, int) or isinstance(task_id, bool):
        raise UsageError(f"a task is named by its number, such as 1, not by {shown(task_id)}")
    there = f"there are 1 to {max(tasks)}" if tasks else "the board is empty"
    raise UsageError(f"there is no task {shown(task_id)}: {there}")


def _owned(tasks: Tasks, task_id: int, owner: str) -> Task:
    task = _task_of(tasks, task_id)
    if task.owner == owner:
        return task
    whose = f"it is {task.owner}'s" if task.owner else "claim it first"
    raise UsageError(f"task {task_id} is not {owner}'s: {whose}")


def _added(tasks: Tasks, subject: str, description: str, by: tuple[int, ...]) -> Task:
    if len(tasks) >= MOST_TASKS:
        raise UsageError(f"the board is full: it holds {MOST_TASKS:,} tasks")
    return Task(id=max(tasks, default=0) + 1, subject=subject, description=description, blocked_by=by)


def _blocked(task: Task, by: tuple[int, ...]) -> Task:
    if task.status != "pending":
        raise UsageError(f"task {task.id} is {task.status}: only what nobody has begun can be made to wait")
    return replace(task, blocked_by=tuple(dict.fromkeys((*task.blocked_by, *by))))


def _claimed(tasks: Tasks, owner: str, task_id: int | None, process: Process | None) -> Task | None:
    """The task as the owner's; None where none is free."""
    if (mine := held_by(owner, tasks.values())) is not None:
        if task_id not in (None, mine.id):
            raise UsageError(f"{owner} has task {mine.id} already: complete it or give it back first")
        if process and (other := mine.process) and other != process and not mine.is_left:
            raise UsageError(
                f"{owner} has task {mine.id} in process {other.pid} on {other.host}, which may work on it "
                "still: give each agent a name of its own, or give the task back first"
            )
        return replace(mine, process=process)
    if task_id is None:
        task_id = next((task.id for task in tasks.values() if not waits_for(task, tasks)), None)
        if task_id is None:
            return None
    task = _task_of(tasks, task_id)
    if task.status != "pending":
        raise UsageError(f"task {task.id} is {task.owner}'s, and {task.status}")
    if waiting := waits_for(task, tasks):
        raise UsageError(f"task {task.id} is blocked by {_joined(waiting)}: that comes first")
    return replace(task, status="in_progress", owner=owner, since=time(), process=process)


def held_by(owner: str, tasks: Iterable[Task]) -> Task | None:
    """The task that the owner has; None where it has none."""
    return next((task for task in tasks if task.owner == owner and task.status == "in_progress"), None)


def waits_for(task: Task, tasks: Tasks) -> Sequence[int]:
    """What is to be completed before it; itself where it was begun, so that only what is free has none."""
    if task.status != "pending":
        return (task.id,)
    return [each for each in task.blocked_by if tasks[each].status != "completed"]


def _completed(tasks: Tasks, task_id: int, owner: str, result: str) -> Task:
    task = _owned(tasks, task_id, owner)
    return task if task.status == "completed" else replace(task, status="completed", result=result)


def _given_back(tasks: Tasks, task_id: int, owner: str) -> Task:
    task = _task_of(tasks, task_id)
    if task.status == "pending":
        return task
    if _owned(tasks, task_id, owner).status == "completed":
        raise UsageError(f"task {task_id} is completed: add another one for what is still to be done")
    return _free(task)


def _left(task: Task, tasks: Tasks) -> Task | None:
    """That task given back, where nobody has claimed it anew since."""
    return _free(task) if tasks.get(task.id) == task else None


def _free(task: Task) -> Task:
    return replace(task, status="pending", owner=None, since=None, process=None)


def _fault(tasks: Tasks) -> str:
    """What is wrong with the order of the tasks, in words; empty for nothing."""
    for task in tasks.values():
        if missing := [each for each in task.blocked_by if each not in tasks]:
            return f"task {task.id} is blocked by {_joined(missing)}, and there is no such task"
    try:
        TopologicalSorter({task.id: task.blocked_by for task in tasks.values()}).prepare()
    except CycleError as error:
        return f"tasks would wait for each other in a circle: {' for '.join(map(str, error.args[1][::-1]))}"
    return ""


def _changed(tasks: Tasks, change: Change) -> Task | None:
    """The task that the change makes anew; None where it leaves all as it is.

    Raises:
        UsageError: the change is refused, or the tasks could not all be done then.
    """
    task = change(tasks)
    if task is not None and (fault := _fault({**tasks, task.id: task})):
        raise UsageError(fault)
    return task


def _joined(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _task_line(task: Task, tasks: Tasks, redact: Callable[[str], str]) -> str:
    """The task in one line, its result redacted before it is cut."""
    waiting = waits_for(task, tasks) if task.status == "pending" else ()
    told = (f" · {task.owner}" if task.owner else "", f" · after {_joined(waiting)}" if waiting else "")
    result = beginning(" ".join(redact(task.result).split()), MOST_SUBJECT_CHARS)
    ended = f": {result}" if result else ""
    return f"{task.id} {MARKS[task.status]} {task.subject}{''.join(told)}{ended}"


def _place(place: Any, name: str) -> "_Folder | _Log":
    if isinstance(place, str | Path) and str(place) and "\0" not in str(place):
        if "://" in str(place) or str(place) == "memory:":
            raise UsageError(f"place {shown(str(place))} is a URL: give open_store(URL), or a folder")
        if Path(place).exists() and not Path(place).is_dir():
            raise UsageError(f"place {shown(str(place))} is no folder: name one, or one that is to be made")
        return _Folder(path=Path(place).absolute(), name=name)
    if hasattr(place, "append") and hasattr(place, "read") and not isinstance(place, type | list):
        return _Log(log=ValueLog(place, branch_id(name, "board"), Task, source=_SOURCE))
    raise UsageError(f"place must be a folder or a store of sessions, not {shown(place)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """A file for each task; who changes one has the folder by a lock, which ends with its process."""

    path: Path
    name: str

    async def read(self) -> Tasks:
        """All tasks by their ids, in order; none where the folder is not there."""
        return await in_thread(self._read)

    async def change(self, change: Change) -> Task | None:
        """Change one task, alone; what is under way when it is cancelled comes to its end."""
        until = asyncio.get_running_loop().time() + BUSY_SECONDS
        while True:
            done = await to_its_end(in_thread(self._try, change))
            if done is not None:
                return done[0]
            if asyncio.get_running_loop().time() > until:
                raise StoreError(f"{self.path}: another process keeps it locked: see what it does, or end it")
            await asyncio.sleep(PAUSE_SECONDS)

    def _try(self, change: Change) -> tuple[Task | None] | None:
        """What came of the change; None where another has the folder."""
        try:
            make_private_folder(self.path)
            refuse_link(self.path)
            with open_lock(self.path / f".{self.name}.lock") as file:
                if not try_lock(file):
                    return None
                tasks = self._read()
                task = _changed(tasks, change)
                if task is not None and task != tasks.get(task.id):
                    self._write(task)
                return (task,)
        except OSError as error:
            raise refused(Path(error.filename or self.path), error) from error

    def _read(self) -> Tasks:
        file_name, count = re.compile(rf"{re.escape(self.name)}_([1-9]\d{{0,3}})\.json"), -1
        while True:
            try:
                found = map(file_name.fullmatch, self._names())
                tasks = {each: self._task(each) for each in sorted(int(match[1]) for match in found if match)}
            except OSError as error:
                raise refused(self.path, error) from error
            if not (fault := _fault(tasks)):
                return tasks
            if len(tasks) == count:
                raise DamagedError(f"{self.path}: {fault}: mend the file")
            count = len(tasks)  # tasks may have been added while these were read: one may wait for them

    def _path(self, task_id: int) -> Path:
        return self.path / f"{self.name}_{task_id}.json"

    def _names(self) -> Sequence[str]:
        try:
            return [path.name for path in self.path.iterdir()]
        except FileNotFoundError:
            return ()

    def _task(self, task_id: int) -> Task:
        path = self._path(task_id)
        try:
            if path.is_symlink() or path.is_dir():
                raise ValueError("it is no file")
            data = beginning_of(path, MOST_FILE_BYTES + 1)
            if len(data) > MOST_FILE_BYTES:
                raise ValueError(f"longer than {MOST_FILE_BYTES:,} bytes")
            task: Task = _READ(strict_value(data.decode()))
            if task.id != task_id:
                raise ValueError(f"its id is {task.id}")
        except (ValueError, TypeError) as error:
            raise DamagedError(f"{path} holds no task: {first_line(error)}: mend it or remove it") from error
        return task

    def _write(self, task: Task) -> None:
        """Put the file in its place, whole; what dead writers left beside it goes."""
        left = re.compile(rf"\.{re.escape(self.name)}_\d+\.[0-9a-f]{{32}}\.tmp")
        for name in filter(left.fullmatch, self._names()):
            (self.path / name).unlink(missing_ok=True)
        beside = self.path / f".{self.name}_{task.id}.{uuid.uuid4().hex}.tmp"
        with new_whole_file(beside) as file:
            file.write(f"{json.dumps(_WRITE(task), indent=2, ensure_ascii=False)}\n".encode())
        beside.replace(self._path(task.id))
        sync_folder(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """A log of a store, whose compare-and-swap lets each change be made on what it was decided on."""

    log: ValueLog[Task]

    async def read(self) -> Tasks:
        """All tasks by their ids, in order."""
        return _newest(await self.log.values())

    async def change(self, change: Change) -> Task | None:
        """Change one task, alone."""
        task: Task | None = None

        def decide(all_states: Sequence[Task]) -> Task | None:
            nonlocal task
            tasks = _newest(all_states)
            task = _changed(tasks, change)
            return None if task is None or task == tasks.get(task.id) else task

        await self.log.append(decide)
        return task


def _newest(states: Sequence[Task]) -> Tasks:
    return dict(sorted({task.id: task for task in states}.items()))


_CLAIMED = TASK_CLAIMED.partition("{")[0]
_LABELS = (_CLAIMED, TASK_ENDED.partition("{")[0])
