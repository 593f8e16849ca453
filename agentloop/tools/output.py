"""What an agent's answer must be: its schema, read from a type, and what the model gave, checked.

The model gives it as the arguments of a tool, `final_answer`, which nobody runs; or as the JSON that its
provider was asked for; or as JSON in its text, where a server takes neither tools nor formats. Of a union of
objects each is a tool of its own. What is no object stands under `answer` in one, since arguments and formats
are objects.

`OutputType` says what requests ask for, `judge` what an answer is told, `read` what its value is, and
`GrowingOutput` what one gives while it comes.
"""

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import SchemaError, SchemaSerializer, SchemaValidator, core_schema, from_json

from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import json_at, strict_value
from agentloop._plumbing.to_text import error_text
from agentloop._plumbing.truncate import beginning
from agentloop.errors import ToolDefinitionError
from agentloop.messages import Json, Message, ToolCall
from agentloop.models import OutputPart, TextPart
from agentloop.prompts import (
    ANSWER_CUT_OFF,
    ANSWER_GIVEN_TWICE,
    ANSWER_IN_TEXT_REFUSED,
    ANSWER_IN_WORDS,
    ANSWER_NOT_FINITE,
    ANSWER_REFUSED,
    ANSWER_TAKEN,
    FINAL_ANSWER,
    FINAL_ANSWER_DESCRIPTION,
)
from agentloop.tools.invoke import ArgumentsError, object_of
from agentloop.tools.own_schema import checks_of
from agentloop.tools.schema import fitting, untitled_schema

