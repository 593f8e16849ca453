"""What runs, made of the settings: model, tools, callbacks, instructions, runner.

`build` is the whole of it. Below it stand what users name by `MODULE:NAME`, whose code may do anything while
it loads, and the instructions that the files of a project give.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from rich.console import Console

from agentloop._plumbing.encodings import decoded
from agentloop._plumbing.files import beginning_of, read_path, text_of
from agentloop._plumbing.to_text import raised_at
from agentloop._plumbing.truncate import few, head
from agentloop.approvals import Approver
from agentloop.callbacks import Callbacks, checked_callbacks
from agentloop.cli.files import project_folders
from agentloop.cli.mcp import unused_notice, with_mcp
from agentloop.cli.options import MEMORY, OFFLINE
from agentloop.cli.process import before_leaving
from agentloop.cli.settings import Settings
from agentloop.cli.terminal import run_to_end, warn
from agentloop.cli.values import json_object, read
from agentloop.compaction import Compaction
from agentloop.context import DEFAULT_WINDOW
from agentloop.errors import AgentLoopError, UsageError
from agentloop.models import ChatModel
from agentloop.providers.offline import OfflineModel
from agentloop.redaction import Redact, checked_redaction
from agentloop.rules import KINDS, Rules
from agentloop.run import Agent, Limits, check_priced
from agentloop.runner import Runner
from agentloop.sessions import Leases, describe
from agentloop.stores import open_store
from agentloop.stores.base import Lease
from agentloop.tools import Tool, ToolSet, is_tool
from agentloop.toolsets import Background, Todo
from agentloop.triggers import WindowFraction
from agentloop.workspace import workspace_tools

AnyTool: TypeAlias = Tool | ToolSet | Callable[..., Any]
DEFAULT = (
    "You are a careful assistant that works with tools. Do what the user asks, completely: use the tools "
    "for facts instead of guessing, and when the work is done, answer with the result alone."
)
DEFAULT_WITHOUT_TOOLS = (
    "You are a careful assistant. Do what the user asks, completely, and answer with the result alone. "
    "Where you do not know a fact, say so instead of guessing."
)
_FALLBACK = (
    "no OPENAI_API_KEY and no base URL: the offline model answers, a rule-based stand-in that "
    "reads files, and calls tools that you name"
)
NO_TOOLS = "none"
"""In place of a module: not even the built-in tools."""

FILE = "AGENTS.md"
LONGEST_CHARS = 32_000
"""The most that all files together may have; agents that read such files use about as much."""
_MOST_BYTES = 4 * LONGEST_CHARS + 1
"""Enough to tell that a file is longer: a character has at most four bytes."""
_MODELS = {"chat": "OpenAIChat", "responses": "OpenAIResponses"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetup:
    """What runs, and what the user should know about how it was chosen."""

    agent: Agent
    callbacks: tuple[Callbacks, ...]
    notices: tuple[str, ...]


def build(settings: Settings) -> AgentSetup:
    """The agent of a call.

    Raises:
        UsageError: a tool, a callback or the model cannot be had as asked for.
    """
    settings, chosen = choose_model(settings)
    model = make_model(settings.model, settings)
    compaction = _compaction(settings)
    allow = [kind for kind in KINDS if settings.rules.offer(kind)]
    built_in = workspace_tools(settings.workdir, allow=allow, pass_env=settings.pass_env)
    tools = [
        *(() if NO_TOOLS in settings.tools else built_in),
        *_tool_sets(settings),
        *load_tools([name for name in settings.tools if name != NO_TOOLS]),
    ]
    default = DEFAULT if tools or settings.mcp else DEFAULT_WITHOUT_TOOLS
    instructions = settings.system if settings.system_file is None else settings.system_file
    cut = None
    if instructions is None:
        window = settings.window or model.window
        instructions, cut = default_instructions(settings.workdir, window=window, default=default)
    agent = Agent(
        model,
        tools=tools,
        instructions=instructions,
        compaction=compaction,
        max_steps=settings.max_steps,
        recall=not settings.no_recall,
        output=load_schema(settings.schema) if settings.schema else None,
    )
    _check_cost_limit(settings.limits, agent)
    fallback = _FALLBACK if settings.model_is_fallback else None
    notices = [cut, chosen, fallback, settings.resumed_with, unused_notice(settings)]
    for rule, no in settings.rules.overruled:
        notices.append(f"--{no} wins over --{rule}: no such call runs")
    return AgentSetup(
        agent=agent,
        callbacks=tuple(map(load_callback, settings.callbacks)),
        notices=tuple(filter(None, notices)),
    )


def _check_rules(rules: Rules, agent: Agent) -> None:
    known = [*KINDS, *agent.registry]
    for name in rules.names:
        if not any(fnmatchcase(each, name) for each in known):
            raise UsageError(
                f"no tool is called {name!r}: --allow, --ask and --deny take write, shell, or one of "
                f"{few(list(agent.registry))}"
            )


def _tool_sets(settings: Settings) -> Iterator[ToolSet]:
    if settings.todo:
        yield Todo()
    if settings.skills:
        yield settings.skills
    if settings.background:
        yield Background(workdir=settings.workdir, pass_env=settings.pass_env)


def _compaction(settings: Settings) -> Compaction | None:
    if settings.compact_at is None:
        return None
    writer = make_model(settings.summary_model, settings) if settings.summary_model else None
    return Compaction(trigger=WindowFraction(settings.compact_at), model=writer)


def _check_cost_limit(limits: Limits, agent: Agent) -> None:
    try:
        check_priced(limits, *agent.all_models)
    except UsageError as error:
        what = str(error).partition("; ")[0]  # what follows is advice for Python
        raise UsageError(f"--max-cost: {what}: limit --max-tokens instead") from error


def choose_model(settings: Settings) -> tuple[Settings, str | None]:
    """The settings with the one model of a server of one's own, where none is named; and what to say of it.

    Raises:
        UsageError: the server has several, and none by the name that holds elsewhere.
    """
    if not settings.asks_for_model:
        return settings, None
    names = run_to_end(import_module("agentloop.cli.models").names_at(settings))
    if names is None or settings.model in names:
        return settings, None
    if len(names) > 1:
        raise UsageError(f"no model is named, and the server has {few(names)}: name one by -m")
    if names:
        return replace(settings, model=names[0]), None
    told = f"the server says of no model that it has it: {settings.model} is asked for; -m names another"
    return settings, told


def make_model(name: str, settings: Settings) -> ChatModel:
    """The offline model, or the one of that name on the server of the settings."""
    if name == OFFLINE:
        return OfflineModel(window=settings.window)
    if not settings.names_server:
        raise UsageError(
            f"model {name!r} needs a server: set OPENAI_API_KEY or give --base-url; -m offline needs none"
        )
    # The client loads only here: it takes most of the start-up time.
    provider = import_module("agentloop.providers.openai")
    provider.ServerChoice(model=name, **settings.server).server()
    model: ChatModel = getattr(provider, _MODELS[settings.api])(
        name,
        **settings.server,
        window=settings.window,
        stream=not settings.no_stream,
        timeout_seconds=settings.timeout_seconds,
        temperature=settings.temperature,
        extra_body=settings.extra,
    )
    return model


def window_notice(model: ChatModel) -> str | None:
    """That nobody knows how much the model takes, once its server had its say; else None."""
    if model.window is not None or model.name == OFFLINE:
        return None
    return (
        f"the window of {model.name!r} is not known: {DEFAULT_WINDOW // 1000}k is assumed until the "
        "server says otherwise; --window sets it"
    )


@asynccontextmanager
async def make_runner(
    built: AgentSetup, settings: Settings, console: Console, approver: Approver | None = None
) -> AsyncIterator[Runner]:
    """A runner for the settings' store, with the tools of MCP servers; a run that has to wait says so."""

    def waits(lease: Lease) -> None:
        warn(console, f"waiting for the session: {describe(lease)}")

    async with with_mcp(built.agent, settings, console) as agent:
        _check_rules(settings.rules, agent)
        runner = Runner(
            agent,
            store=open_store(settings.store),
            callbacks=built.callbacks,
            transcripts=settings.transcripts,
            folder=str(settings.workdir),
            redact=settings.redact,
            when_busy=Leases(when_busy=settings.when_busy, waits=waits),
            owner=settings.owner,
            ttl_seconds=settings.ttl_seconds,
            approver=approver,
            rules=settings.rules,
        )
        async with runner:
            yield runner


