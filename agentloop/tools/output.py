"""What an agent's answer must be: its schema, read from a type, and what the model gave, checked.

The model gives it as the arguments of a tool, `final_answer`, which nobody runs; or as the JSON that its
provider was asked for. Of a union of objects each is a tool of its own. What is no object stands
under `answer` in one, since arguments and formats are objects.
"""

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import SchemaError, from_json

from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import strict_value
from agentloop._plumbing.truncate import beginning
from agentloop.errors import ToolDefinitionError
from agentloop.messages import Json
from agentloop.prompts import FINAL_ANSWER, FINAL_ANSWER_DESCRIPTION
from agentloop.tools.invoke import ArgumentsError, object_of
from agentloop.tools.own_schema import checks_of
from agentloop.tools.schema import fitting, untitled_schema

_FENCED = pattern(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_NOT_IN_NAMES = pattern(r"[^a-zA-Z0-9_-]+")
_MOST_NAME_CHARS = 64
_WRAPPED = "answer"
_HOW_IN_PYDANTIC = ". Set `arbitrary_types_allowed"
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_SCHEMAS_BY_NAME = ("properties", "$defs", "definitions")
_SCHEMAS = ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """One form that an answer may have: the tool's name, and a schema of an object.

    `check` gives the value of arguments, and `dump` the JSON text of a value; `is_wrapped` says that the
    value stands under `answer` in the object.
    """

    name: str
    description: str
    schema: Json
    check: Callable[[Json], Any]
    dump: Callable[[Any], str]
    is_wrapped: bool

    def read(self, arguments: Json) -> Any:
        """The value.

        Raises:
            ArgumentsError: they do not fit.
        """
        return fitting(self.check, arguments)

    def read_value(self, value: Any) -> Any:
        """The same of a value that stands alone, or in its object.

        Raises:
            ArgumentsError: it does not fit.
        """
        if self.is_wrapped and not (isinstance(value, dict) and [*value] == [_WRAPPED]):
            value = {_WRAPPED: value}
        if not isinstance(value, dict):
            raise ArgumentsError("it is no JSON object")
        return self.read(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputType:
    """The type of an agent's answers; `native` says that the provider is asked for it."""

    forms: tuple[AnswerForm, ...]
    native: bool

    @classmethod
    def of(cls, wanted: Any, *, native: bool) -> "OutputType":
        """The answers of a type, or those that fit a JSON schema.

        Raises:
            ToolDefinitionError: JSON can give no values of it.
        """
        if isinstance(wanted, BaseModel) or dataclasses.is_dataclass(type(wanted)):
            name = type(wanted).__name__
            raise ToolDefinitionError(
                f"output takes types, not values: give {name} in place of {shown(wanted)}"
            )
        try:
            return cls(forms=tuple(_forms(wanted, several=not native)), native=native)
        except (PydanticSchemaGenerationError, PydanticUserError, SchemaError, TypeError, NameError) as error:
            why = beginning(str(error).strip().splitlines()[0].partition(_HOW_IN_PYDANTIC)[0], 200)
            raise ToolDefinitionError(
                f"output={shown(wanted)} is no type that JSON can give ({why}): "
                "use a pydantic model, a dataclass, a TypedDict, or types such as list[int]"
            ) from error

    @property
    def schemas(self) -> tuple[Json, ...]:
        """The tools that give an answer, as requests name them; none where the provider is asked for it."""
        if self.native:
            return ()
        return tuple(
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": each.schema},
            }
            for each in self.forms
        )

    @property
    def answer_schema(self) -> Json | None:
        """The JSON schema that the provider holds answers to, None where a tool gives them."""
        return self.forms[0].schema if self.native else None

    @property
    def words(self) -> str:
        """The schemas as JSON, for a model that gave something else."""
        return " or ".join(json.dumps(each.schema, ensure_ascii=False) for each in self.forms)

    def gives_answer(self, name: str) -> bool:
        """Whether a call of this name gives an answer."""
        return any(name == each.name for each in self.forms)

    def read(self, text: str, tool: str | None) -> Any:
        """The value that a text gives, or the arguments of that tool.

        A text is the JSON alone, or in a code fence; a value that is a text need not be quoted.

        Raises:
            ArgumentsError: it does not fit; what is wrong.
        """
        if tool is not None:
            form = next((each for each in self.forms if each.name == tool), self.forms[0])
            return form.read(object_of(text))
        fenced = _FENCED.fullmatch(text)
        value = _value(fenced[1] if fenced else text)
        faults = []
        for form in self.forms:
            try:
                return form.read_value(value)
            except ArgumentsError as error:
                faults.append(str(error))
        raise ArgumentsError("; or ".join(faults))

    def dump(self, value: Any) -> str:
        """The value as JSON text."""
        for form in self.forms:
            try:
                return form.dump(value)
            except (ValueError, TypeError):
                continue
        return json.dumps(value, ensure_ascii=False, default=str)

    def begun(self, text: str) -> Any:
        """What a text that is not whole yet gives so far, as JSON gives it; None where that does not fit."""
        try:
            value = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return None
        return value if any(_fits(form, value) for form in self.forms) else None


def _fits(form: AnswerForm, value: Any) -> bool:
    try:
        form.read_value(value)
    except Exception:  # noqa: BLE001 — a validator of the type's author may raise anything
        return False
    return True


def _value(text: str) -> Any:
    try:
        return strict_value(text)
    except ValueError:
        return text.strip()


def _forms(wanted: Any, *, several: bool) -> Iterator[AnswerForm]:
    if inspect.isroutine(wanted):
        raise TypeError("it is a function")
    members = [wanted]
    if several and typing.get_origin(wanted) in (typing.Union, types.UnionType):
        members = list(typing.get_args(wanted))
    if len(members) > 1 and not all(_object_schema(TypeAdapter(each)) for each in members):
        members = [wanted]
    taken: set[str] = set()
    for member in members:
        name = FINAL_ANSWER
        if len(members) > 1:
            name = _free_name(f"{FINAL_ANSWER}_{getattr(member, '__name__', 'other')}", taken)
        yield _form_of_schema(name, member) if isinstance(member, Mapping) else _form_of(name, member)


def _free_name(wanted: str, taken: set[str]) -> str:
    whole = _NOT_IN_NAMES.sub("_", wanted).strip("_")[:_MOST_NAME_CHARS]
    names = (whole, *(f"{whole[: _MOST_NAME_CHARS - 4]}_{number}" for number in range(2, 1_000)))
    name = next(each for each in names if each not in taken)
    taken.add(name)
    return name


def _form_of(name: str, wanted: Any) -> AnswerForm:
    adapter = TypeAdapter(wanted)
    schema = _object_schema(adapter)
    if schema is not None:
        return _form(name, schema, _by_json(adapter), _json_of(adapter))
    wrapping: TypeAdapter[Any] = TypeAdapter(create_model("Answer", answer=(wanted, ...)))
    read = _by_json(wrapping)
    schema = _object_schema(wrapping)
    assert schema is not None, "a model is an object"
    return _form(name, schema, lambda given: read(given).answer, _json_of(adapter), is_wrapped=True)


def _form_of_schema(name: str, schema: Mapping[str, Any]) -> AnswerForm:
    """Of a JSON schema: the value is what JSON gives."""
    if fault := next(_faults_of_schema(schema), None):
        raise TypeError(fault)
    is_wrapped = schema.get("type") != "object"
    whole = dict(schema)
    if is_wrapped:
        named: Json = {key: whole.pop(key) for key in ("$defs", "definitions") if key in whole}
        whole = {"type": "object", "properties": {_WRAPPED: whole}, "required": [_WRAPPED], **named}
    checks = checks_of(whole)
    if checks is None:
        raise TypeError("no JSON schema that can be held")

    def check(given: Json) -> Any:
        value = checks.validate_python(given)
        return value[_WRAPPED] if is_wrapped else value

    return _form(
        name, whole, check, lambda value: json.dumps(value, ensure_ascii=False), is_wrapped=is_wrapped
    )


def _faults_of_schema(schema: Mapping[str, Any]) -> Iterator[str]:
    """What no JSON schema has: values that are not JSON, and types that it does not know."""
    try:
        json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        yield f"the schema is not JSON: {error}"
        return
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        named = one.get("type", [])
        for each in named if isinstance(named, list) else [named]:
            if each not in _TYPES:
                yield f"{shown(each)} is no type of a JSON schema, there are {', '.join(_TYPES)}"
        for key in _SCHEMAS_BY_NAME:
            waiting += one[key].values() if isinstance(one.get(key), Mapping) else []
        for key in _SCHEMAS:
            waiting += one[key] if isinstance(one.get(key), list) else [one.get(key)]


def _form(
    name: str,
    schema: Json,
    check: Callable[[Json], Any],
    dump: Callable[[Any], str],
    *,
    is_wrapped: bool = False,
) -> AnswerForm:
    told = schema.get("description")
    return AnswerForm(
        name=name,
        description=f"{FINAL_ANSWER_DESCRIPTION}\n{told}" if told else FINAL_ANSWER_DESCRIPTION,
        schema={key: value for key, value in schema.items() if key != "description"},
        check=check,
        dump=dump,
        is_wrapped=is_wrapped,
    )


def _by_json(adapter: TypeAdapter[Any]) -> Callable[[Json], Any]:
    """Reads as JSON is read, also where a model is strict: then a date is a text in JSON alone."""
    return lambda given: adapter.validate_json(json.dumps(given))


def _json_of(adapter: TypeAdapter[Any]) -> Callable[[Any], str]:
    return lambda value: adapter.dump_json(value, by_alias=True, warnings="error").decode()


def _object_schema(adapter: TypeAdapter[Any]) -> Json | None:
    """The type's schema, where it is one of an object; None for any other."""
    schema = untitled_schema(adapter)
    named = schema.get("$defs", {})
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if reference in named:
        schema = {**named[reference], **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema if schema.get("type") == "object" else None
