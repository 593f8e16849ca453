"""A team: agents that work side by side, write to each other, and claim tasks from a board.

All that a team is stands in its store: the letters in one log, the tasks in another, and what each member
said and read in its session. So any number of processes may run the same team, and one that dies takes
nothing along.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from agentloop._plumbing.checks import checked_name, flag, instance_or_none, several, shown
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.to_text import as_text
from agentloop._plumbing.truncate import beginning, ends
from agentloop.callbacks import Callbacks
from agentloop.errors import SessionBusyError, UsageError
from agentloop.events import MessageRecord, Record, RunEndRecord, RunStartRecord
from agentloop.prompts import (
    INBOX,
    INBOX_EMPTY,
    INBOX_MORE,
    INBOX_REMINDER,
    TEAM_GO_ON,
    TEAM_INSTRUCTIONS,
    TEAM_SENT,
    TEAM_TASK,
    first_given,
)
from agentloop.redaction import Redact, Redaction, checked_redaction
from agentloop.results import RunResult
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import Leases, ValueLog, is_dead
from agentloop.stores import open_store
from agentloop.stores.base import GrantsLeases, SessionStore, TellsLeases, branch_id, checked_session_id
from agentloop.tools import RunContext, Tool, ToolSet, tool, tools_of
from agentloop.toolsets import (
    MOST_TEXT_CHARS,
    MemberBoard,
    Task,
    TaskBoard,
    as_retry,
    checked_text,
    claimed_text,
    held_by,
    waits_for,
)

Kind: TypeAlias = Literal["message", "plan", "shutdown", "answer", "stop"]
ASKED = ("plan", "shutdown")

USER = "user"
"""Who writes from outside of the team."""

POLL_SECONDS = 0.2
"""So often a process looks what others have done."""

MOST_INBOX_CHARS = 20_000
NOTED_CHARS = 200
_SOURCE = "agentloop.team"
_READ = pattern(r"\[Inbox up to ([0-9]{1,15})\]")
_NOTED = pattern(r"(?:^\[Reminder:|;) message ([0-9]{1,15}) from ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What one member wrote to another, or to all where `to` is None; its `id` is its position among all.

    `kind` is `message`, `plan` (asks for a yes to a plan), `shutdown` (asks to stop), `answer` to the letter
    `about`, which was `approved` or not, or `stop`, which ends the run of the team.
    """

    id: int
    sender: str
    to: str | None
    text: str
    kind: Kind = "message"
    about: int | None = None
    approved: bool | None = None

    def is_for(self, name: str) -> bool:
        """Whether it stands in that member's inbox."""
        return self.kind != "stop" and (self.to == name or (self.to is None and self.sender != name))


class _Mail:
    """All letters of a team: one log of its store, which only grows."""

    def __init__(self, store: SessionStore, log: str, names: Sequence[str]) -> None:
        self.store, self.names = store, names
        self.log = ValueLog(store, log, Letter, source=_SOURCE)
        self.letters = self.log.values

    async def send(self, sender: str, to: str | None, text: str, kind: Kind = "message") -> Letter:
        """Write to a member, or to all."""
        if to is not None and to not in (*self.names, USER):
            raise UsageError(f"there is nobody called {shown(to)}: there are {', '.join(self.names)}")
        if kind in ASKED and to is None:
            raise UsageError(f"to must be the name of one who is asked: there are {', '.join(self.names)}")
        letter = Letter(id=0, sender=sender, to=to, text=checked_text("text", text, 1), kind=kind)
        return await self._write(lambda letters: letter)

    async def answer(self, sender: str, letter_id: int, approved: bool, text: str) -> Letter:
        """Answer what was asked, once."""
        flag("approved", approved)
        answer = Letter(
            id=0, sender=sender, to="", text=checked_text("text", text), kind="answer", approved=approved
        )

        def decide(letters: Sequence[Letter]) -> Letter:
            asked = next((each for each in letters if each.id == letter_id and each.kind in ASKED), None)
            if asked is None or asked.to != sender:
                raise UsageError(f"nothing with the id {shown(letter_id)} was asked of {sender}")
            if any(each.about == letter_id for each in letters):
                raise UsageError(f"{letter_id} is answered already")
            return replace(answer, to=asked.sender, about=letter_id)

        return await self._write(decide)

    async def _write(self, decide: Callable[[Sequence[Letter]], Letter]) -> Letter:
        """Write the letter that is decided on in view of all others, behind them."""
        letter = await self.log.append(lambda letters: replace(decide(letters), id=len(letters) + 1))
        assert letter is not None
        return letter


