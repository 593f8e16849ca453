"""Tools of MCP servers: real servers over both transports, which answer, change, hang, lie and die."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Approve, Rules, RunContext, Runner
from agentloop.errors import ToolDefinitionError, UsageError
from agentloop.integrations import mcp
from agentloop.integrations.mcp import McpTools, mcp_tools
from agentloop.messages import ToolCall
from agentloop.prompts import INTERRUPTED
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent, ToolProgress
from agentloop.testing import ScriptedModel, calls
from agentloop.tools import ToolAnswer, ToolRegistry
from tests.cli_kit import agentloop, terminal
from tests.forks import environment
from tests.kit import assert_valid, until
from tests.mcp_plain_server import Behaviour, tool
from tests.mcp_sdk_server import listening
from tests.strict_provider import StrictProvider

PLAIN = Path(__file__).with_name("mcp_plain_server.py")
SDK = Path(__file__).with_name("mcp_sdk_server.py")


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "FIRST_WAIT_SECONDS", 0.01)
    for name in ("PATIENCE_SECONDS", "START_SECONDS"):  # no test is judged by a clock
        monkeypatch.setattr(mcp, name, 600.0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening() as (address, _):
        yield address


def plain(folder: Path, *lives: Behaviour, **more: Any) -> dict[str, Any]:
    """The entry of a plain server that behaves so in its lives."""
    file = folder / f"lives_{len(list(folder.iterdir()))}"
    file.write_text(f"{json.dumps(lives or [{}])}\n")
    return {"command": sys.executable, "args": ["-SE", str(PLAIN), str(file)], **more}


def named(**entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"mcpServers": entries}


async def answer_of(tools: McpTools, name: str, **arguments: Any) -> ToolAnswer:
    """What a call outside of any run is answered."""
    context = RunContext(session_id="s", run_id="r", call_id="c", deps=None)
    call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    return await ToolRegistry(tools.tools).answer(call, context)


async def added(tools: McpTools) -> None:
    """Call one of the tools until it answers, as it does once its server is back."""
    async with asyncio.timeout(120):
        while (await answer_of(tools, "add", a=2, b=3)).text != "5":
            pass


class Told:
    """What was told, and when."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._more.set()

    async def have(self, count: int) -> list[str]:
        """The lines, once there are so many."""
        while len(self.lines) < count:
            self._more.clear()
            await until(self._more)
        return self.lines


@asynccontextmanager
async def over_pipes(folder: Path, *lives: Behaviour, **given: Any) -> AsyncIterator[McpTools]:
    async with mcp_tools(named(plain=plain(folder, *lives)), **given) as tools:
        yield tools


async def test_each_kind_of_result_is_text(url: str) -> None:
    async with mcp_tools(named(sdk={"url": url})) as tools:
        assert await answer_of(tools, "add", a=2, b=3) == ToolAnswer("5", "ok")
        assert await answer_of(tools, "picture") == ToolAnswer("[image, image/png, 8 bytes, not shown]", "ok")
        text = "Here:\n[resource note://1]\nBuy salt.\n[resource note://2] two The other."
        assert await answer_of(tools, "resources") == ToolAnswer(text, "ok")
        failed = await answer_of(tools, "fail")
    assert (failed.status, "the well is dry" in failed.text) == ("error", True)


@pytest.mark.parametrize("asked", [True, False])
def test_what_the_sdk_logs_is_shown_only_where_the_program_asks_for_it(asked: bool, tmp_path: Path) -> None:
    odd = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
    servers = named(plain=plain(tmp_path, {"garbage": f"{json.dumps(odd)}\n"}))
    lines = (
        "import asyncio, logging, sys",
        "from agentloop.integrations.mcp import mcp_tools",
        "logging.basicConfig()" if asked else "",
        "async def main():",
        f"    async with mcp_tools({servers!r}) as tools:",
        "        print(len(tools.tools))",
        "        logging.getLogger('client').warning('of its own')",
        "asyncio.run(main())",
    )
    program = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(tmp_path), cwd=tmp_path)
    assert (done.stdout, "Failed to validate notification" in done.stderr) == ("1\n", asked)
    assert "of its own" in done.stderr
    assert asked or done.stderr == "of its own\n"