_FENCE = pattern(r"^[ \t]*```\w*[ \t]*$", re.MULTILINE)
_BRACE = pattern(r"\{")
_BEGINS = pattern(r"```\w*[ \t]*\n|(?=\{)")
_MOST_BRACES = 100
"""So many places in a text are tried at which the object may begin that ends it."""
_NOT_IN_NAMES = pattern(r"[^a-zA-Z0-9_-]+")
_MOST_NAME_CHARS = 64
_WRAPPED = "answer"
_HOW_IN_PYDANTIC = ". Set `arbitrary_types_allowed"
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_DEFINITIONS = ("$defs", "definitions")
_SCHEMAS_BY_NAME = ("properties", *_DEFINITIONS)
_SCHEMAS = ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """One form that an answer may have: the tool's name, and a schema of an object.

    `is_wrapped` says that the value stands under `answer` in the object. `validator` reads the object, always
    as JSON is read, so that a date is a text also where a model is strict. `serializer` gives the value's
    JSON, None where it is what JSON gives.
    """

    name: str
    description: str
    schema: Json
    validator: SchemaValidator
    serializer: SchemaSerializer | None
    is_wrapped: bool

    def read(self, arguments: Json) -> Any:
        """The value.

        Raises:
            ArgumentsError: they do not fit, or give a number that JSON does not have.
        """
        value = self._value_in(fitting(self._checked, arguments))
        if _says_nan(arguments) and _holds_nan(self._plain(value)):
            raise ArgumentsError(ANSWER_NOT_FINITE)
        return value

    def read_value(self, value: Any) -> Any:
        """The same of a value that stands alone, or in its object.

        Raises:
            ArgumentsError: it does not fit.
        """
        value = self._object_of(value)
        if not isinstance(value, dict):
            raise ArgumentsError("it is no JSON object")
        return self.read(value)

    def fitting_part(self, value: Any) -> Any:
        """What fits of JSON that is not whole yet, as JSON gives it: of a list not what is wrong at its end.

        None for nothing.
        """
        text = json.dumps(self._object_of(value))
        try:
            part = self._value_in(self.validator.validate_json(text, allow_partial=True))
        except Exception:  # noqa: BLE001 — a validator of the type's author may raise anything
            return None
        plain = self._plain(part)
        return None if _holds_nan(plain) else plain

    def dump(self, value: Any) -> str:
        """The JSON text of a value.

        Raises:
            ValueError: it is none of this form; or a `TypeError`.
        """
        if self.serializer is None:
            return json.dumps(value, ensure_ascii=False)
        return self.serializer.to_json(value, by_alias=True, warnings="error").decode()

    def _plain(self, value: Any) -> Any:
        """What of the value was given, as JSON gives it; None where its type cannot say."""
        if self.serializer is None:
            return value
        try:
            return self.serializer.to_python(
                value, mode="json", by_alias=True, exclude_unset=True, warnings="error"
            )
        except Exception:  # noqa: BLE001 — a serializer of the type's author may raise anything
            return None

    def _checked(self, arguments: Json) -> Any:
        return self.validator.validate_json(json.dumps(arguments))

    def _object_of(self, value: Any) -> Any:
        is_object = not self.is_wrapped or (isinstance(value, dict) and [*value] == [_WRAPPED])
        return value if is_object else {_WRAPPED: value}

    def _value_in(self, checked: Any) -> Any:
        return checked[_WRAPPED] if self.is_wrapped else checked


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

    @property
    def request_words(self) -> str:
        """What asks for an answer in words, where a server takes neither tools nor formats."""
        return ANSWER_IN_WORDS.format(schema=self.words)

    def gives_answer(self, name: str) -> bool:
        """Whether a call of this name gives an answer."""
        return any(name == each.name for each in self.forms)

    def read(self, text: str, tool: str | None) -> Any:
        """The value that a text gives, or the arguments of that tool.

        A text is the JSON alone, has it in a code fence, or ends with an object of it; a value that is a text
        need not be quoted.

        Raises:
            ArgumentsError: it does not fit; what is wrong.
        """
        if tool is not None:
            form = next((each for each in self.forms if each.name == tool), self.forms[0])
            return form.read(object_of(text))
        faults: list[str] = []
        for value in _values_in(text):
            told = []
            for form in self.forms:
                try:
                    return form.read_value(value)
                except ArgumentsError as error:
                    told.append(str(error))
            faults = faults or told
        raise ArgumentsError("; or ".join(faults))

    def dump(self, value: Any) -> str:
        """The value as JSON text."""
        for form in self.forms:
            try:
                return form.dump(value)
            except (ValueError, TypeError):
                continue
        return json.dumps(value, ensure_ascii=False, default=str)

    def judge(self, message: Message, *, is_cut: bool) -> tuple[Message, list[str | None]]:
        """The answer, and for each of its calls what it is told at once: whether it gave one of the type.

        A text that gives none becomes one that calls `final_answer` in vain, so that it can be told so as any
        call is. It is asked for JSON, which every model can give. `is_cut` says that it was cut off.
        """
        if message.tool_calls:
            return message, [*self._verdicts(message.tool_calls)]
        if not (fault := self._fault(message.text, None)):
            return message, []
        fault = ANSWER_CUT_OFF if is_cut else fault
        told = ANSWER_IN_TEXT_REFUSED.format(schema=self.words, fault=fault)
        return message.with_calls((ToolCall(id="", name=FINAL_ANSWER, arguments="{}"),)), [told]

    def _verdicts(self, calls: Sequence[ToolCall]) -> Iterator[str | None]:
        """What each of these calls is told; None for one that gives no answer."""
        is_taken = False
        for call in calls:
            if not self.gives_answer(call.name):
                yield None
            elif is_taken:
                yield ANSWER_GIVEN_TWICE
            elif fault := self._fault(call.arguments, call.name):
                yield ANSWER_REFUSED.format(fault=fault)
            else:
                is_taken = True
                yield ANSWER_TAKEN

    def _fault(self, text: str, tool: str | None) -> str | None:
        """What is wrong with a text, or with the arguments of that tool, as an answer; None for nothing."""
        try:
            self.read(text, tool)
        except ArgumentsError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 — a validator of the type's author may raise anything
            return error_text(error)
        return None

    def growing(self) -> "GrowingOutput":
        """What an answer gives while it comes."""
        return GrowingOutput(self)


class GrowingOutput:
    """What one answer gives so far, by its text or by its calls, each of which is read by itself.

    It is read again once it has grown by an eighth, so that all reading together is linear in its length.
    """

    def __init__(self, output: OutputType) -> None:
        self._output = output
        self.clear()

    def clear(self) -> None:
        """Forget what came so far, since the answer is begun anew."""
        self._pieces: dict[str | None, list[str]] = {}
        self._length, self._next, self._value = 0, 1, None

    def add(self, part: TextPart | OutputPart) -> Any:
        """What it gives with this piece too, as JSON gives it; None where that is nothing new."""
        tool = part.tool if isinstance(part, OutputPart) else None
        pieces = self._pieces.setdefault(tool, [])
        pieces.append(part.text)
        self._length += len(part.text)
        if self._length < self._next:
            return None
        self._next = self._length + 1 + self._length // 8
        value = self._value_so_far("".join(pieces), tool)
        if value is None or value == self._value:
            return None
        self._value = value
        return value

    def _value_so_far(self, text: str, tool: str | None) -> Any:
        value = _json_so_far(text)
        for form in self._output.forms if value is not None else ():
            if tool in (None, form.name) and (part := form.fitting_part(value)) is not None:
                return part
        return None