@contextmanager
def store_nothing(settings: Settings, *, transcripts_given: bool) -> Iterator[Settings]:
    """The settings of a call that leaves nothing behind: transcripts go at its end, unless asked for."""
    folder = TemporaryDirectory(prefix="agentloop-")
    with folder, before_leaving(folder.cleanup):
        transcripts = settings.transcripts if transcripts_given else Path(folder.name)
        yield replace(settings, store=MEMORY, transcripts=transcripts)


def load_tools(names: Sequence[str]) -> list[AnyTool]:
    """The tools and sets of each `MODULE` or `MODULE:NAME`, in order, one that is named twice only once.

    Raises:
        UsageError: a module does not import, or what it names holds no tool.
    """
    found: dict[int, AnyTool] = {}
    for name in names:
        found |= {id(tool): tool for tool in _tools_of(name)}
    return list(found.values())


def _tools_of(spec: str) -> list[AnyTool]:
    module_name, _, name = spec.partition(":")
    module = _import("--tools", module_name)
    if name:
        value = _attribute("--tools", module, name)
        tools = list(value) if isinstance(value, list | tuple) else [value]
    else:
        tools = [value for value in vars(module).values() if is_tool(value) or isinstance(value, ToolSet)]
    if not tools:
        raise UsageError(f"--tools: {spec} holds no tool: put @tool above a function")
    for tool in tools:
        is_one = is_tool(tool) or isinstance(tool, ToolSet)
        if not is_one and (not callable(tool) or isinstance(tool, type)):
            raise UsageError(
                f"--tools: {spec}: {type(tool).__name__} is no tool: name a function or a list of them"
            )
    return tools