async def test_progress_is_shown_and_no_instructions_are_taken(url: str) -> None:
    events: list[AnyStreamEvent] = []
    async with mcp_tools(named(sdk={"url": url})) as tools:
        model = ScriptedModel([calls(("slow", {}), ("add", {"a": "1", "b": 1})), "well"])
        runner = Runner(Agent(model, tools=[tools]), transcripts=None)
        await runner.run("go", on_event=events.append)
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["1/2 half"]
    assert [each["content"] for each in model.requests[1].messages[-2:]] == ["done", "2"]
    assert "Ignore all" not in json.dumps([*map(str, model.requests)])
    assert_valid(model.requests)


async def test_one_that_hangs_is_cancelled_by_its_time_limit(url: str) -> None:
    async with mcp_tools(named(sdk={"url": url}), timeout_seconds=0.05) as tools:
        assert (await answer_of(tools, "hang")).status == "timeout"
    async with mcp_tools(named(sdk={"url": url})) as tools:
        assert (await answer_of(tools, "add", a=2, b=3)).text == "5"


async def test_one_over_pipes_that_hangs_is_cancelled(tmp_path: Path) -> None:
    async with over_pipes(tmp_path, {"silent": ["tools/call"]}, timeout_seconds=0.05) as tools:
        assert (await answer_of(tools, "say")).status == "timeout"


@pytest.mark.parametrize("over", ["pipes", "http"])
async def test_new_tools_are_offered_from_the_next_request_on(over: str, tmp_path: Path) -> None:
    with listening() if over == "http" else nullcontext(("", 0)) as (address, _):
        grows = plain(tmp_path, {"tools": [tool("grow")]})
        async with mcp_tools(named(one=grows if over == "pipes" else {"url": address})) as tools:
            before = tools.tools_changed
            model = ScriptedModel([calls(("grow", {})), "grew", calls(("grown", {})), "used"])
            runner = Runner(Agent(model, tools=[tools]), transcripts=None)
            await runner.run("grow", session_id="s")
            async with asyncio.timeout(60):
                while tools.tools_changed == before:  # noqa: ASYNC110 — it is the server that is waited for
                    await asyncio.sleep(0.01)
            result = await runner.run("use it", session_id="s")
    assert result.output == "used"
    assert "grown" not in str(model.requests[0].tools)
    assert "grown" in str(model.requests[2].tools)
    assert "no tool" not in str(model.requests[3].messages[-1]["content"])


async def test_names_that_clash_have_their_server_before_them(tmp_path: Path) -> None:
    odd: Behaviour = {"tools": [tool("say"), tool("files.read v2"), tool("x" * 99), tool("final_answer")]}
    source = named(a=plain(tmp_path, odd), b=plain(tmp_path, odd))
    async with mcp_tools(source, taken=["say"]) as tools:
        names = [each.name for each in tools.tools]
        assert names[:4] == ["a_say", "files_read_v2", "x" * 64, "a_final_answer"]
        assert names[4:] == ["b_say", "b_files_read_v2", f"b_{'x' * 62}", "b_final_answer"]
        assert (await answer_of(tools, "b_say", a=1)).text == '{"a": 1}'


async def test_names_that_clash_are_numbered_however_long_their_servers_is(tmp_path: Path) -> None:
    long, few = "s" * 64, [tool("say"), tool("say."), tool("say!")]
    source = {"mcpServers": {name: plain(tmp_path, {"tools": few}) for name in ("a", long, "final_answer")}}
    told = Told()
    async with mcp_tools(source, taken=["say", "say_"], tell=told) as tools:
        names = [each.name for each in tools.tools]
    assert names == ["a_say", "a_say_", "a_say__2", long, f"{'s' * 59}_2", f"{'s' * 59}_3"]
    assert told.lines == [
        f"MCP server 'final_answer': tool {name!r} is left out: no name is free for it"
        for name in ("say", "say.", "say!")
    ]


