"""Loading the user's own modules: tools and callbacks named on the command line."""

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from agentloop.callbacks import Callbacks
from agentloop.errors import UsageError
from agentloop.redaction import Redact, checked_redaction
from agentloop.tools import Tool, is_tool

AnyTool: TypeAlias = Tool | Callable[..., Any]


def load_tools(names: Sequence[str]) -> list[AnyTool]:
    """The tools of each `MODULE` or `MODULE:NAME`, in order, one that is named twice only once.

    Raises:
        UsageError: a module does not import, or what it names holds no tool.
    """
    found: dict[int, AnyTool] = {}
    for name in names:
        found |= {id(tool): tool for tool in _tools_of(name)}
    return list(found.values())


def load_callbacks(names: Sequence[str]) -> list[Callbacks]:
    """The callbacks at each `MODULE:NAME`: a class, which is called without arguments, or an object.

    Raises:
        UsageError: a module does not import, or what it names is no callback.
    """
    return [_callback(name) for name in names]


def load_redaction(option: str, spec: str) -> Redact:
    """The redaction at `MODULE:NAME`: a function from text to text, or an object that is called like one.

    Raises:
        UsageError: the module does not import, or what it names takes no text and gives none.
    """
    module_name, _, name = spec.partition(":")
    if not name:
        raise UsageError(f"{option}: {spec!r} names no function: write MODULE:NAME, or off")
    value = _attribute(option, _imported(option, module_name), name)
    with _told(option, f"{spec} takes no text"):
        try:
            return checked_redaction(value)
        except UsageError as error:
            fault = error
    raise UsageError(f"{option}: {spec} is no redaction: {fault}") from fault


def _tools_of(spec: str) -> list[AnyTool]:
    module_name, _, name = spec.partition(":")
    module = _imported("--tools", module_name)
    if not name:
        tools = [value for value in vars(module).values() if is_tool(value)]
        if not tools:
            raise UsageError(f"--tools: module {module_name!r} holds no tool: put @tool above a function")
        return tools
    value = _attribute("--tools", module, name)
    tools = list(value) if isinstance(value, list | tuple) else [value]
    for tool in tools:
        if not is_tool(tool) and (not callable(tool) or isinstance(tool, type)):
            raise UsageError(
                f"--tools: {spec}: {type(tool).__name__} is no tool: name a function or a list of them"
            )
    if not tools:
        raise UsageError(f"--tools: {spec} is an empty list: it holds no tool")
    return tools


def _callback(spec: str) -> Callbacks:
    module_name, _, name = spec.partition(":")
    if not name:
        raise UsageError(f"--callbacks: {spec!r} names no object: write MODULE:NAME")
    value = _attribute("--callbacks", _imported("--callbacks", module_name), name)
    if isinstance(value, type):
        with _told("--callbacks", f"{spec} cannot be made without arguments"):
            value = value()
    if not isinstance(value, Callbacks):
        raise UsageError(f"--callbacks: {spec} is no callback: derive its class from agentloop.Callbacks")
    return value


def _imported(option: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py") or "/" in name:
        raise UsageError(f"{option}: {name!r} is a file: name the module, e.g. {Path(name).stem}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{option}: {name!r} is no module name: write it as in import")
    with _told(option, f"module {name!r} does not import"):
        return importlib.import_module(name)


def _attribute(option: str, module: ModuleType, name: str) -> Any:
    with _told(option, f"module {module.__name__!r} does not give {name!r}"):
        if hasattr(module, name):
            return getattr(module, name)
    raise UsageError(f"{option}: module {module.__name__!r} has no {name!r}")


@contextlib.contextmanager
def _told(option: str, what: str) -> Iterator[None]:
    """A user's code may raise anything, and end the program: all of it becomes one line with its place."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may do anything while it loads, also call sys.exit
        reason = " ".join(str(error).split())
        raise UsageError(f"{option}: {what}: {type(error).__name__}: {reason}{_place(error)}") from error


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return "" if "line" in str(error) else f" ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame for frame in frames[1:] if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
