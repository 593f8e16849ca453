"""How far must a reader go? Files, and what one prompt, compaction, delta or refused field enters of them.

    python -m tests.benchmarks.bench_house

A file is entered where a function in it is called, in the thread of the event loop, on a runner or a model
that has done the same once before; a hop is a call in another file than the call before it. What a module
imports in the end are the imports at its top and at theirs, without what type checkers alone read. Nothing
is judged: these are figures to look at. Run as a file with another tree in PYTHONPATH, it counts that one.
"""

import ast
import asyncio
import inspect
import json
import json.decoder
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import agentloop
from agentloop import Agent, OpenAIChat, Runner, tool
from agentloop.models import ModelRequest
from agentloop.stream import TextDelta
from agentloop.testing import ScriptedModel
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, ExtractiveSummariser, Raw, Reply, calling, invalid

PACKAGE = Path(agentloop.__file__).parent
DECODE = json.decoder.JSONDecoder.decode.__code__
REFUSED = "Unknown parameter: 'stream_options'."
DELTAS, TURNS, RESULT_LINES = 6, 4, 60


@dataclass(frozen=True, slots=True)
class Entered:
    """One call of a function of ours, or a generator gone on with; `depth` is how many of ours hold it."""

    file: str
    function: str
    frame: FrameType
    depth: int

    @property
    def is_generator(self) -> bool:
        """Whether it is an asynchronous generator."""
        return bool(self.frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)