async def test_a_yes_that_waits_reaches_no_other_server_whose_tool_has_the_name_by_then(
    tmp_path: Path,
) -> None:
    one, two = (plain(tmp_path, {"tools": [tool("wipe")]}) for _ in "ab")
    store, rules = InMemoryStore(), Rules(ask=["wipe"])

    def runner_with(tools: McpTools, *said: Any) -> Runner:
        agent = Agent(ScriptedModel(said), tools=[tools])
        return Runner(agent, store=store, transcripts=None, rules=rules)

    async with mcp_tools(named(one=one, two=two)) as tools:
        [waits] = (await runner_with(tools, calls(wipe={})).run("go", session_id="s")).pending
    assert (waits.tool, waits.server) == ("wipe", "one")
    yes = {waits.call_id: Approve()}
    async with mcp_tools(named(two=two)) as tools:
        with pytest.raises(UsageError, match="is of MCP server 'two' now"):
            await runner_with(tools).resume("s", answers=yes)
    async with mcp_tools(named(one=one)) as tools:
        assert (await runner_with(tools, "wiped").resume("s", answers=yes)).output == "wiped"


async def test_a_server_s_tool_is_of_no_kind_though_it_has_the_name_of_a_built_in_one(tmp_path: Path) -> None:
    entry = plain(tmp_path, {"tools": [tool("run_command"), tool("write_file")]})
    both = calls(("run_command", {"command": "ls"}), ("write_file", {"path": "a"}))
    async with mcp_tools(named(one=entry)) as tools:
        agent = Agent(ScriptedModel([both, "done"]), tools=[tools])
        asks = Rules(allow=["write", "shell"], ask=["*_*"])
        result = await Runner(agent, transcripts=None, rules=asks).run("go")
    assert [(each.tool, each.server) for each in result.pending] == [
        ("run_command", "one"),
        ("write_file", "one"),
    ]


async def test_what_a_server_lists_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "MOST_MCP_TOOLS", 3)
    many: Behaviour = {"tools": [tool(f"t{number}", "d" * 5_000) for number in range(9)]}
    large: Behaviour = {"tools": [tool("large", text={"enum": ["v" * 40_000]}), tool("well")]}
    told = Told()
    async with mcp_tools(named(many=plain(tmp_path, many), large=plain(tmp_path, large)), tell=told) as tools:
        assert [each.name for each in tools.tools] == ["t0", "t1", "t2", "well"]
        assert [len(each.description) for each in tools.tools] == [1_024, 1_024, 1_024, 0]
    assert "MCP server 'many' has more than 3 tools: others are left out" in told.lines
    assert "MCP server 'large': tool 'large' is left out: its schema has over 32,000 characters" in told.lines


async def test_garbage_on_standard_output_is_passed_over(tmp_path: Path) -> None:
    garbage = 'Hello \u2028\n{"jsonrpc": 1}\n[]\n\n{"jsonrpc": "2.0", "id": 99, "result": {}}\n'
    async with over_pipes(tmp_path, {"garbage": garbage}) as tools:
        assert (await answer_of(tools, "say", text="on")).text == '{"text": "on"}'


@pytest.mark.parametrize(
    ("words", "bound"),
    [("x" * 16_100_000, "16,000,000 bytes"), (f"[{'{},' * 100_000}{{}}]\n", "100,000 lists and objects")],
    ids=["long", "many"],
)
async def test_a_message_beyond_all_bounds_ends_the_server(words: str, bound: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"did not start: it sent a message of more than {bound}$"):
        async with over_pipes(tmp_path, {"garbage": words}):
            pass


async def test_lists_in_a_text_are_none_of_the_message(tmp_path: Path) -> None:
    async with over_pipes(tmp_path, {}) as tools:
        text = '{"a": []}' * 60_000
        assert json.loads((await answer_of(tools, "say", text=text)).text) == {"text": text}


async def test_one_that_asks_for_ever_and_reads_no_answer_is_ended(tmp_path: Path) -> None:
    asks = '{"jsonrpc": "2.0", "id": 5, "method": "ping"}\n' * 1_000
    with pytest.raises(UsageError, match="did not start: it asks more than 100 things and reads no answer"):
        async with over_pipes(tmp_path, {"only_says": asks}):
            pass


async def test_one_that_asks_a_little_is_answered(tmp_path: Path) -> None:
    asks = '{"jsonrpc": "2.0", "id": 5, "method": "ping"}\n' * 50
    async with over_pipes(tmp_path, {"garbage": asks}) as tools:
        assert (await answer_of(tools, "say", text="on")).text == '{"text": "on"}'