def _waits(letters: Sequence[Letter], name: str) -> bool:
    """Whether something that the member asked for is not answered."""
    answered = {each.about for each in letters}
    return any(each.sender == name and each.kind in ASKED and each.id not in answered for each in letters)


def _is_shut_down(letters: Sequence[Letter], name: str) -> bool:
    """Whether the member agreed to stop, and nobody has written to it alone since."""
    asked = {each.id for each in letters if each.kind == "shutdown"}
    for letter in reversed(letters):
        if letter.to == name:
            return False
        if letter.sender == name and letter.about in asked and letter.approved:
            return True
    return False


def _inbox(letters: Sequence[Letter]) -> str:
    """The oldest of these letters that have room, below a label that says up to which one they are."""
    texts, chars = [], 0
    for letter in letters:
        texts.append(_letter_text(letter))
        chars += len(texts[-1])
        if chars > MOST_INBOX_CHARS:
            break
    more = [INBOX_MORE.format(count=len(letters) - len(texts))] if len(texts) < len(letters) else []
    return "\n".join((INBOX.format(id=letters[len(texts) - 1].id), *texts, *more))


def _letter_text(letter: Letter) -> str:
    """The letter below its head; no other line of it begins where heads do."""
    return "\n  ".join(f"[{_head(letter)}] {letter.text}".splitlines()).rstrip()


def _head(letter: Letter) -> str:
    how = {"plan": " asks for a yes to a plan", "shutdown": " asks you to stop"}.get(letter.kind, "")
    if letter.kind == "answer":
        how = f" says {'yes' if letter.approved else 'no'} to {letter.about}"
    return f"{letter.id} from {letter.sender}{how}"


@dataclass(frozen=True, slots=True)
class _Progress:
    """What a member's session says: up to which letter it has read, and how its newest run ended.

    `is_open` is said of a run that has no answer yet, `ended` is when the newest answer came.
    """

    length: int = 0
    read: int = 0
    is_open: bool = False
    ended: float = 0.0
    inbox_calls: frozenset[str] = frozenset()

    def after(self, records: Sequence[Record]) -> "_Progress":
        now = self
        for record in records:
            now = replace(now._after(record), length=record.seq)
        return now

    def _after(self, record: Record) -> "_Progress":
        match record.event:
            case RunStartRecord():
                return replace(self, is_open=True)
            case RunEndRecord(status=status, time=time):
                is_open = status != "answered"
                return replace(self, is_open=is_open, ended=self.ended if is_open else time)
            case MessageRecord(message=message):
                if message.role == "assistant":
                    asked = (call.id for call in message.tool_calls if call.name == "inbox")
                    return replace(self, inbox_calls=frozenset(asked))
                is_told = message.role == "user" or message.tool_call_id in self.inbox_calls
                if is_told and (label := _READ.match(message.text)):
                    return replace(self, read=max(self.read, int(label[1])))
        return self


