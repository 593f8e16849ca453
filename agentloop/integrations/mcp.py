"""The tools of MCP servers, for an agent: https://modelcontextprotocol.io.

    async with mcp_tools("servers.json") as tools:
        agent = Agent(model, tools=[tools])

Each server has a task that keeps its connection: it connects, lists the tools, lists them again when the
server says so, and begins anew, after waits that grow, where the server has died. The protocol is the SDK's
(extra `mcp`).
"""

import asyncio
import json
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any

from agentloop._plumbing.aio import in_thread, is_cancelled, to_its_end
from agentloop._plumbing.checks import finite_above_zero
from agentloop._plumbing.host_logging import leave_to_host, warn
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.to_text import first_line
from agentloop._plumbing.truncate import beginning, head
from agentloop.bounds import (
    MOST_MCP_ASKED,
    MOST_MCP_BYTES,
    MOST_MCP_SCHEMA_CHARS,
    MOST_MCP_TOOLS,
    MOST_MCP_VALUES,
)
from agentloop.compaction import COMPACT
from agentloop.errors import ToolDefinitionError, UsageError
from agentloop.extras import missing_extra
from agentloop.integrations.mcp_config import McpServer, Source, servers_in
from agentloop.prompts import FINAL_ANSWER, INTERRUPTED
from agentloop.redaction import without_credentials, without_secrets
from agentloop.tools import RunContext, Tool, ToolAnswer, ToolSet
from agentloop.toolsets import RECALL_TOOLS
from agentloop.workspace import ending, kill_marked, new_mark, under_mark

try:
    import anyio
    import httpx2
    from mcp import Client, MCPError
    from mcp import types as mcp_types
    from mcp.client import session as sdk_session
    from mcp.client.streamable_http import streamable_http_client
    from mcp.client.subscriptions import SubscriptionLost
    from mcp.shared.message import SessionMessage
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS
except ImportError as error:
    raise missing_extra("tools of MCP servers need", "mcp") from error

__all__ = ["McpTools", "mcp_tools"]

START_SECONDS = 60.0
"""How long a server may take to start and to list its tools: some fetch themselves first."""
CALL_SECONDS = 120.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
"""Between the end of a server and its next start; each further wait is twice the one before."""
PATIENCE_SECONDS = 10.0
"""How long a call waits for a server that is started again."""
LISTEN_AGAIN_SECONDS = 5.0
GRACE_SECONDS = 0.5
"""How long a server may take to end once its input is closed, until it is killed. Our own figures."""
MOST_PAGES = 100
_RESERVED = frozenset({COMPACT, *RECALL_TOOLS})
_NOT_IN_NAMES = pattern(r"[^a-zA-Z0-9_-]+")
_MOST_NAME_CHARS, _MOST_DESCRIPTION_CHARS, _MOST_TOLD_CHARS = 64, 1_024, 300
_STDERR_BYTES = 4_096


_SDK_CLIENT_LOG = logging.getLogger("client")
"""Where the SDK's client logs, by a name that a program's own logger may have too."""


def _log(line: str) -> None:
    warn("mcp", what=line)


def _leave_log_to_host() -> None:
    leave_to_host("mcp")
    _SDK_CLIENT_LOG.addFilter(_is_heard)


def _is_heard(record: logging.LogRecord) -> bool:
    return record.pathname != sdk_session.__file__ or _SDK_CLIENT_LOG.hasHandlers()