@pytest.mark.many(60, 5)
@given(st.integers(1, 9), st.sampled_from(["before", "amid", "after"]))
async def test_one_that_dies_at_a_drawn_moment_is_told_of_and_begun_again(at: int, how: str) -> None:
    told = Told()
    asked = [f"n{number}" for number in range(5)]
    with TemporaryDirectory() as folder:
        try:
            async with over_pipes(Path(folder), {"die_at": at, "die": how}, {}, tell=told) as tools:
                model = ScriptedModel([*(calls(("say", {"text": text})) for text in asked), "done"])
                result = await Runner(Agent(model, tools=[tools]), transcripts=None).run("go")
                answers = [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"]
                if at <= 8:
                    await told.have(1)
        except UsageError as error:
            said = "MCP server 'plain' did not start: [exit status 7] Fatal: no more"
            assert (at <= 4, str(error)) == (True, said)  # noqa: PT017 — it may start, too
            return
    assert result.output == "done"
    assert_valid(model.requests)
    lost = [text for text in answers if text.startswith(INTERRUPTED)]
    assert len(lost) <= 1
    assert [text for text in answers if text not in lost] == [
        json.dumps({"text": text}) for text, answer in zip(asked, answers, strict=True) if answer not in lost
    ]
    assert all(
        "MCP server 'plain': [exit status 7] Fatal: no more; it is started again" in line
        for line in told.lines
    )


async def test_servers_are_left_at_once_also_while_one_of_them_dies(tmp_path: Path) -> None:
    async def leave(turns: int) -> None:
        async with over_pipes(tmp_path, {"die_at": 5}, {}, tell=list) as tools:
            assert (await answer_of(tools, "say")).text.startswith(INTERRUPTED)
            for _ in range(turns):
                await asyncio.sleep(0)

    leaving = [asyncio.create_task(leave(turns)) for turns in (0, 0, 0, 1, 2, 3)]
    assert not (await asyncio.wait(leaving, timeout=120))[1]
    await asyncio.gather(*leaving)


async def test_waits_grow_while_a_server_dies_again_and_again(tmp_path: Path) -> None:
    told = Told()
    async with over_pipes(tmp_path, {"die_at": 5}, {"die_at": 1}, tell=told) as tools:
        assert (await answer_of(tools, "say")).text.startswith(INTERRUPTED)
        lines = await told.have(4)
    assert [line.split()[-2] for line in lines[:4]] == ["0.01", "0.02", "0.04", "0.08"]


async def test_a_call_to_one_that_is_gone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(mcp, "FIRST_WAIT_SECONDS", 60.0)
    told = Told()
    async with over_pipes(tmp_path, {"die_at": 5}, tell=told) as tools:
        await answer_of(tools, "say")
        await told.have(1)
        answer = await answer_of(tools, "say")
    said = "say was not called: MCP server 'plain' is not there: [exit status 7] Fatal: no more"
    assert answer == ToolAnswer(said, "error")
    assert (await answer_of(tools, "say")).text.endswith("is not there: it was left")


@pytest.mark.deep
async def test_one_over_http_is_found_again() -> None:
    told = Told()
    with listening() as (address, port):
        kept = mcp_tools(named(sdk={"url": address}), tell=told, timeout_seconds=20)
        tools = await kept.__aenter__()
        hanging = asyncio.create_task(answer_of(tools, "hang"))
        assert (await answer_of(tools, "add", a=2, b=3)).text == "5"
    try:
        assert (await hanging).status == "error"
        with listening(port):
            await added(tools)
    finally:
        await kept.__aexit__(None, None, None)


@pytest.mark.deep
async def test_a_process_made_with_the_sdk_dies_and_comes_back() -> None:
    told = Told()
    entry = {"command": sys.executable, "args": ["-m", "tests.mcp_sdk_server"], "cwd": str(SDK.parent.parent)}
    async with mcp_tools(named(sdk=entry), tell=told) as tools:
        assert (await answer_of(tools, "add", a=2, b=3)).text == "5"
        assert (await answer_of(tools, "die")).text.startswith(INTERRUPTED)
        assert await told.have(1) == ["MCP server 'sdk': [exit status 5]; it is started again in 0.01 s"]
        await added(tools)


async def test_a_server_sees_no_secret_but_those_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN_API_KEY", "sk-hidden-0123456789")
    monkeypatch.setenv("GIVEN_TOKEN", "given-0123456789")
    lists: Behaviour = {"tools": [tool("environment")]}
    env = {"MINE": "${GIVEN_TOKEN}", "PLACE": "${NO_SUCH_PLACE:-here}"}
    async with mcp_tools(named(plain=plain(tmp_path, lists, env=env))) as tools:
        seen = json.loads((await answer_of(tools, "environment")).text)
    assert (seen["MINE"], seen["PLACE"]) == ("given-0123456789", "here")
    assert {"HIDDEN_API_KEY", "GIVEN_TOKEN"}.isdisjoint(seen)


async def test_servers_start_side_by_side_and_end_with_the_block(tmp_path: Path) -> None:
    pipes = [str(tmp_path / f"pipe_{at}") for at in range(3)]
    for pipe in pipes:
        os.mkfifo(pipe)
    # Each waits for the one before it and the one behind it, so that none answers before all have begun.
    meets = [[(pipes[0], "w"), (pipes[2], "r")], *([(pipes[at - 1], "r"), (pipes[at], "w")] for at in (1, 2))]
    lives: list[Behaviour] = [{"tools": [tool("process")], "meets": each} for each in meets]
    source = named(**{name: plain(tmp_path, life) for name, life in zip("abc", lives, strict=True)})
    async with mcp_tools(source) as tools:
        answers = [await answer_of(tools, name) for name in ("process", "b_process", "c_process")]
    for answer in answers:
        with pytest.raises(ProcessLookupError):
            os.kill(int(answer.text), 0)


def test_calls_from_another_event_loop_are_refused(tmp_path: Path) -> None:
    async def entered() -> ToolAnswer:
        async with over_pipes(tmp_path) as tools:
            return await asyncio.to_thread(lambda: asyncio.run(answer_of(tools, "say")))

    assert "on the event loop on which it was entered: use a Runner there" in asyncio.run(entered()).text


def test_servers_that_were_not_entered_are_no_tool() -> None:
    with pytest.raises(ToolDefinitionError, match=r"enter it by `async with … as tools`, and give these"):
        Agent(ScriptedModel([]), tools=[mcp_tools(named())])


BAD: list[tuple[Any, str]] = [
    (7, "an MCP configuration is the path of a file, or a mapping, not 7"),
    ("missing.json", "MCP file: 'missing.json' cannot be read: No such file or directory: check the path"),
    ("~no-user/a.json", "MCP file: '~no-user/a.json' is the home of no user: write the path"),
    ({}, 'the MCP configuration names no servers: write {"mcpServers"'),
    ({"mcpServers": []}, "the MCP configuration names no servers"),
    (named(x=[]), "the MCP configuration: MCP server 'x' must be an object, not []"),  # type: ignore[arg-type]
    ({"mcpServers": {"": {}}}, "the MCP configuration: '' is no name of a server"),
    (named(x={}), "MCP server 'x': give it either a command or a url"),
    (named(x={"command": "a", "url": "http://a"}), "MCP server 'x': give it either a command or a url"),
    (named(x={"command": 7}), "MCP server 'x': command must be a text, not int"),
    (named(x={"command": "a", "args": "b"}), "MCP server 'x': args must be a list of texts, not str"),
    (named(x={"command": "a", "args": [7]}), "MCP server 'x': args must be a list of texts, not of 7"),
    (named(x={"command": "a", "arg": []}), "MCP server 'x': there is no key 'arg': did you mean 'args'?"),
    (
        named(x={"command": "a", "env": {"A": 1}}),
        "MCP server 'x': env must be texts by name, and 'A' is none",
    ),
    (named(x={"command": "a", "disabled": 1}), "MCP server 'x': disabled must be true or false, not int"),
    (named(x={"command": "a", "type": "http"}), "MCP server 'x': its type cannot be 'http'"),
    (named(x={"url": "http://a", "type": "sse"}), "MCP server 'x': its type cannot be 'sse'"),
    (named(x={"url": "ftp://a"}), "MCP server 'x': its url must begin with http:// or https://"),
    (named(x={"url": "http://a", "headers": {"a b": "c"}}), "MCP server 'x': headers: bad name 'a b'"),
    (
        named(x={"command": "${NOT_SET_ANYWHERE}"}),
        "MCP server 'x': command names the variable NOT_SET_ANYWHERE",
    ),
    (named(x={"command": "/no/such/program"}), "MCP server 'x' did not start: '/no/such/program' cannot be"),
    (named(x={"command": "/no/such/program"}), ": check its command and cwd"),
    (named(x={"url": "http://127.0.0.1:9/mcp?key=a"}), "did not start: http://127.0.0.1:9/mcp: "),
    (named(x={"url": "http://127.0.0.1:9/mcp"}), ": check its url and headers, and that it runs"),
    (
        named(x={"command": sys.executable, "args": ["-c", "1/0"]}),
        "did not start: [exit status 1] ZeroDivision",
    ),
]


@pytest.mark.parametrize("bad", [{"timeout_seconds": 0}, {"taken": "say"}, {"taken": 7}, {"tell": None}])
async def test_what_is_no_argument_is_one_clear_line(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(bad))} must be|^taken must be .*, and tell"):
        async with mcp_tools(named(), **bad):
            pass