def load_callback(spec: str) -> Callbacks:
    """The callback at `MODULE:NAME`: a class, which is called without arguments, or an object.

    Raises:
        UsageError: the module does not import, or what it names is no callback.
    """
    value = _object("--callbacks", spec, "names no object: write MODULE:NAME")
    if isinstance(value, type):
        with _explain_faults("--callbacks", f"{spec} cannot be made without arguments"):
            value = value()
    with _explain_faults("--callbacks", f"{spec} is no callback"):
        return checked_callbacks([value])[0]


def load_schema(spec: str) -> Any:
    """The JSON schema in a file, or the type at `MODULE:NAME`.

    Raises:
        UsageError: it cannot be had, or is none that an answer can be held to.
    """
    if spec.lstrip().startswith("{"):
        raise UsageError("--schema: the schema itself cannot stand there: put it in a file and name that")
    path = read("--schema", spec, read_path)
    if path.exists():
        example = '{"type": "object"}'
        wanted = read("--schema", spec, lambda _: json_object(text_of(path), spec, example))
    elif ":" in spec:
        wanted = _object("--schema", spec, "names no type: write MODULE:NAME")
    else:
        raise UsageError(f"--schema: there is no {spec!r}: check the path, or name a type as MODULE:NAME")
    with _explain_faults("--schema", f"{spec} is no type of an answer"):
        return Agent(OfflineModel(), output=wanted).output


def load_redaction(option: str, spec: str) -> Redact:
    """The redaction at `MODULE:NAME`: a function from text to text, or an object that is called like one.

    Raises:
        UsageError: the module does not import, or what it names takes no text and gives none.
    """
    value = _object(option, spec, "names no function: write MODULE:NAME, or off")
    with _explain_faults(option, f"{spec} is no redaction"):
        return checked_redaction(value)