class McpTools(ToolSet):
    """The tools of MCP servers, as they are now.

    A tool has the name that its server gives it. Where that is taken, the server's stands before it:
    `files_search`. It keeps its name as long as the set is in use.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        taken: Collection[str],
        tell: Callable[[str], object],
        seconds: float,
    ) -> None:
        self._tell, self._seconds = tell, seconds
        self._servers = [_Connection(server, self._take, tell, seconds) for server in servers]
        self._taken = _RESERVED | {*taken}
        self._names: dict[tuple[str, str], str] = {}
        self._tools: tuple[Tool, ...] = ()
        self._changed = 0

    @property
    def tools(self) -> Sequence[Tool]:
        """Those of all servers, in the order of the configuration."""
        return self._tools

    @property
    def tools_changed(self) -> int:
        """How often a server has listed others than before."""
        return self._changed

    def _take(self) -> None:
        """Look at what the servers have listed, once all have: names go by their order."""
        if not all(server.started.done() for server in self._servers):
            return
        tools = tuple(tool for server in self._servers for tool in self._tools_of(server))
        if [tool.schema for tool in tools] != [tool.schema for tool in self._tools]:
            self._tools = tools
            self._changed += 1

    def _tools_of(self, server: "_Connection") -> Iterator[Tool]:
        for each in server.listed:
            try:
                if len(json.dumps(each.input_schema)) > MOST_MCP_SCHEMA_CHARS:
                    raise ToolDefinitionError(f"its schema has over {MOST_MCP_SCHEMA_CHARS:,} characters")
                yield Tool(
                    name=self._name(server.name, each.name),
                    description=head(each.description or each.title or "", _MOST_DESCRIPTION_CHARS),
                    parameters=each.input_schema,
                    function=partial(server.call, each.name),
                    timeout_seconds=self._seconds,
                    server=server.name,
                )
            except ToolDefinitionError as error:
                name = beginning(each.name, _MOST_NAME_CHARS)
                self._tell(f"MCP server {server.name!r}: tool {name!r} is left out: {error}")

    def _name(self, server: str, tool: str) -> str:
        """The tool's name for the model, one of its own that every provider takes."""
        if (server, tool) not in self._names:
            used = {*self._names.values(), *self._taken}
            stem = f"{server}_{tool[:40]}"[: _MOST_NAME_CHARS - 5]
            numbered = (f"{stem}_{number}" for number in range(2, 10_000))
            wanted = chain((tool, f"{server}_{tool}"), numbered)
            names = (_NOT_IN_NAMES.sub("_", each)[:_MOST_NAME_CHARS] for each in wanted)
            free = (name for name in names if name and name not in used and not name.startswith(FINAL_ANSWER))
            if not (name := next(free, "")):
                raise ToolDefinitionError("no name is free for it")
            self._names[server, tool] = name
        return self._names[server, tool]


@asynccontextmanager
async def mcp_tools(
    *sources: Source,
    taken: Collection[str] = (),
    timeout_seconds: float = CALL_SECONDS,
    tell: Callable[[str], object] = _log,
) -> AsyncIterator[McpTools]:
    """The tools of the MCP servers that these files name, for the `tools` of an agent; servers end with it.

    A source is the path of a JSON file with `mcpServers`, as other programs have it, or what stands in one.
    All servers start side by side. `taken` are the names of the agent's other tools. A call may take
    `timeout_seconds`. `tell` is given a line for each server that dies, which is started again; by default it
    is logged. The tools are called on the event loop on which this was entered.

    Example:
        >>> import asyncio
        >>> from agentloop import Agent, OfflineModel
        >>> async def main() -> int:
        ...     async with mcp_tools({"mcpServers": {}}) as tools:
        ...         return len(Agent(OfflineModel(), tools=[tools]).registry)
        >>> asyncio.run(main())
        0

    Raises:
        UsageError: a source is none, or a server does not start within a minute; one line says why.
    """
    finite_above_zero("timeout_seconds", timeout_seconds)
    if isinstance(taken, str) or not isinstance(taken, Collection) or not callable(tell):
        raise UsageError("taken must be a list of names, and tell a function of a line")
    _leave_log_to_host()
    tools = McpTools(servers_in(sources), taken, tell, timeout_seconds)
    tasks = [asyncio.create_task(server.keep()) for server in tools._servers]
    try:
        await asyncio.gather(*(server.started for server in tools._servers))
        tools._take()
        yield tools
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await to_its_end(asyncio.wait(tasks))


