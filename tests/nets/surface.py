"""The public surface: each public module's names, with their kinds and signatures, as text."""

import ast
import inspect
import re
import types
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = (
    "agentloop",
    "agentloop.codec",
    "agentloop.compaction",
    "agentloop.durable",
    "agentloop.errors",
    "agentloop.events",
    "agentloop.integrations.otel",
    "agentloop.integrations.mcp",
    "agentloop.models",
    "agentloop.stores",
    "agentloop.stores.base",
    "agentloop.stores.lines",
    "agentloop.strategies",
    "agentloop.stream",
    "agentloop.testing",
    "agentloop.triggers",
    "agentloop.workspace",
)
_DOORS = ("pydantic_ai", "openai_agents", "langchain", "strands")
FRAMEWORKS = {f"agentloop.integrations.{name}" for name in _DOORS}
"""The doors to frameworks that are not installed where most tests run."""

FILE = "surface.json"
_TOP = import_module(MODULES[0])

_PLACES = re.compile(r"\b(?:[a-z_][A-Za-z0-9_]*\.)+(?=[A-Za-z_])")
_CODE = re.compile(r"<(built-in )?(function|method) [^>]*>|<bound method [^>]*>+")


def surface() -> dict[str, dict[str, list[str]]]:
    """Of each module the public names, and of each name the lines that say what it is."""
    return {name: {each: lines_of(name, each) for each in names_of(name)} for name in MODULES}


def names_of(module: str) -> list[str]:
    """Its `__all__`; without one, what its face gives on under its own name, or what it defines itself."""
    found = import_module(module)
    return sorted(getattr(found, "__all__", None) or given_on_by(found) or _defined_in(found))


def lines_of(module: str, name: str) -> list[str]:
    """What this name stands for, a line for it and one for each public member of a class."""
    value = getattr(import_module(module), name, None)
    if module != MODULES[0] and value is not None and value is getattr(_TOP, name, None):
        return [f"as in {MODULES[0]}"]
    if inspect.ismodule(value):
        return ["module"]
    if inspect.isclass(value) and not isinstance(value, types.GenericAlias):
        return [_class_line(value), *_members(value)]
    if inspect.isroutine(value):
        return [_called(value)]
    if isinstance(value, str | int | float | None):
        return [f"{type(value).__name__} {value!r}"]
    if isinstance(value, frozenset):
        return [f"frozenset {sorted(value)}"]
    return [f"{type(value).__name__} {_plain(repr(value))}"[:400]]


def given_on_by(module: types.ModuleType) -> list[str]:
    """The names that its face imports as themselves: what type checkers take for its public names."""
    nodes = (node for statement in _statements(module) for node in ast.walk(statement))
    imported = (node for node in nodes if isinstance(node, ast.ImportFrom))
    return [each.name for node in imported for each in node.names if each.asname == each.name]


def _defined_in(module: types.ModuleType) -> list[str]:
    names: list[str] = []
    for node in _statements(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.append(node.name)
            case ast.Assign():
                names += [target.id for target in node.targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name() as target):
                names.append(target.id)
    return [name for name in names if not name.startswith("_")]


def _statements(module: types.ModuleType) -> list[ast.stmt]:
    assert module.__file__
    return ast.parse(Path(module.__file__).read_text("utf-8")).body


def _class_line(value: type) -> str:
    bases = ", ".join(base.__name__ for base in value.__bases__)
    made = "" if getattr(value, "_is_protocol", False) else f": {_signature(value)}"
    return f"class ({bases}){made}"


def _members(value: type) -> list[str]:
    """Its own names, but for the fields that its signature shows."""
    fields = getattr(value, "__dataclass_fields__", {})
    return [
        f".{name} {_member(each)}"
        for name in sorted(dir(value))
        if not name.startswith("_") and name not in fields and (each := _own(value, name)) is not None
    ]


def _own(value: type, name: str) -> Any:
    """What a class of this project has by that name; nothing that Python's own classes give it."""
    for each in value.__mro__:
        if name in vars(each):
            return vars(each)[name] if each.__module__.startswith("agentloop") else None
    return None


def _member(value: Any) -> str:
    if isinstance(value, staticmethod | classmethod):
        return f"{type(value).__name__} {_called(value.__func__)}"
    if inspect.isroutine(value) and not inspect.ismethoddescriptor(value):
        return _called(value)
    return "property" if isinstance(value, property) else "value"


def _called(value: Any) -> str:
    word = "function"
    if inspect.iscoroutinefunction(value):
        word = "async function"
    elif inspect.isasyncgenfunction(value):
        word = "async generator"
    return f"{word} {_signature(value)}"


def _signature(value: Any) -> str:
    try:
        return _plain(str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(…)"


def _plain(text: str) -> str:
    """Without the places where things are defined, which users do not name."""
    return _PLACES.sub("", _CODE.sub("<function>", text))