@pytest.mark.parametrize(("source", "told"), BAD)
@pytest.mark.whole
async def test_what_is_no_server_is_one_clear_line(source: Any, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        async with mcp_tools(source):
            pass
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_server_that_refuses_says_where_and_how() -> None:
    with StrictProvider(key="sk-test") as provider:
        place = f"{provider.url}/mcp"
        said = f"^MCP server 'x' did not start: {place}: HTTP status 40[14]: check its url and headers"
        with pytest.raises(UsageError, match=said):
            async with mcp_tools(named(x={"url": place, "headers": {"authorization": "Bearer no"}})):
                pass


async def test_keys_of_other_programs_are_passed_over_and_disabled_servers_left(tmp_path: Path) -> None:
    off = {"command": "/no/such/program", "disabled": True}
    source = plain(tmp_path, alwaysAllow=["say"], type="stdio")
    async with mcp_tools(named(on=source, off=off)) as tools:
        assert [each.name for each in tools.tools] == ["say"]
    with pytest.raises(UsageError, match="two MCP servers are called 'on': rename one"):
        async with mcp_tools(named(on=source), named(on=source)):
            pass


@pytest.mark.deep
def test_the_command_line_has_tools_of_servers(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text(json.dumps(named(plain=plain(tmp_path))))
    said = 'Use say with {"text": "over pipes"}'
    done = agentloop("-p", said, "-m", "offline", "--mcp", "servers.json", cwd=tmp_path)
    assert (done.status, '{"text":' in done.out) == (0, True), done.err
    assert "--mcp servers.json" in done.err.splitlines()[-1]


def test_what_a_server_printed_before_it_ended_is_told_without_secrets(tmp_path: Path) -> None:
    fails = {"command": sys.executable, "args": ["-c", "exit('no access with AKIA' + 'ABCDEFGHIJKLMNOP')"]}
    (tmp_path / "servers.json").write_text(json.dumps(named(x=fails)))
    done = agentloop("-p", "hello", "-m", "offline", "--mcp", "servers.json", cwd=tmp_path)
    told = "MCP server 'x' did not start: [exit status 1] no access with [redacted: AWS key id]"
    assert (done.status, told in done.err) == (2, True), done.err


def test_servers_found_in_the_folder_are_used_after_a_yes_alone(tmp_path: Path) -> None:
    found = tmp_path / ".mcp.json"
    found.write_text(json.dumps(named(plain=plain(tmp_path))))
    lives = next(tmp_path.glob("lives_*"))
    done = agentloop("-p", "hello", "-m", "offline", cwd=tmp_path)
    assert f"the MCP servers of {found} are not used: --mcp .mcp.json uses them" in done.err
    assert lives.read_text().count("\n") == 1
    for typed, started in (("n\n", []), ("y\n", ["x"])):
        with terminal("-m", "offline", "--no-session", cwd=tmp_path) as shown:
            assert str(PLAIN) in shown.wait_for("Use them?")
            shown.type(typed)
            shown.wait_for("Ctrl-D ends")
            assert lives.read_text().splitlines()[1:] == started
            shown.type("/quit\n")
            assert shown.end() == 0