class _Connection:
    """One server, and the connection to it while there is one.

    `listed` are the tools that it has; `on_listed` is called where they may be others than before.
    """

    def __init__(
        self,
        server: McpServer,
        on_listed: Callable[[], None],
        tell: Callable[[str], object],
        seconds: float,
    ) -> None:
        self.name = server.name
        self.listed: Sequence[mcp_types.Tool] = ()
        self._server, self._on_listed, self._tell, self._seconds = server, on_listed, tell, seconds
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._loop.create_future()
        self._client: Client | None = None
        self._settled, self._look, self._looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._wait, self._why, self._is_left = FIRST_WAIT_SECONDS, "", False

    async def keep(self) -> None:
        """Be connected until cancelled; what keeps the first start from coming about, `started` raises."""
        try:
            while True:
                try:
                    await self._connect()
                except Exception as error:
                    if is_cancelled():  # of a group of tasks that fails, only the failure comes out
                        raise asyncio.CancelledError from error
                    self._why = _why(error)
                finally:
                    self._be_without()
                if not self.started.done():
                    fault = f"MCP server {self.name!r} did not start: {self._why}"
                    self.started.set_exception(UsageError(fault))
                    return
                wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT_SECONDS)
                self._tell(f"MCP server {self.name!r}: {self._why}; it is started again in {wait:g} s")
                await asyncio.sleep(wait)
        finally:
            self._why, self._is_left = "it was left", True
            self._settled.set()
            self._looked.set()

    async def _connect(self) -> None:
        """Be connected until the server ends, which raises."""
        over = _over_stdio(self._server) if self._server.command else _over_http(self._server, self._seconds)
        async with (
            asyncio.timeout(START_SECONDS) as start,
            Client(over, cache=None, message_handler=self._hear) as client,
        ):
            await self._list(client)
            start.reschedule(None)
            if not self.started.done():
                self.started.set_result(None)
            async with anyio.create_task_group() as group:
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    group.start_soon(self._listen, client)
                while True:
                    await self._look.wait()
                    await self._list(client)

    async def _present(self) -> Client | None:
        """The connection, waited for a while where there is none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while self._client is None and not self._is_left:  # it may be gone before its waiter goes on
                    await self._settled.wait()
        return self._client

    def _be_without(self) -> None:
        self._client = None
        self._settled.clear()

    def _look_again(self) -> None:
        self._looked.clear()
        self._look.set()

    async def _list(self, client: Client) -> None:
        self._look.clear()
        listed: list[mcp_types.Tool] = []
        cursor = None
        for _ in range(MOST_PAGES if client.server_capabilities.tools else 0):
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > MOST_MCP_TOOLS:
                break
        if len(listed) > MOST_MCP_TOOLS:
            self._tell(f"MCP server {self.name!r} has more than {MOST_MCP_TOOLS} tools: others are left out")
        self.listed = listed[:MOST_MCP_TOOLS]
        self._on_listed()
        self._client = client
        self._settled.set()
        if not self._look.is_set():
            self._looked.set()

    async def _hear(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._look_again()

    async def _listen(self, client: Client) -> None:
        """Ask to be told of changes, as newer servers want it; again where that comes to an end."""
        while True:
            with suppress(SubscriptionLost, MCPError):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._look_again()
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)

    async def call(self, tool: str, run_context_of_call: RunContext[Any], /, **arguments: Any) -> ToolAnswer:
        """What the server answers to a call of its tool, as a text."""
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "tools of mcp_tools(…) run on the event loop on which it was entered: use a Runner there"
            )
        if (client := await self._present()) is None:
            why = f"MCP server {self.name!r} is not there: {self._why}"
            return ToolAnswer(f"{tool} was not called: {why}", "error")

        async def show(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            run_context_of_call.progress(beginning(f"{share} {message or ''}".strip(), _MOST_TOLD_CHARS))

        try:
            result = await client.call_tool(tool, arguments, progress_callback=show)
        except MCPError as error:
            self._look_again()  # one that has forgotten us, or is gone, fails at that too, and is begun anew
            if error.code != mcp_types.CONNECTION_CLOSED:
                raise
            if self._client is client:
                self._be_without()
            return ToolAnswer(f"{INTERRUPTED} ({first_line(error)})", "error")
        self._wait = FIRST_WAIT_SECONDS
        with suppress(TimeoutError):  # what the call has changed is there for the next request
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._looked.wait()
        text = "\n".join(map(_block_text, result.content))
        if not result.content and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
        if result.is_error:
            return ToolAnswer(f"{tool} failed: {text}", "error")
        return ToolAnswer(text or "(no result)", "ok")


def _block_text(block: mcp_types.ContentBlock) -> str:
    """A part of a result as text: what cannot be one, as a label."""
    match block:
        case mcp_types.TextContent():
            return block.text
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return f"[{block.type}, {block.mime_type}, {_size(block.data):,} bytes, not shown]"
        case mcp_types.ResourceLink():
            return f"[resource {block.uri}] {block.title or block.name} {block.description or ''}".rstrip()
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
            return f"[resource {resource.uri}]\n{resource.text}"
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            kind, size = resource.mime_type or "bytes", _size(resource.blob)
            return f"[resource {resource.uri}, {kind}, {size:,} bytes, not shown]"
        case _:
            return "[a part of an unknown type, not shown]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case TimeoutError():
            return f"it was not ready within {START_SECONDS:g} s"
        case FileNotFoundError() | NotADirectoryError() | PermissionError():
            return f"{error.filename!r} cannot be started: {error.strerror}: check its command and cwd"
    return beginning(first_line(error), _MOST_TOLD_CHARS)


_TOO_LONG = f"it sent a message of more than {MOST_MCP_BYTES:,} bytes"
_TOO_MANY = f"it sent a message of more than {MOST_MCP_VALUES:,} lists and objects"
_STRING = pattern(rb'"(?:[^"\\]++|\\[\s\S])*+"')


def _has_too_many(line: bytes) -> bool:
    return line.count(b"{") + line.count(b"[") > MOST_MCP_VALUES


class _EndedError(Exception):
    """The server has ended, or says what nobody should read on."""


@asynccontextmanager
async def _over_http(server: McpServer, seconds: float) -> AsyncIterator[Any]:
    headers = {"accept-encoding": "identity", **server.headers}
    timeout = httpx2.Timeout(30, read=max(300, seconds))
    status = 0

    async def note(response: httpx2.Response) -> None:
        nonlocal status
        status = response.status_code

    hooks: Mapping[str, list[Any]] = {"response": [note, _bound]}
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as client,
            streamable_http_client(
                server.url, http_client=client, max_sse_event_size=MOST_MCP_BYTES
            ) as streams,
        ):
            yield streams
    except Exception as error:
        why = f"HTTP status {status}" if status >= 400 else _why(error)
        place = without_credentials(server.url)
        raise _EndedError(f"{place}: {why}: check its url and headers, and that it runs") from error


async def _bound(response: httpx2.Response) -> None:
    """Let no more than a bound of a whole answer be read; the events of a stream have theirs."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _EndedError("it packs its answers, though it was asked not to")
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """A stream of bytes up to a bound."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_MCP_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise _EndedError(_TOO_LONG)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def _over_stdio(server: McpServer) -> AsyncIterator[Any]:
    """The streams of messages from and to a process, which sees no secret but those that it is given.

    The SDK's own bounds no line, and ends what the server started only where that stays in its group.
    """
    mark = new_mark()
    environment = {**without_secrets(os.environ), **server.env, mark: "1"}
    with under_mark(mark):
        process = await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=server.cwd,
            env=environment,
            start_new_session=True,
            limit=MOST_MCP_BYTES,
        )
        try:
            said, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            asked, sent = anyio.create_memory_object_stream[SessionMessage](100)
            async with said, heard, asked, sent, anyio.create_task_group() as group:
                complaints, unanswered = bytearray(), _Unanswered()
                group.start_soon(_drain, process, complaints)
                group.start_soon(_read, process, said, complaints, unanswered)
                group.start_soon(_write, process, sent, unanswered)
                yield heard, asked
                group.cancel_scope.cancel()
        finally:
            await to_its_end(_end(process, mark))


class _Unanswered:
    """Counts what a server asks and has no answer to: it may ask for ever, and read nothing."""

    def __init__(self) -> None:
        self._count = 0

    def asked(self, message: mcp_types.JSONRPCMessage) -> None:
        if not isinstance(message, mcp_types.JSONRPCRequest):
            return
        self._count += 1
        if self._count > MOST_MCP_ASKED:
            raise _EndedError(f"it asks more than {MOST_MCP_ASKED} things and reads no answer")

    def answered(self, message: mcp_types.JSONRPCMessage) -> None:
        self._count -= isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError)


async def _read(process: Process, said: Any, complaints: bytearray, unanswered: _Unanswered) -> None:
    """Hand on each message that the server prints; what is none was meant for people."""
    assert process.stdout
    while line := await _line(process.stdout):
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            await asyncio.sleep(0)
            continue
        unanswered.asked(message)
        await said.send(SessionMessage(message))
    with anyio.move_on_after(GRACE_SECONDS):
        await process.wait()
    how = "it has closed its output" if process.returncode is None else ending(process.returncode)
    last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
    raise _EndedError(f"{how} {last}".strip())


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        line = await stream.readline()
    except ValueError as error:
        raise _EndedError(_TOO_LONG) from error
    if _has_too_many(line) and _has_too_many(_STRING.sub(b"", line)):
        raise _EndedError(_TOO_MANY)
    return line


async def _write(process: Process, sent: Any, unanswered: _Unanswered) -> None:
    assert process.stdin
    with suppress(ConnectionError):  # who reads tells how it ended
        async for each in sent:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(f"{text}\n".encode())
            await process.stdin.drain()
            unanswered.answered(each.message)


async def _drain(process: Process, complaints: bytearray) -> None:
    """Read what the server says on standard error, so that it does not wait; keep the end of it."""
    assert process.stderr
    while piece := await process.stderr.read(_STDERR_BYTES):
        complaints += piece
        del complaints[:-_STDERR_BYTES]


async def _end(process: Process, mark: str) -> None:
    assert process.stdin
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await in_thread(kill_marked, mark)
    process._transport.close()  # type: ignore[attr-defined]  # nothing public closes pipes that others hold
    await process.wait()