def _says_nan(given: Any) -> bool:
    """Whether a text in it may give a `float` NaN or infinity; a default of the type may be one."""
    match given:
        case dict():
            return any(map(_says_nan, given.values()))
        case list():
            return any(map(_says_nan, given))
        case str():
            with suppress(ValueError):
                return not isfinite(float(given))
    return False


def _holds_nan(plain: Any) -> bool:
    """Whether a number of the value is none that JSON has."""
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        return True
    return False


def _json_so_far(text: str) -> Any:
    """The JSON that the text begins with, or that begins in it: behind a sign of code, or at a brace."""
    begins = _BEGINS.search(text)
    for part in (text, text[begins.end() :] if begins else ""):
        with suppress(ValueError, TypeError):  # half of a character is a wrong type to it
            return from_json(part, allow_partial="trailing-strings")
    return None


def _values_in(text: str) -> Iterator[Any]:
    """What a text may give: the JSON that it is or holds, the last first, and then the text itself."""
    for part in _parts_of(text):
        with suppress(ValueError):
            yield strict_value(part)
    yield text.strip()


def _parts_of(text: str) -> Iterator[str]:
    """The parts of a text that may be JSON: the whole, what its fences hold, and the object at its end."""
    yield text
    fences = [*_FENCE.finditer(text)]
    if len(fences) > 1:
        yield text[fences[0].end() : fences[-1].start()]
    for opens, closes in reversed([*zip(fences[::2], fences[1::2], strict=False)]):
        yield text[opens.end() : closes.start()]
    if (end := text.rstrip()).endswith("}"):
        for brace in islice(_BRACE.finditer(end), _MOST_BRACES):
            found = json_at(end, brace.start())
            if found and found[1] == len(end):
                yield end[brace.start() :]
                return


def _forms(wanted: Any, *, several: bool) -> Iterator[AnswerForm]:
    if inspect.isroutine(wanted):
        raise TypeError("it is a function")
    members = [wanted]
    if several and typing.get_origin(wanted) in (typing.Union, types.UnionType):
        members = list(typing.get_args(wanted))
    if len(members) > 1 and any(_schema_of(TypeAdapter(each)).get("type") != "object" for each in members):
        members = [wanted]
    taken: set[str] = set()
    for member in members:
        name = FINAL_ANSWER
        if len(members) > 1:
            name = _free_name(f"{FINAL_ANSWER}_{getattr(member, '__name__', 'other')}", taken)
        yield _form_of(name, member)


def _free_name(wanted: str, taken: set[str]) -> str:
    whole = _NOT_IN_NAMES.sub("_", wanted).strip("_")[:_MOST_NAME_CHARS]
    names = (whole, *(f"{whole[: _MOST_NAME_CHARS - 4]}_{number}" for number in range(2, 1_000)))
    name = next(each for each in names if each not in taken)
    taken.add(name)
    return name


def _form_of(name: str, wanted: Any) -> AnswerForm:
    validator: SchemaValidator | None
    if isinstance(wanted, Mapping):
        if fault := next(_faults_of_schema(wanted), None):
            raise TypeError(fault)
        schema, serializer = dict(wanted), None
        is_wrapped = schema.get("type") != "object"
        validator = checks_of(_wrapped(schema) if is_wrapped else schema)
    else:
        adapter = TypeAdapter(wanted)
        schema, serializer = _schema_of(adapter), adapter.serializer
        is_wrapped = schema.get("type") != "object"
        checks = adapter.core_schema
        if is_wrapped:
            checks = core_schema.typed_dict_schema({_WRAPPED: core_schema.typed_dict_field(checks)})
        validator = SchemaValidator(checks)
    if validator is None:
        raise TypeError("no JSON schema that can be held")
    told = schema.pop("description", None)
    return AnswerForm(
        name=name,
        description=f"{FINAL_ANSWER_DESCRIPTION}\n{told}" if told else FINAL_ANSWER_DESCRIPTION,
        schema=_wrapped(schema) if is_wrapped else schema,
        validator=validator,
        serializer=serializer,
        is_wrapped=is_wrapped,
    )


def _wrapped(schema: Json) -> Json:
    """The schema of an object with a value of that schema under `answer`."""
    named = {key: schema[key] for key in _DEFINITIONS if key in schema}
    value = {key: each for key, each in schema.items() if key not in named}
    return {"type": "object", "properties": {_WRAPPED: value}, "required": [_WRAPPED], **named}


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


def _schema_of(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The type's schema, itself where it would refer to itself as a whole."""
    schema = untitled_schema(adapter)
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if reference not in schema.get("$defs", {}):
        return schema
    return {**schema["$defs"][reference], **{key: value for key, value in schema.items() if key != "$ref"}}