@dataclass(slots=True)
class Trace:
    """The calls of ours in this thread, in order, and who parsed the body of the refusal as JSON."""

    entered: list[Entered] = field(default_factory=list)
    parsers: list[str] = field(default_factory=list)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace what is done in the block."""
        sys.setprofile(self._noted)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _noted(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code is DECODE and REFUSED in str(frame.f_locals.get("s")):
            self.parsers.append(_outside_json(frame))
        if (file := _ours(code.co_filename)) is not None:
            self.entered.append(Entered(file, code.co_qualname, frame, _depth(frame)))


def _depth(frame: FrameType) -> int:
    depth, caller = 0, frame.f_back
    while caller is not None:
        depth += _ours(caller.f_code.co_filename) is not None
        caller = caller.f_back
    return depth


def _outside_json(frame: FrameType) -> str:
    caller = frame.f_back
    while caller is not None and Path(caller.f_code.co_filename).parent.name == "json":
        caller = caller.f_back
    assert caller is not None
    return caller.f_code.co_filename


def _ours(file: str) -> str | None:
    """A file of the package by its path in it; None for any other."""
    prefix = f"{PACKAGE}/"
    return file.removeprefix(prefix) if file.startswith(prefix) else None


def walked(entered: list[Entered]) -> str:
    """What a reader who follows these calls goes through."""
    files = {each.file for each in entered}
    functions = {(each.file, each.function) for each in entered}
    hops = sum(one.file != other.file for one, other in pairwise(entered))
    depth = max(each.depth for each in entered) + 1
    return f"{len(files)} files, {len(functions)} functions, {hops} hops between files, {depth} calls deep"


@tool
async def read(path: str) -> str:
    """Read a file.

    Args:
        path: The file.
    """
    return "\n".join(f"{path}:{number}: a line of text that was read" for number in range(RESULT_LINES))


async def second_of(act: Callable[[], Awaitable[object]]) -> list[Entered]:
    """The calls of what is done the second time."""
    await act()
    trace = Trace()
    with trace.on():
        await act()
    return trace.entered


async def scripted_prompt() -> list[Entered]:
    """One plain prompt, answered by a scripted model."""
    runner = Runner(Agent(ScriptedModel(["Hi", "Hi"])), transcripts=None)
    return await second_of(lambda: runner.run("Hello"))


async def prompt() -> list[Entered]:
    """One plain prompt, answered by a server."""
    with StrictProvider(lambda _: "Hi") as server:
        runner = Runner(Agent(OpenAIChat("strict", base_url=server.url)), transcripts=None)
        return await second_of(lambda: runner.run("Hello"))


def _reading(body: Mapping[str, Any]) -> Answered | str:
    if body["messages"][-1]["role"] == "tool":
        return "It is read, and nothing is wrong in it."
    return Reply(calls=(calling("read", path=f"src/file_{len(body['messages'])}.py"),))


async def compaction() -> list[Entered]:
    """One compaction with a summary, asked for by hand, of a session that reads files."""
    with StrictProvider(ExtractiveSummariser(_reading)) as server:
        model = OpenAIChat("strict", base_url=server.url, window=8_000)
        runner = Runner(Agent(model, tools=[read]), transcripts=None)
        for name in ("first", "second"):
            for _ in range(TURNS):
                await runner.run("Read one more file.", session_id=name)
        names = iter(("first", "second"))

        async def act() -> None:
            result = await runner.compact(next(names))
            assert result is not None, "nothing was compacted"

        return await second_of(act)


async def delta() -> list[Entered]:
    """The calls of one text delta, from the bytes of it to the reader: the next is sent when it was read."""
    read = threading.Semaphore(1)

    def pieces() -> Iterator[bytes]:
        for _ in range(DELTAS):
            read.acquire()
            yield _event({"content": "word "})
        yield _event({}, "stop")
        yield b"data: [DONE]\n\n"

    seen, trace = [], Trace()
    answer = Raw(pieces=pieces(), content_type="text/event-stream")  # type: ignore[arg-type]  # one by one
    with StrictProvider(lambda _: answer) as server, trace.on():
        runner = Runner(Agent(OpenAIChat("strict", base_url=server.url)), transcripts=None)
        async for event in runner.stream("Hello"):
            if isinstance(event, TextDelta):
                seen.append(list(trace.entered))
                read.release()
            trace.entered.clear()
    return seen[DELTAS // 2]


def _event(delta: Mapping[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %s\n\n" % json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


def generators(entered: list[Entered]) -> list[str]:
    """The generators of ours that are entered, but the one that the reader holds."""
    by_frame = {id(each.frame): f"{each.file}:{each.function}" for each in entered if each.is_generator}
    return list(by_frame.values())[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedField:
    """What one refused field takes, from its 400 to the request without it.

    `alone` are the calls of functions that a request that is taken does not enter.
    """

    between: list[Entered]
    alone: list[Entered]
    parsers: Counter[str]


async def refused_field() -> RefusedField:
    """A 400 that names an unknown parameter, as a model meets it that was answered before."""
    marks: list[int] = []
    trace, is_refused = Trace(), False

    def brain(body: Mapping[str, Any]) -> Answered | str:
        marks.append(len(trace.entered))
        return invalid(400, REFUSED) if is_refused and "stream_options" in body else "ok"

    with StrictProvider(brain) as server:
        model = OpenAIChat("strict", base_url=server.url)

        async def ask() -> list[Entered]:
            marks.clear()
            trace.entered.clear()
            with trace.on():
                async for _ in model.stream(ModelRequest(messages=({"role": "user", "content": "Hi"},))):
                    pass
            return list(trace.entered)

        await ask()
        taken = {(each.file, each.function) for each in await ask()}
        is_refused = True
        between = (await ask())[slice(*marks)]
    parsers = Counter("us" if _ours(file) else "the client" for file in trace.parsers)
    alone = [each for each in between if (each.file, each.function) not in taken]
    return RefusedField(between=between, alone=alone, parsers=parsers)


@dataclass(frozen=True, slots=True)
class House:
    """The modules of a tree, by their full names, and what each imports of them at its top."""

    files: Mapping[str, Path]
    imports: Mapping[str, frozenset[str]]

    @classmethod
    def at(cls, package: Path) -> "House":
        """The package in this folder."""
        files = {_module(path, package): path for path in sorted(package.rglob("*.py"))}
        trees = {name: ast.parse(path.read_text()) for name, path in files.items()}
        imports = {
            name: frozenset(_known(full, files) for full in _imported(tree)) - {name, ""}
            for name, tree in trees.items()
        }
        return cls(files, imports)

    def lines(self, names: frozenset[str]) -> int:
        """The lines of these modules."""
        return sum(len(self.files[name].read_text().splitlines()) for name in names)

    def below(self, names: frozenset[str]) -> frozenset[str]:
        """All that these modules import in the end, without themselves."""
        found, waiting = set(names), list(names)
        while waiting:
            new = self.imports[waiting.pop()] - found
            found |= new
            waiting.extend(new)
        return frozenset(found) - names

    def imported_once(self) -> list[str]:
        """The modules that exactly one other imports."""
        times = Counter(name for names in self.imports.values() for name in names)
        return sorted(name for name, count in times.items() if count == 1)

    def loaded(self, names: frozenset[str]) -> frozenset[str]:
        """What of ours a fresh interpreter has loaded when it has imported these."""
        code = f"import sys, {', '.join(names)}; print(*sys.modules)"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
        return frozenset(done.stdout.split()) & self.files.keys()

    def loop(self) -> frozenset[str]:
        """The loop alone."""
        return frozenset({"agentloop.run.state.loop", "agentloop.run.loop"} & self.files.keys())

    def running(self) -> frozenset[str]:
        """What runs: the package `run`, or the modules that were it."""
        inside = frozenset(name for name in self.files if name.startswith("agentloop.run.state."))
        return inside or frozenset(
            {"agentloop.run.state", "agentloop.run.loop", "agentloop.run.execute"} & self.files.keys()
        )


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _known(full: str, files: Mapping[str, Path]) -> str:
    """The module that an imported name is or stands in; empty where it is none of ours."""
    return next((name for name in (full, full.rpartition(".")[0]) if name in files), "")


def _imported(tree: ast.Module) -> Iterator[str]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def show(title: str, text: object) -> None:
    """One line of the report."""
    print(f"{title:32} {text}", flush=True)


def show_files(house: House) -> None:
    """What stands where, and what imports what."""
    flat = [path for path in PACKAGE.iterdir() if path.name not in ("__pycache__", "py.typed")]
    sizes = [house.lines(frozenset({name})) for name in house.files]
    once = house.imported_once()
    show("flat in agentloop/", f"{len(flat)} entries, {len(list(PACKAGE.glob('*.py')))} of them files")
    show("in all", f"{len(sizes)} files, {sum(sizes):,} lines, median file {median(sizes):.0f} lines")
    show("imported by exactly one other", f"{len(once)} modules, {len(once) / len(sizes):.0%}")
    for title, roots in (("the loop", house.loop()), ("what runs", house.running())):
        below = house.below(roots)
        files = f"{len(roots)} files, {house.lines(roots):,} lines"
        show(title, f"{files}; imports in the end {len(below)} modules, {house.lines(below):,} lines")
    loaded = house.loaded(house.running())
    show("loaded with what runs", f"{len(loaded)} modules, {house.lines(loaded):,} lines, with all faces")


async def show_ways() -> None:
    """What is entered on the way of a prompt, a compaction, a delta and a refusal."""
    show("a prompt, scripted model", walked(await scripted_prompt()))
    show("a prompt, OpenAIChat", walked(await prompt()))
    show("a compaction, OpenAIChat", walked(await compaction()))
    passed = generators(await delta())
    show("a text delta", f"{len(passed)} generators of ours, from the bytes to Runner.stream:")
    for name in reversed(passed):
        show("", name)
    field = await refused_field()
    parsed = ", ".join(f"{count}× by {who}" for who, count in sorted(field.parsers.items()))
    show("a refused field", f"{walked(field.between)}, from the 400 to the next request")
    show("  that a taken one spares", walked(field.alone))
    show("  its body is parsed as JSON", parsed)


def main() -> None:
    """Count and print."""
    show_files(House.at(PACKAGE))
    asyncio.run(show_ways())


if __name__ == "__main__":
    main()
