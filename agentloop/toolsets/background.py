"""Background: commands and tools that run beside the model's other work, and the notices of their ends."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.checks import several, shown, whole
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.to_text import first_line
from agentloop._plumbing.truncate import head
from agentloop.context import newest_exchange, results_of
from agentloop.errors import RetryTool, UsageError
from agentloop.messages import SeenMessage, ToolCall
from agentloop.prompts import (
    INTERRUPTED,
    JOB_BEGUN,
    JOB_ENDED,
    JOB_LINE,
    JOB_LOST,
    JOB_LOST_ALIVE,
    JOB_LOST_NOTICE,
    JOB_NOTICE,
    JOB_RUNS,
    JOB_STOPPED,
    JOB_STOPPED_AT_END,
    JOBS,
    JOBS_NONE,
    first_given,
)
from agentloop.tools import RunContext, Tool, ToolSet, tool, tools_of
from agentloop.workspace import Commands, Folder, Output, ending, kill_marked, mark_of_job

RUN_IN_BACKGROUND, CHECK, STOP = "run_in_background", "check", "stop"

MOST_RUNNING = 8
MOST_WAIT_SECONDS = 600
MOST_KEPT = 32
"""So many jobs that have ended keep what they printed, of all sessions together."""

MOST_REPORTED = 3
"""So many ends are told of with one result; the others with the next."""

MOST_WHAT_CHARS = 100

_ENDED = pattern(r"[Jj]ob ([0-9a-f]{8}) ended: ")


@dataclass(slots=True, kw_only=True)
class _Job:
    """One job of this process; `printed` gives what it printed so far, through a redaction."""

    id: str
    call_id: str
    what: str
    task: "asyncio.Task[str]"
    printed: Callable[[Callable[[str], str]], str]
    stopped: str = JOB_STOPPED
    shown_by: str = ""
    """The call whose result shows its end, which may not be stored yet."""

    @property
    def end(self) -> str:
        """How it ended; empty while it runs."""
        if not self.task.done():
            return ""
        if self.task.cancelled():
            return self.stopped
        error = self.task.exception()
        return f"failed, {first_line(error)}" if error else self.task.result()

    @property
    def line(self) -> str:
        """How it stands."""
        return (JOB_ENDED if self.end else JOB_RUNS).format(id=self.id, end=self.end, what=self.what)


@dataclass(frozen=True, kw_only=True)
class Background(ToolSet):
    """The tools `run_in_background`, `check` and `stop`, for work that takes long.

    With a `workdir` the model may run any shell command in it, as `run_command` does: they don't see
    variables that look like secrets, but for those in `pass_env`. With `agent_tools`, names of tools of the
    same agent, it may run these, sub-agents too. At most `most_running` jobs run at once. Of what a command
    prints, the first and the last half MiB are kept; while it runs, whole lines of that are shown.

    That a job ended, the model is told once, behind the next result that it gets: where the run was cut off
    before that was stored, in the run that goes on. A job lives as long as its run. What still runs at the
    run's end is stopped, with all that it started, and who watches is told so (`ToolProgress`). What a
    process left running that was killed is stopped by the run that goes on with the session on its machine,
    where there is a `/proc`. After a compaction the jobs that the model knows no end of stay in sight.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> agent = Agent(OfflineModel(), tools=[Background(workdir=".")])
        >>> list(agent.registry)
        ['run_in_background', 'check', 'stop']

    Raises:
        UsageError: there is nothing to run, or no such folder; `agent_tools` or `pass_env` are no names, or
            `most_running` is no whole number of at least 1. An `Agent` without one of these tools is refused.
    """

    workdir: Path | str | None = None
    agent_tools: Collection[str] = ()
    most_running: int = MOST_RUNNING
    pass_env: Collection[str] = ()
    priority = 5
    _commands: Commands | None = field(init=False, repr=False, compare=False)
    _jobs: dict[tuple[str, str], _Job] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By their session and id; those that have ended too, the oldest first."""
    _unreported: dict[str, set[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The ids of jobs by session whose end stood in no result when the run last looked; none: not looked."""

    def __post_init__(self) -> None:
        whole("most_running", self.most_running, 1)
        names, passed = _names("agent_tools", self.agent_tools), _names("pass_env", self.pass_env)
        if not isinstance(self.workdir, str | Path | None) or self.workdir == "":
            raise UsageError(f"workdir must be the path of a folder, or None, not {shown(self.workdir)}")
        if self.workdir is None and not names:
            raise UsageError("Background has nothing to run: give a workdir, or agent_tools")
        object.__setattr__(self, "agent_tools", names)
        object.__setattr__(self, "pass_env", passed)
        folder = None if self.workdir is None else Folder.at(self.workdir)
        commands = Commands(folder=folder, pass_env=frozenset(passed)) if folder else None
        object.__setattr__(self, "_commands", commands)

    @property
    def needs(self) -> Collection[str]:
        """What may run in the background."""
        return self.agent_tools

    @property
    def tools(self) -> Sequence[Tool]:
        """The three tools."""
        run = Tool.of(self.run_in_background)
        offered = dict(run.parameters["properties"])
        if self.agent_tools:
            offered["tool"] = {**offered["tool"], "enum": list(self.agent_tools)}
        else:
            del offered["tool"], offered["arguments"]
        if not self._commands:
            del offered["command"]
        run = replace(run, parameters={**run.parameters, "properties": offered})
        return replace(run, kind="shell" if self._commands else None), *tools_of(self.check, self.stop)

    @tool()
    async def run_in_background(
        self,
        context: RunContext[Any],
        command: str = "",
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin work that takes long, and go on with other work: gives the id of a job at once.

        A later result tells you that it has ended. What still runs when you answer is stopped.

        Args:
            command: A command line, for `sh`, in the working folder.
            tool: A tool to call instead.
            arguments: The arguments of that tool.

        Raises:
            RetryTool: there is nothing to run, or as much runs as may.
        """
        if bool(command.strip()) == bool(tool):
            raise RetryTool("say what is to run: either a command or a tool")
        if (tool and tool not in self.agent_tools) or (command and self._commands is None):
            raise RetryTool(f"only these tools can run in the background: {', '.join(self.agent_tools)}")
        if len(self._running(context.session_id)) >= self.most_running:
            raise RetryTool(
                f"{self.most_running} jobs are running, which is the most: stop one, or wait for it"
            )
        job_id = _id_of(context.call_id)
        what = _what(command, tool, arguments)
        output, answers = Output(), list[str]()
        if self._commands and command:
            mark = mark_of_job(context.session_id, job_id)
            task = asyncio.create_task(_command(self._commands, command, mark, output))
        else:
            task = asyncio.create_task(_tool(context, tool, arguments or {}, answers))
        printed = output.text if command else lambda _: "".join(answers)  # redacted with what shows it
        job = _Job(id=job_id, call_id=context.call_id, what=what, task=task, printed=printed)
        self._jobs[context.session_id, job_id] = job
        self._unreported.get(context.session_id, set()).add(job_id)
        return JOB_BEGUN.format(id=job_id, what=what)

    @tool(idempotent=True, timeout_seconds=MOST_WAIT_SECONDS + 30)
    async def check(self, context: RunContext[Any], job: str = "", wait_seconds: float = 0) -> str:
        """Show how a job stands and what it printed so far.

        Args:
            job: The id of a job; without one all are listed.
            wait_seconds: So long to wait for its end, at most 600.

        Raises:
            RetryTool: the session has no such job, or nobody waits so long.
        """
        if not 0 <= wait_seconds <= MOST_WAIT_SECONDS:
            raise RetryTool(f"wait_seconds must be from 0 to {MOST_WAIT_SECONDS}")
        if not job:
            known = [each.line for (name, _), each in self._jobs.items() if name == context.session_id]
            return "\n".join((JOBS, *(known or [JOBS_NONE])))
        if found := self._jobs.get((context.session_id, job)):
            if wait_seconds:
                await asyncio.wait({found.task}, timeout=wait_seconds)
            return await _job_text(found, context)
        begun = _jobs_in(await context.said())
        if job not in begun:
            raise RetryTool(
                f"there is no job {job[:100]!r} in this conversation: check without an id lists all"
            )
        return JOB_ENDED.format(id=job, end=JOB_LOST, what=_what_of(begun[job][0]))

    @tool(idempotent=True)
    async def stop(self, context: RunContext[Any], job: str) -> str:
        """Stop a job that is still running; shows what it printed.

        Args:
            job: The id of a job.

        Raises:
            RetryTool: the session has no such job.
        """
        if found := self._jobs.get((context.session_id, job)):
            found.task.cancel()
            await asyncio.wait({found.task})
        return await self.check(context, job or "none")

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        """The jobs that were begun out of sight and whose end was not told, the newest first."""
        reported, kept = _reported(said), ""
        for job_id, (call, in_sight) in _jobs_in(said).items():
            longer = f"{kept or JOBS}\n{JOB_LINE.format(id=job_id, what=_what_of(call))}"
            if job_id not in reported and not in_sight and fits(longer):
                kept = longer
        return kept

    async def notice(self, context: RunContext[Any]) -> str:
        """The ends that were not told yet, those of jobs that were begun first before the others."""
        session, unreported = context.session_id, self._unreported.get(context.session_id)
        if unreported is not None and all(self._is_running(session, each) for each in unreported):
            return ""
        said = await context.said()
        begun, reported, asked = _jobs_in(said), _reported(said), newest_exchange(said)
        now = {call.id for call in asked.message.tool_calls} if asked else set[str]()
        beginning = {job_id for name, job_id in self._jobs if name == session} & {*map(_id_of, now)}
        left = [job_id for job_id in reversed([*begun]) if job_id not in reported]
        self._unreported[session] = {*left, *beginning}
        being_shown = {job.id for job in self._jobs.values() if job.shown_by in now}
        over = [each for each in left if each not in being_shown and not self._is_running(session, each)]
        texts = [await self._end(session, job_id, begun[job_id][0]) for job_id in over[:MOST_REPORTED]]
        return "; ".join(texts)

    async def run_ended(self, session_id: str) -> Mapping[str, str]:
        """Stop what still runs."""
        self._unreported.pop(session_id, None)
        running = self._running(session_id)
        for job in running:
            job.stopped = JOB_STOPPED_AT_END
            job.task.cancel()
        if running:
            await asyncio.wait([job.task for job in running])
        over = [key for key, job in self._jobs.items() if job.end]
        for key in over[: max(0, len(over) - MOST_KEPT)]:
            del self._jobs[key]
        return {job.call_id: job.line for job in running}

    def _running(self, session_id: str) -> Sequence[_Job]:
        return [job for (name, _), job in self._jobs.items() if name == session_id and not job.end]

    def _is_running(self, session_id: str, job_id: str) -> bool:
        job = self._jobs.get((session_id, job_id))
        return job is not None and not job.end

    async def _end(self, session_id: str, job_id: str, call: ToolCall) -> str:
        """The end of a job in words; one that this process does not know is no more, or is stopped now."""
        if job := self._jobs.get((session_id, job_id)):
            return JOB_NOTICE.format(id=job_id, end=job.end, what=job.what)
        lives = await in_thread(kill_marked, mark_of_job(session_id, job_id))
        end = JOB_LOST_ALIVE if lives else JOB_LOST
        return JOB_LOST_NOTICE.format(id=job_id, end=end, what=_what_of(call))


async def _command(commands: Commands, command: str, mark: str, output: Output) -> str:
    return ending(await commands.run(command, mark, output, seconds=None)).strip("[]")


async def _tool(context: RunContext[Any], name: str, arguments: Mapping[str, Any], answers: list[str]) -> str:
    answer = await context.call_tool(name, arguments)
    answers.append(answer.text)
    return answer.status


async def _job_text(job: _Job, context: RunContext[Any]) -> str:
    if job.end:
        job.shown_by = context.call_id
    line, is_over = job.line, bool(job.end)
    text = await in_thread(job.printed, context.redact)
    # Half a line may hold half a secret, which nobody knows for one.
    said = text if is_over else text[: text.rfind("\n") + 1]
    return f"{line}\n{said}".rstrip("\n")


def _id_of(call_id: str) -> str:
    """The id of the job that this call begins: known though the call was cut off before it had a result."""
    return sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _what(command: str, tool: str, arguments: object) -> str:
    """What runs, on one line."""
    text = command if command.strip() else f"{tool}({arguments or ''})"
    return head(" ".join(text.split()), MOST_WHAT_CHARS)


def _what_of(call: ToolCall) -> str:
    given = call.decoded() or {}
    return _what(str(given.get("command") or ""), str(given.get("tool")), given.get("arguments"))


def _jobs_in(said: Sequence[SeenMessage]) -> Mapping[str, tuple[ToolCall, bool]]:
    """The jobs that were begun by their ids, newest first: the call, and whether its result is in sight.

    A call that was cut off may have begun one.
    """
    found: dict[str, tuple[ToolCall, bool]] = {}
    for call, result in results_of(RUN_IN_BACKGROUND, said):
        job_id, text = _id_of(call.id), first_given(result.message.text)
        if text == INTERRUPTED or text.startswith(JOB_BEGUN.format(id=job_id, what="")):
            found[job_id] = call, result.in_sight
    return found


def _reported(said: Sequence[SeenMessage]) -> Collection[str]:
    """The ids of the jobs whose end a result tells: by a notice behind it, or as what was asked for."""
    texts = [each.message.text for each in said if each.message.role == "tool"]
    notices = (text[len(first_given(text)) :] for text in texts)
    asked = (
        result.message.text.partition("\n")[0]
        for name in (CHECK, STOP)
        for _, result in results_of(name, said)
    )
    first = (found for line in asked if (found := _ENDED.match(line, 1)))
    return {*(each for text in notices for each in _ENDED.findall(text)), *(found[1] for found in first)}


def _names(name: str, given: Collection[str]) -> tuple[str, ...]:
    several(name, given, "a list of names")
    for each in given:
        if not isinstance(each, str) or not each:
            raise UsageError(f"{name} must be a list of names, not one with {shown(each)}")
    return tuple(given)
