"""How a function looks to a model, read from its type hints and its docstring; and its arguments, checked.

The one door to docstring-parser. A parameter without a type hint takes any JSON value. One already bound by
`functools.partial` is not shown, nor is one annotated with `RunContext`, which is filled in. A text in
`Annotated` describes one. Docstrings are read in Google, NumPy or Sphinx style.

Arguments that do not fit are mended where they can mean only one thing: a list or an object in a JSON string
is one where a list or an object is wanted, and null is no argument where there is a default.
"""

import contextlib
import copy
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import docstring_parser
from docstring_parser import Docstring, DocstringParam, DocstringStyle
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ArgsKwargs, SchemaError, SchemaValidator

from agentloop._plumbing.callables import inner_function, without_partials
from agentloop._plumbing.strict_json import list_or_object
from agentloop._plumbing.truncate import beginning
from agentloop.errors import ToolDefinitionError
from agentloop.messages import Json
from agentloop.tools.invoke import ArgumentsError, BoundArguments
from agentloop.tools.own_schema import checks_of
from agentloop.tools.run_context import RunContext

_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST)
_MOST_FAULTS = 10
_NAMED_SCHEMAS = ("properties", "$defs", "patternProperties", "dependentSchemas")
_NO_LIST = (
    "Input should be an instance of Sequence",
    "'str' instances are not allowed as a Sequence value",
)
"""What pydantic says of a `Sequence`, for which JSON has another word."""
_DATA = ("default", "const", "enum", "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSignature:
    """How a function is described and called.

    `parameters` is a JSON schema. `positional` names the parameters that must be given by position,
    `contexts` those that get the run's context. `own` checks arguments by a schema that the tool brought.
    """

    description: str
    parameters: Json
    positional: tuple[str, ...]
    contexts: tuple[str, ...]
    checks: TypeAdapter[Any]
    own: SchemaValidator | None = None

    def bind(self, context: RunContext[Any], arguments: Json) -> BoundArguments:
        """What to call the function with: the arguments checked and converted, defaults filled in.

        Raises:
            ArgumentsError: they do not fit.
        """
        if self.own is not None:
            arguments = fitting(self.own.validate_python, arguments)
        values = fitting(lambda given: self.checks.validate_python(ArgsKwargs((), given)), arguments)
        values |= dict.fromkeys(self.contexts, context)
        return tuple(values.pop(name) for name in self.positional), values


class _Schema(GenerateJsonSchema):
    """Says nothing of a default that JSON cannot hold; the schema then has none."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 — pydantic's own type


def signature_of(function: Callable[..., Any], own: Json | None = None) -> FunctionSignature:
    """Read a function, bound method, partial or callable object, whose arguments fit a schema of its `own`.

    Raises:
        ToolDefinitionError: it cannot be called with named JSON values; the text says what to do.
    """
    shown: list[Parameter] = []
    contexts: list[str] = []
    positional: list[str] = []
    for parameter in _parameters(function):
        hint = _hint(function, parameter)
        if typing.get_origin(hint) is typing.Unpack:
            raise _undefinable(function, f"give the keys of **{parameter.name} one by one, each a parameter")
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        if _wants_context(hint):
            contexts.append(parameter.name)
        else:
            shown.append(_by_name(parameter, _described(hint)))
    checks = _checks(function, shown)
    read = _docstring_of(function)
    return FunctionSignature(
        description=(read.description or "").strip(),
        parameters=_schema(function, checks, read.params),
        positional=tuple(positional),
        contexts=tuple(contexts),
        checks=checks,
        own=None if own is None else checks_of(own),
    )


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise _undefinable(function, f"its signature cannot be read ({error}); wrap it in a def") from error
    bound = _bound_by_name(function)
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in bound]
    for parameter in parameters:
        if parameter.kind is Parameter.VAR_POSITIONAL:
            raise _undefinable(
                function, f"a model gives arguments by name: make *{parameter.name} a list parameter"
            )
    return parameters


def _bound_by_name(function: Callable[..., Any]) -> set[str]:
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= set(function.keywords)
        function = function.func
    return names


def _hint(function: Callable[..., Any], parameter: Parameter) -> Any:
    """The parameter's annotation, resolved where it is a text; Any where there is none."""
    if parameter.annotation is Parameter.empty:
        return Any
    names = {"RunContext": RunContext} | getattr(inner_function(function), "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={"hint": parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["hint"]
    except Exception as error:
        if re.search(r"\bRunContext\b", str(parameter.annotation)):
            return RunContext
        raise _undefinable(
            function,
            f"the type of {parameter.name}, {str(parameter.annotation)!r}, cannot be resolved ({error}): "
            "name a type that the function's module imports when it runs",
        ) from error


def _wants_context(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    choices = typing.get_args(hint) if is_union else (hint,)
    return any(choice is RunContext or typing.get_origin(choice) is RunContext for choice in choices)


def _by_name(parameter: Parameter, hint: Any) -> Parameter:
    if parameter.kind is Parameter.VAR_KEYWORD:
        return parameter.replace(annotation=hint)
    return parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY)


def _described(hint: Any) -> Any:
    """The hint with a text that annotates it as its description, where no `Field` gives one."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    notes = hint.__metadata__
    text = next((note for note in notes if isinstance(note, str)), None)
    if text is None or any(isinstance(note, FieldInfo) and note.description for note in notes):
        return hint
    return typing.Annotated[hint, Field(description=text)]


def _checks(function: Callable[..., Any], shown: list[Parameter]) -> TypeAdapter[Any]:
    """What checks arguments and gives them back, so that what the function itself raises stays apart."""

    def arguments(**values: Any) -> dict[str, Any]:
        return values

    arguments.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    arguments.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    try:
        return TypeAdapter(typing.cast(Any, arguments))
    except (PydanticSchemaGenerationError, PydanticUserError, SchemaError, TypeError) as error:
        raise _undefinable(function, _no_json(error)) from error


def _schema(
    function: Callable[..., Any], checks: TypeAdapter[Any], described: Sequence[DocstringParam]
) -> Json:
    try:
        schema = untitled_schema(checks)
    except PydanticUserError as error:
        raise _undefinable(function, _no_json(error)) from error
    properties = schema.setdefault("properties", {})
    for each in described:
        text = " ".join((each.description or "").split())
        if text and each.arg_name in properties:
            properties[each.arg_name].setdefault("description", text)
    return schema


def untitled_schema(checks: TypeAdapter[Any]) -> dict[str, Any]:
    """The JSON schema of what is checked, without titles.

    Raises:
        PydanticUserError: it has none.
    """
    return typing.cast("dict[str, Any]", _untitled(checks.json_schema(schema_generator=_Schema)))


def _untitled(schema: Any) -> Any:
    """The schema without the titles, which say a name again and cost tokens on every request."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled_part(key, part) for key, part in schema.items() if key != "title"}


def _untitled_part(key: str, part: Any) -> Any:
    if key in _NAMED_SCHEMAS:
        return {name: _untitled(named) for name, named in part.items()}
    return part if key in _DATA else _untitled(part)


def _no_json(error: Exception) -> str:
    lines = str(error).strip().split("\n")
    reason = lines[-1].strip() if isinstance(error, SchemaError) else lines[0]
    return f"a parameter has a type that JSON cannot give ({reason}); use str, int, lists, data classes"


def _undefinable(function: Callable[..., Any], reason: str) -> ToolDefinitionError:
    name = getattr(inner_function(function), "__qualname__", repr(function))
    return ToolDefinitionError(f"{name} cannot become a tool: {reason}")


def _docstring_of(function: Callable[..., Any]) -> Docstring:
    """The docstring of a function, or of a callable object's `__call__` or else its class."""
    text = inner_function(function).__doc__
    called = without_partials(function)
    if not text and not inspect.isroutine(called):
        text = type(called).__doc__
    return max(_parsed(inspect.cleandoc(text or "")), key=_fitness)


def _parsed(text: str) -> Iterator[Docstring]:
    """The text as each style reads it, and last as nothing but a description."""
    for style in _STYLES:
        # docstring-parser answers text that it cannot read with ParseError, IndexError and others
        with contextlib.suppress(Exception):
            yield docstring_parser.parse(text, style)
    plain = Docstring()
    plain.short_description = text
    yield plain


def _fitness(read: Docstring) -> tuple[int, int]:
    """How much a style found; the parser's own choice also counts what no style means, like `:note`."""
    return len(read.params), bool(read.returns) + len(read.raises)


def fitting(check: Callable[[dict[str, Any]], Any], arguments: Json) -> Any:
    """What the check makes of the arguments, mended where they did not fit as they are.

    Raises:
        ArgumentsError: they do not fit, mended or not.
    """
    faults, given = "", dict(arguments)
    while True:
        try:
            return check(given)
        except ValidationError as error:
            faults, unmended = faults or _faults(error), given
            given = _mended(given, error)
        if given == unmended:
            raise ArgumentsError(faults)


def _mended(arguments: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """The arguments without the nulls, and with the lists and objects in strings, that did not fit."""
    mended = copy.deepcopy(arguments)
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        holder: Any = None
        at: int | str = ""
        value: Any = mended
        # What is no key is pydantic's word for one of several choices.
        for key in fault["loc"]:
            if _holds(value, key):
                holder, at, value = value, key, value[key]
        if isinstance(holder, dict) and value is None:
            del holder[at]
        elif holder is not None and isinstance(value, str) and (inner := list_or_object(value)) is not None:
            holder[at] = inner
    return mended


def _holds(value: Any, key: int | str) -> bool:
    return key in value if isinstance(value, dict) else isinstance(value, list) and key in range(len(value))


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False)
    texts = [_fault(fault) for fault in faults[:_MOST_FAULTS]]
    more = len(faults) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _fault(fault: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "missing_keyword_only_argument" | "missing_argument" | "missing":
            return f"{where}: is required and was not given"
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"{where}: there is no such argument"
        case _:
            msg = "Input should be a valid list" if fault["msg"] in _NO_LIST else fault["msg"]
            return f"{where}: {msg}, not {beginning(repr(fault['input']), 60)}"
