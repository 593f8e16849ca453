"""Tools: functions that a model may call.

`@tool` marks a function and leaves it callable as it was; `Tool.of` reads how a function looks to a
model; `ToolRegistry` answers the model's calls. A tool's failure is an answer, never an exception.
"""

import contextlib
import difflib
import functools
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

from agentloop._plumbing.aio import call_sync_or_async, within
from agentloop._plumbing.callables import is_async, name_of, without_partials
from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import cleaned
from agentloop.approvals import Reject
from agentloop.errors import ToolDefinitionError
from agentloop.messages import Json, ToolCall
from agentloop.rules import KINDS, Kind, Rules, Verdict
from agentloop.tools.invoke import (
    ArgumentsError,
    BoundArguments,
    RunThread,
    ToolAnswer,
    answer_call,
    object_of,
)
from agentloop.tools.run_context import RunContext

DEFAULT_TIMEOUT_SECONDS = 120.0

MOST_SCHEMA_DEPTH = 128
MOST_DESCRIPTION_CHARS = 1_024
"""Azure refuses longer ones: https://learn.microsoft.com/azure/ai-services/openai/how-to/function-calling."""

F = TypeVar("F", bound=Callable[..., Any])
Thread: TypeAlias = Literal["own"]
Needs: TypeAlias = bool | Callable[[RunContext[Any], Json], bool | Reject | Awaitable[bool | Reject]]
"""Whether a call needs a person's yes, or what says so of its arguments; a `Reject` is a no unasked."""

_NAME = pattern(r"[a-zA-Z0-9_-]{1,64}")
_MARK = "__agentloop_tool__"
_DENIED = "a rule denies it"