def _object(option: str, spec: str, fault: str) -> Any:
    module_name, _, name = spec.partition(":")
    if not name:
        raise UsageError(f"{option}: {spec!r} {fault}")
    return _attribute(option, _import(option, module_name), name)


def _import(option: str, name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        raise UsageError(f"{option}: {name!r} is a file: name the module, e.g. {Path(name).stem}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{option}: {name!r} is no module name: write it as in import")
    with _explain_faults(option, f"module {name!r} does not import"), _looking_here(name):
        if find_spec(name.partition(".")[0]) is None:
            raise UsageError("it is neither installed nor in this folder")
        return import_module(name)


class _AsWritten(SourceFileLoader):
    """Runs the source that a person can read, whatever bytecode lies beside it."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Named:
    """Finds one module and its packages, as they are written."""

    def __init__(self, name: str) -> None:
        parts = name.split(".")
        self._names = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._names else None
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _AsWritten(spec.name, spec.loader.path)
        return spec


@contextmanager
def _looking_here(name: str) -> Iterator[None]:
    """In the block that module is looked for in the folder of the call too, after all that is installed."""
    here, finder = str(Path.cwd()), _Named(name)
    sys.path.append(here)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(here)


def _attribute(option: str, module: ModuleType, name: str) -> Any:
    with _explain_faults(option, f"module {module.__name__!r} does not give {name!r}"):
        if hasattr(module, name):
            return getattr(module, name)
    near = get_close_matches(name, vars(module), n=1)
    way = f"did you mean {near[0]!r}?" if near else f"it is {module.__file__}"
    raise UsageError(f"{option}: module {module.__name__!r} has no {name!r}: {way}")


@contextmanager
def _explain_faults(option: str, what: str) -> Iterator[None]:
    """A user's code may raise anything, and end the program: all of it becomes one line with its place."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may do anything while it loads, also call sys.exit
        place = "" if isinstance(error, SyntaxError) else raised_at(error)  # it names its own
        name = "" if isinstance(error, AgentLoopError) else f"{type(error).__name__}: "
        fault = " ".join(f"{name}{error}".split()) + (f" ({place})" if place else "")
        raise UsageError(f"{option}: {what}: {fault}") from error


def default_instructions(
    workdir: Path, *, window: int | None, default: str = DEFAULT
) -> tuple[str, str | None]:
    """The system prompt for that folder, and a notice where files had to be cut.

    The files of the folders from the root of the project (the nearest folder above with a `.git`) down
    to `workdir` follow the default, the nearest one last. Together they get at most `LONGEST_CHARS`, and
    in a small window, given in tokens, half a character a token, which is about an eighth of it. A file
    that leads out of the project is passed over: what it holds was never meant for a model's server.
    """
    room = LONGEST_CHARS if window is None else min(LONGEST_CHARS, window // 2)
    folders = project_folders(workdir)
    root = os.path.realpath(folders[-1])
    parts, cut, outside = [default], list[Path](), list[Path]()
    for path in [folder / FILE for folder in reversed(folders) if (folder / FILE).is_file()]:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root):
            outside.append(path)
            continue
        text = _read_file(real)
        if not text:
            continue
        if len(text) > room:
            cut.append(path)
            text = f"{head(text, room)}\n[cut: {FILE} is longer than its share of {room:,} characters]"
        parts.append(f"Instructions from {path}:\n{text}")
        room = max(0, room - len(text))
    told = [
        (cut, "cut, the files do not fit their share of the window"),
        (outside, "not read, a link that leads out of the project"),
    ]
    notices = [f"{', '.join(map(str, paths))}: {what}" for paths, what in told if paths]
    return "\n\n".join(parts), "; ".join(notices) or None


def _read_file(path: Path) -> str:
    """What the file says; nothing where it cannot be read, or has become a link since it was looked at."""
    with suppress(OSError, ValueError):
        return decoded(bytes(beginning_of(path, _MOST_BYTES, follows_links=False))).strip()
    return ""