@dataclass(frozen=True, slots=True)
class _Inbox(ToolSet):
    """The tools of one member. Its session tells what it has read, so a crash loses and repeats nothing."""

    name: str
    session_id: str
    mail: _Mail = field(repr=False)
    known: list[_Progress] = field(default_factory=lambda: [_Progress()], repr=False)

    async def progress(self) -> _Progress:
        """What the session says now."""
        known = self.known[0]
        self.known[0] = known.after(await self.mail.store.read(self.session_id, after=known.length))
        return self.known[0]

    async def unread(self) -> Sequence[Letter]:
        """The letters to the member that it has not read."""
        read = (await self.progress()).read
        return [each for each in await self.mail.letters() if each.id > read and each.is_for(self.name)]

    @property
    def tools(self) -> Sequence[Tool]:
        """All tools of a member."""
        return tools_of(self._send, self._broadcast, self._ask, self._answer, self._read)

    @property
    def instructions(self) -> str:
        """Who is there."""
        others = ", ".join(name for name in self.mail.names if name != self.name) or "nobody else"
        return TEAM_INSTRUCTIONS.format(name=self.name, others=others)

    async def notice(self, context: RunContext[Any]) -> str:
        """What is unread and was not told of in what is in sight."""
        seen = (each.message for each in await context.said() if each.in_sight)
        results = (message.text for message in seen if message.role == "tool")
        told = {number for text in results for number in _NOTED.findall(text[len(first_given(text)) :])}
        new = [each for each in await self.unread() if str(each.id) not in told]
        # What parts two notes stands in no letter, so that none tells of one which nobody wrote.
        texts = (beginning(context.redact(each.text), NOTED_CHARS).replace(";", ",") for each in new)
        notes = (f"message {_head(each)}: {text}" for each, text in zip(new, texts, strict=True))
        return INBOX_REMINDER.format(notes="; ".join(notes)) if new else ""

    @tool(name="send")
    async def _send(self, to: str, text: str) -> str:
        """Write to one member of the team.

        Args:
            to: The name of a member, or user.
        """
        return _sent(await as_retry(self.mail.send(self.name, to, text)))

    @tool(name="broadcast")
    async def _broadcast(self, text: str) -> str:
        """Write to all other members of the team."""
        return _sent(await as_retry(self.mail.send(self.name, None, text)))

    @tool(name="ask")
    async def _ask(self, to: str, kind: Literal["plan", "shutdown"], text: str) -> str:
        """Ask a member, or user, for a yes: to your plan, or that they stop.

        Then end with a short answer: theirs is given to you as a message.

        Args:
            to: The name of a member, or user.
            kind: plan: may I do this? shutdown: please stop.
        """
        return _sent(await as_retry(self.mail.send(self.name, to, text, kind)))

    @tool(name="answer")
    async def _answer(self, id: int, approved: bool, text: str) -> str:
        """Answer a message that asked for a yes, by its number.

        Args:
            id: The number of the message that asked.
            approved: Yes or no.
        """
        return _sent(await as_retry(self.mail.answer(self.name, id, approved, text)))

    @tool(name="inbox", idempotent=True, keep=True)
    async def _read(self) -> str:
        """Read the messages to you that you have not read."""
        unread = await self.unread()
        return _inbox(unread) if unread else INBOX_EMPTY


def _sent(letter: Letter) -> str:
    return TEAM_SENT.format(id=letter.id, to=letter.to or "all")


_Turn: TypeAlias = asyncio.Task[RunResult | None]