class Signature(Protocol):
    """How a function is described and called; `parameters` is a JSON schema."""

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Json: ...

    def bind(self, context: RunContext[Any], arguments: Json) -> BoundArguments:
        """What to call the function with, the arguments checked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function and how a model sees it.

    `parameters` is the JSON schema of its arguments, which are held to it. One that is `idempotent` may run
    again after an interruption. A call may take `timeout_seconds`. Results of a tool with `keep` are
    shortened only where no request would fit else. All calls of a run to plain functions with
    `thread="own"` are made on one thread, one after the other, for what must stay on one: it begins with
    the first of them and ends with the run. Other plain functions run in a thread for each call.
    With `needs_approval` no call is run before somebody said yes to it; a function of the context and the
    arguments says so call by call, may say no with a `Reject(why)`, and where it fails the yes is needed.
    `kind` says that rules of that kind speak of it: "write" of one that writes to its argument `path`,
    "shell" of one that runs its argument `command`. `server` is the MCP server that it is of.

    Raises:
        ToolDefinitionError: the name is none that servers accept, the description no text, the parameters no
            schema of an object, the function cannot be called, or is async and has a `thread`.

    Warns of a description of more than 1,024 characters, which some servers refuse.
    """

    name: str
    description: str
    parameters: Json
    function: Callable[..., Any]
    idempotent: bool = False
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    keep: bool = False
    thread: Thread | None = None
    needs_approval: Needs = False
    kind: Kind | None = None
    server: str = ""
    signature: Signature | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ToolDefinitionError(fault)
        if len(self.description) > MOST_DESCRIPTION_CHARS:
            warnings.warn(
                f"tool {self.name}: its description has {len(self.description):,} characters; some servers "
                f"refuse more than {MOST_DESCRIPTION_CHARS:,}",
                stacklevel=3,
            )
        if self.signature is None:
            object.__setattr__(self, "signature", _signature_of(self.function, self.parameters))
        needed: Json = {"type": "object", "properties": {}}
        missing = {name: value for name, value in needed.items() if name not in self.parameters}
        object.__setattr__(self, "parameters", {**self.parameters, **missing})

    def _faults(self) -> Iterator[str]:
        """What is wrong with it."""
        if not _NAME.fullmatch(self.name):
            yield f"bad tool name {self.name[:80]!r}: use 1 to 64 of a-z A-Z 0-9 _ -, given by @tool(name=…)"
        of = f"tool {self.name}:"
        if not _is_time(self.timeout_seconds):
            yield f"{of} timeout_seconds must be a number of more than 0, not {self.timeout_seconds!r}"
        if not isinstance(self.description, str):
            yield f"{of} description must be a text, not {shown(self.description)}"
        for name in ("idempotent", "keep"):
            if not isinstance(value := getattr(self, name), bool):
                yield f"{of} {name} must be True or False, not {shown(value)}"
        if not isinstance(self.needs_approval, bool) and not callable(self.needs_approval):
            wanted = "True, False, or a function of the context and the arguments"
            yield f"{of} needs_approval must be {wanted}, not {shown(self.needs_approval)}"
        if self.kind not in (None, *KINDS):
            yield f"{of} kind must be one of {', '.join(KINDS)}, or None, not {shown(self.kind)}"
        if self.thread not in (None, "own"):
            yield f'{of} thread must be "own" or None, not {shown(self.thread)}'
        if self.thread and is_async(self.function):
            yield f"{of} an async function runs on the event loop: leave thread out"
        if not isinstance(self.parameters, Mapping) or self.parameters.get("type", "object") != "object":
            yield f"{of} parameters must be a JSON schema of type object, not {shown(self.parameters)}"
        if _is_deeper(self.parameters, MOST_SCHEMA_DEPTH):
            yield f"{of} parameters are nested more than {MOST_SCHEMA_DEPTH} deep: let inner schemas be $defs"

    @classmethod
    def of(cls, function: "Callable[..., Any] | Tool") -> "Tool":
        """The tool that a function is; a tool is itself.

        Raises:
            ToolDefinitionError: it cannot become a tool; the text says what to do.
        """
        if isinstance(function, Tool):
            return function
        is_block = isinstance(function, contextlib.ContextDecorator | contextlib.AsyncContextDecorator)
        if not callable(function) or isinstance(function, type) or is_block:
            way = "give a function or an object to call"
            if is_block:
                way = "enter it by `async with … as tools`, and give these"
            if hasattr(function, "as_tool"):
                way = "give what its as_tool(name, description) makes of it"
            raise ToolDefinitionError(f"{shown(function)} cannot become a tool: {way}")
        signature = _signature_of(function)
        return cls(
            description=signature.description,
            parameters=signature.parameters,
            function=function,
            signature=signature,
            **{"name": name_of(function), **(_marked(function) or {})},
        )

    async def asks(self, context: RunContext[Any], arguments: Json) -> bool | Reject:
        """Whether a call with these arguments needs a yes, or why it is not to run at all."""
        if isinstance(self.needs_approval, bool):
            return self.needs_approval
        asking = call_sync_or_async(self.needs_approval, context, arguments)
        try:
            said = await within(asking, seconds=self.timeout_seconds)
            return said if isinstance(said, Reject) else bool(said)
        except Exception:  # noqa: BLE001 — a user's function may raise anything, or never end
            return True

    @property
    def schema(self) -> Json:
        """The tool as chat completions want it, in strict UTF-8."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": cleaned(function)}


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    keep: bool = False,
    thread: Thread | None = None,
    needs_approval: Needs = False,
    kind: Kind | None = None,
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    keep: bool = False,
    thread: Thread | None = None,
    needs_approval: Needs = False,
    kind: Kind | None = None,
) -> F | Callable[[F], F]:
    """Mark a function as a tool; it stays the very function it was.

    Its name, type hints and docstring are what the model sees. `name` replaces the function's own; for the
    others see `Tool`.

    Raises:
        ToolDefinitionError: it takes no marks, as built-in functions and bound methods.
    """
    fields = {
        **({} if name is None else {"name": name}),
        "idempotent": idempotent,
        "timeout_seconds": timeout_seconds,
        "keep": keep,
        "thread": thread,
        "needs_approval": needs_approval,
        "kind": kind,
    }
    mark = functools.partial(_mark, fields=fields)
    return mark(function) if function is not None else mark


def is_tool(value: object) -> bool:
    """Whether the value is a `Tool` or was marked by `@tool`."""
    return isinstance(value, Tool) or _marked(value) is not None


class ToolRegistry(Mapping[str, Tool]):
    """The tools of an agent by name, in the order given, and the rules that their calls are held to.

    Raises:
        ToolDefinitionError: two of them have one name, or one cannot become a tool.
    """

    def __init__(self, tools: Iterable[Callable[..., Any] | Tool] = (), rules: Rules | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self.rules = rules or Rules()
        for given in tools:
            self._add(Tool.of(given))
        self.names = tuple(self._tools)
        self.schemas = tuple(tool.schema for tool in self._tools.values())

    def _add(self, tool: Tool) -> None:
        if other := self._tools.get(tool.name):
            places = [_place(each.function) for each in (other, tool)]
            where, once = (f": {' and '.join(places)}; ", "")
            if places[0] == places[1]:
                where, once = f", both {places[0]}: ", "give it once, or "
            way = f"{once}give one of them another name with @tool(name=…)"
            raise ToolDefinitionError(f"two tools are called {tool.name!r}{where}{way}")
        self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    async def answer(
        self, call: ToolCall, context: RunContext[Any], thread: RunThread | None = None
    ) -> ToolAnswer:
        """Run the call and say what came of it; raises nothing but `asyncio.CancelledError`.

        `thread` is that of the run, for tools that ask for it.
        """
        tool = self._tools.get(call.name)
        if tool is None or tool.signature is None:
            return ToolAnswer(self._unknown(call.name), "error")
        bind = functools.partial(tool.signature.bind, context)
        own = thread if tool.thread else None
        seconds = tool.timeout_seconds
        return await answer_call(tool.name, tool.function, bind, call.arguments, seconds=seconds, thread=own)

    async def needs_approval(self, call: ToolCall, context: RunContext[Any]) -> bool | Reject:
        """Whether the call needs a yes, or why it is not to run at all.

        One whose arguments are no JSON object needs none: it cannot run.
        """
        if not self.may_need_approval(call.name):
            return False
        try:
            arguments = object_of(call.arguments)
        except ArgumentsError:
            return False
        match self._verdict(call.name, arguments):
            case "deny":
                return Reject(_DENIED)
            case "ask":
                return True
            case "allow":
                return False
        return await self._tools[call.name].asks(context, arguments)

    def denied(self, call: ToolCall) -> Reject | bool:
        """Why a rule denies the call, though somebody said yes to it; False where none does."""
        with contextlib.suppress(ArgumentsError):
            if self._verdict(call.name, object_of(call.arguments)) == "deny":
                return Reject(_DENIED)
        return False

    def _verdict(self, name: str, arguments: Json) -> Verdict | None:
        """What the rules say of the call, and of the path that is really written: links lead away."""
        tool, path = self._tools.get(name), arguments.get("path")
        writer, given = getattr(tool and tool.function, "__self__", None), [arguments]
        if isinstance(writer, KnowsRealPaths) and isinstance(path, str):
            given.append({**arguments, "path": writer.real_path(path)})
        return self.rules.strictest(name, *given, kind=self._kind(name))

    def _kind(self, name: str) -> Kind | None:
        return self._tools[name].kind if name in self._tools else None

    def may_need_approval(self, name: str) -> bool:
        """Whether any call of that tool may need a yes, or not be run at all."""
        if self.rules.speak_of(name, self._kind(name)):
            return not self.rules.allow_all(name, self._kind(name))
        return name in self._tools and self._tools[name].needs_approval is not False

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name[:100], self.names, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        known = f" The tools are: {', '.join(self.names)}." if self.names else " There are no tools."
        return f"There is no tool {name[:100]!r}.{guess}{known}"


@runtime_checkable
class KnowsRealPaths(Protocol):
    """What writes files, and knows where a path really leads."""

    def real_path(self, path: str) -> str:
        """The path below its folder without links; the same where it leads out of it."""
        ...


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0


def _mark(function: F, fields: Mapping[str, Any]) -> F:
    target = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    try:
        setattr(target, _MARK, fields)
    except (AttributeError, TypeError) as error:
        raise ToolDefinitionError(
            f"{function!r} takes no mark: decorate the def it comes from, or wrap it in one"
        ) from error
    return function


def _marked(value: object) -> Mapping[str, Any] | None:
    """The fields of the tool that the function was marked with; None where it was not."""
    while isinstance(value, functools.partial) and _MARK not in vars(value):
        value = value.func
    fields = getattr(value, _MARK, None)
    return fields if isinstance(fields, Mapping) else None


def _is_deeper(value: object, most: int) -> bool:
    """Whether more than so many lists and objects stand in each other."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, Mapping | list | tuple)
            for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
    return bool(level)


def _signature_of(function: Callable[..., Any], own: Json | None = None) -> Signature:
    from agentloop.tools.schema import signature_of  # here, so that pydantic loads with the first tool

    return signature_of(function, own)


def _place(function: Callable[..., Any]) -> str:
    called = without_partials(function)
    named = called if hasattr(called, "__qualname__") else type(called)
    return f"{named.__module__}.{named.__qualname__}"