async def _collect_ended(
    turns: dict[str, _Turn], results: list[RunResult], failures: list[BaseException]
) -> None:
    """Wait for a while for a turn to end, and take out what has ended, with what came of it."""
    waiting = turns.values() or [asyncio.create_task(asyncio.sleep(POLL_SECONDS))]
    await asyncio.wait(waiting, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for name in [name for name, turn in turns.items() if turn.done()]:
        try:
            results += filter(None, [turns.pop(name).result()])
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 — raised once all have ended
            failures.append(error)


def _checked_agents(agents: object) -> Mapping[str, Agent]:
    if not isinstance(agents, Mapping) or not agents:
        raise UsageError(f"agents must be a mapping of names to agents, not {shown(agents)}")
    for name, agent in agents.items():
        if checked_name("the name of an agent", name) == USER:
            raise UsageError(f"no agent may be called {USER}: that is who writes from outside")
        if not isinstance(agent, Agent):
            raise UsageError(f"agents must be a mapping of names to agents, not {shown(agent)}")
    return dict(agents)


def _checked_workers(workers: Iterable[str] | None, agents: Mapping[str, Agent]) -> frozenset[str]:
    """The workers: all agents where None."""
    workers = agents if workers is None else workers
    several("workers", workers, "a list of names of agents")
    names = frozenset(workers)
    if strangers := sorted(map(shown, names - agents.keys())):
        raise UsageError(f"there is no agent {strangers[0]} for workers: there are {', '.join(agents)}")
    return names


class DoesTurns(Protocol):
    """Has turns of members done elsewhere, such as a `RunQueue` by workers."""

    async def turn(self, prompt: str, *, session_id: str, length: int, queue: str) -> RunResult | None:
        """What comes of saying that behind a session's first `length` records; asked twice, it is one run.

        None where it says more by then.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How a member stands; `is_free` says whether there is a task that it may claim."""

    progress: _Progress
    unread: Sequence[Letter]
    task: Task | None
    waits: bool
    is_free: bool
    is_shut_down: bool

    @property
    def has_work(self) -> bool:
        """Whether a turn would do something."""
        if self.is_shut_down:
            return False
        is_tasked = not self.waits and (self.is_free or self.task is not None)
        return self.progress.is_open or bool(self.unread) or is_tasked

    @property
    def goes_on(self) -> bool:
        """Whether its newest run has no answer, or gave that of the task which has not ended."""
        began = None if self.task is None else self.task.since
        is_done = began is not None and self.progress.ended >= began
        return self.progress.is_open or (is_done and not self.unread)


class Team:
    """Agents that write to each other and work off a board; each has a session, `NAME.MEMBER` in the store.

    A member has the tools `send`, `broadcast`, `ask`, `answer` and `inbox`, and those of the board. A member
    that is idle is given what it has not read, and, if it is one of the `workers` (all, where None), the
    oldest task that is free. Its answer ends the task, unless it waits for a yes that it asked for.

    Any number of processes may run the same team on one store: a member works in one of them at a time. What
    a process was doing when it died is gone on with by the next that runs the team. With a queue of durable
    runs, workers do the turns, on any of many machines: `Team.run(queue)` and `Worker(team, …)`.

    `store` is a store or a URL, `board` the board, one in the store where None. `callbacks`, `transcripts`
    and `redact` are as in `Runner`.

    Raises:
        UsageError: the agents are no mapping of names to agents, a worker is none of them, a name is none, or
            the store grants no leases.
        ToolDefinitionError: an agent has a tool of a name that a member's has.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        store: str | SessionStore = "memory:",
        name: str = "team",
        board: TaskBoard | None = None,
        workers: Iterable[str] | None = None,
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        redact: Redact | None = None,
    ) -> None:
        self.name, self.agents = checked_name("name", name), _checked_agents(agents)
        self.workers = _checked_workers(workers, self.agents)
        instance_or_none("board", board, TaskBoard)
        self.store = open_store(store)
        if not isinstance(self.store, GrantsLeases) or not isinstance(self.store, TellsLeases):
            raise UsageError(
                "the store of a team must grant leases and tell them: use one of agentloop.stores"
            )
        self.board = board or TaskBoard(self.store, owner=USER, name=name)
        self._hide = Redaction(None if redact is None else checked_redaction(redact)).hide
        self._mail = _Mail(self.store, branch_id(name, "mail"), tuple(agents))
        self._members = {
            each: _Inbox(each, checked_session_id(f"{name}.{each}"), self._mail) for each in agents
        }
        self._boards = {
            each: MemberBoard(self.board.place, owner=each, name=self.board.name) for each in agents
        }
        callbacks = tuple(callbacks)
        self._runners = {
            each: Runner(
                replace(agent, tools=(*agent.tools, self._members[each], self._boards[each])),
                store=self.store,
                callbacks=callbacks,
                transcripts=transcripts,
                redact=redact,
            )
            for each, agent in agents.items()
        }

    @property
    def members(self) -> Mapping[str, Agent]:
        """The agents with the tools of a member, by the ids of their sessions."""
        return {self._members[each].session_id: runner.agent for each, runner in self._runners.items()}

    async def send(self, to: str, text: str) -> Letter:
        """Write to a member.

        Raises:
            UsageError: there is nobody of that name, or the text is none.
            StoreError: it could not be written.
        """
        return await self._mail.send(USER, to, text)

    async def broadcast(self, text: str) -> Letter:
        """Write to all members.

        Raises:
            UsageError: the text is none.
            StoreError: it could not be written.
        """
        return await self._mail.send(USER, None, text)

    async def ask(self, to: str, kind: Literal["plan", "shutdown"], text: str) -> Letter:
        """Ask a member for a yes: to a plan, or to stop. One that stops is idle until it is written to.

        Raises:
            UsageError: there is nobody of that name, the kind is another, or the text is none.
            StoreError: it could not be written.
        """
        if kind not in ASKED:
            raise UsageError(f"kind must be one of {', '.join(ASKED)}, not {shown(kind)}")
        return await self._mail.send(USER, to, text, kind)

    async def answer(self, letter_id: int, approved: bool, text: str = "") -> Letter:
        """Say yes or no to what a member asked of `user`.

        Raises:
            UsageError: nothing of that id was asked of `user`, or it is answered.
            StoreError: it could not be written.
        """
        return await self._mail.answer(USER, letter_id, approved, text)

    async def stop(self) -> None:
        """End `run` in all processes: what members are doing comes to its end, and nothing more is begun.

        Raises:
            StoreError: it could not be written.
        """
        await self._mail.send(USER, None, "stop", "stop")

    async def letters(self) -> Sequence[Letter]:
        """All letters, oldest first; those to `user` too.

        Raises:
            StoreError: they could not be read.
        """
        return tuple(await self._mail.letters())

    async def run(self, queue: DoesTurns | None = None) -> Sequence[RunResult]:
        """Work until all are idle: nothing is unread, no task is free, and no process has a member at work.

        With a `queue`, a `RunQueue`, workers do the turns, see `Worker`. Returns what members came to by this
        process, in order. It ends early by `stop`, and where a member comes to a limit. Cancelled, it cancels
        its members, but for what is in a queue; the next `run` goes on with them.

        Raises:
            AgentLoopError: a member's run failed, see `Runner.run`; the others came to their end before. The
                next `run` goes on with it.
        """
        if queue is not None and not hasattr(queue, "turn"):
            raise UsageError(f"queue must be a RunQueue(…) or None, not {shown(queue)}")
        begun = len(await self._mail.letters())
        turns: dict[str, _Turn] = {}
        results: list[RunResult] = []
        failures: list[BaseException] = []
        try:
            while True:
                # Who is at work elsewhere is asked first: what they left behind is seen then.
                at_work = {*turns, *await self._at_work_elsewhere(turns)}
                is_ending = bool(failures) or any(each.status != "answered" for each in results)
                if is_ending or any(each.kind == "stop" for each in (await self.letters())[begun:]):
                    at_work = {*turns}
                else:
                    for name in [each for each in self._members if each not in at_work]:
                        if (await self._state(name)).has_work:
                            turns[name] = asyncio.create_task(self._turn(name, queue))
                            at_work.add(name)
                if not at_work:
                    break
                await _collect_ended(turns, results, failures)
        finally:
            for turn in turns.values():
                turn.cancel()
            await asyncio.gather(*turns.values(), return_exceptions=True)
        if failures:
            raise failures[0]
        return tuple(results)

    async def _at_work_elsewhere(self, here: Iterable[str]) -> set[str]:
        """The members that another process has at work."""
        assert isinstance(self.store, TellsLeases)
        found = set()
        for each in self._members.keys() - set(here):
            lease = await self.store.lease(self._turn_id(each))
            if lease is not None and not is_dead(lease):
                found.add(each)
        return found

    def _turn_id(self, name: str) -> str:
        return branch_id(self._members[name].session_id, "turn")

    async def _state(self, name: str) -> _State:
        member, letters = self._members[name], await self._mail.letters()
        tasks = {task.id: task for task in await self.board.tasks()}
        return _State(
            progress=await member.progress(),
            unread=await member.unread(),
            task=held_by(name, tasks.values()),
            waits=_waits(letters, name),
            is_free=name in self.workers and any(not waits_for(task, tasks) for task in tasks.values()),
            is_shut_down=_is_shut_down(letters, name),
        )

    async def _turn(self, name: str, queue: DoesTurns | None) -> RunResult | None:
        """One run of the member, or what is left of one; None where another process does it, or did."""
        session_id, runner = self._members[name].session_id, self._runners[name]
        try:
            async with Leases().held(self._turn_id(name), self.store):
                if not (now := await self._state(name)).has_work:
                    return None
                if not (prompt := TEAM_GO_ON if now.goes_on else await self._prompt(name, now)):
                    return None
                if queue is not None and (now.progress.is_open or not now.goes_on):
                    length = now.progress.length
                    result = await queue.turn(prompt, session_id=session_id, length=length, queue=self.name)
                elif now.goes_on:
                    result = await runner.resume(session_id)
                else:
                    result = await runner.run(prompt, session_id=session_id)
                if result and result.status == "answered":
                    await self._end_task(name, result.output)
                return result
        except SessionBusyError:  # another process has it, or somebody beside the team has its session
            await asyncio.sleep(POLL_SECONDS)
            return None

    async def _prompt(self, name: str, now: _State) -> str:
        """What it has not read, and its task; empty for nothing."""
        task = now.task
        if task is None and now.is_free and not now.waits:
            task = await self._boards[name].claim()
        parts = [_inbox(now.unread)] if now.unread else []
        if task is not None:
            parts.append(f"{claimed_text(task, await self.board.tasks(), self._hide)}\n\n{TEAM_TASK}")
        return "\n\n".join(parts)

    async def _end_task(self, name: str, output: Any) -> None:
        """The member's task ends with its answer, unless that was said before it knew what it had asked.

        Where it agreed to stop, it is given back.
        """
        now, board = await self._state(name), self._boards[name]
        if now.task is None or now.waits or any(each.kind == "answer" for each in now.unread):
            return
        if now.is_shut_down:
            await board.give_back(now.task.id)
        else:
            await board.complete(now.task.id, ends(as_text(output), max_chars=MOST_TEXT_CHARS))
