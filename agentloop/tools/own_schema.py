"""Arguments held to the JSON schema that a tool brings along.

Held to are types, values, bounds, members, items, choices and references inside of the schema, by pydantic
and as it holds others to type hints: "5" is a number where one is wanted. What else a schema says is for the
model: https://json-schema.org/draft/2020-12/json-schema-validation
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any, TypeGuard

from pydantic_core import CoreSchema, PydanticCustomError, SchemaError, SchemaValidator, core_schema

from agentloop._plumbing.strict_json import list_or_empty, mapping_or_empty
from agentloop.messages import Json

_DEFINITIONS = ("$defs", "definitions")
_MOST = 2**63
"""Bounds from here on are none that pydantic can hold."""
_DEEPEST = 64
"""So many schemas in a schema, and references in a row, are read; what is deeper takes any value."""
_MOST_DEFINITIONS = 1000
"""So many definitions are read; others take any value. A longer row of them overflows pydantic's stack."""

_STRING = {"minLength": "min_length", "maxLength": "max_length"}
_ARRAY = {"minItems": "min_length", "maxItems": "max_length"}
_NUMBER = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_WHOLE: Mapping[str, Callable[[Fraction], int]] = {
    "ge": math.ceil,
    "le": math.floor,
    "gt": math.floor,
    "lt": math.ceil,
    "multiple_of": lambda bound: bound.numerator,
}
"""The bound that among whole numbers says what a broken one says."""


def checks_of(schema: Json) -> SchemaValidator | None:
    """What checks arguments by this schema and gives them back; None where nothing can be made of it."""
    every = (
        (f"#/{where}/{name}", inner)
        for where in _DEFINITIONS
        for name, inner in mapping_or_empty(schema.get(where)).items()
    )
    named = dict(islice(every, _MOST_DEFINITIONS))
    try:
        ends = _that_end(named)
        definitions = [_read(named[name], ends) | {"ref": name} for name in ends]
        return SchemaValidator(core_schema.definitions_schema(_read(schema, ends), definitions))
    except (SchemaError, RecursionError, TypeError, ValueError, LookupError, ArithmeticError):
        return None


def _that_end(named: Mapping[str, object]) -> Set[str]:
    """The definitions that come to an end at the same value; pydantic itself follows the others forever."""
    waiting = {name: named.keys() & _at_once(schema) for name, schema in named.items()}
    ends: set[str] = set()
    for _ in range(_DEEPEST):
        ready = {name for name, wanted in waiting.items() if wanted <= ends}
        waiting = {name: wanted for name, wanted in waiting.items() if name not in ready}
        ends |= ready
    return ends


def _at_once(schema: object) -> set[str]:
    """The references that hold for the schema's own value, whichever it is."""
    found: set[str] = set()
    several = [schema]
    while several:
        each = mapping_or_empty(several.pop())
        if isinstance(reference := each.get("$ref"), str):
            found.add(reference)
        several += list_or_empty(each.get("allOf"))
        for choices in (list_or_empty(each.get("anyOf")), list_or_empty(each.get("oneOf"))):
            several += choices if len(choices) == 1 else []
    return found


def _read(schema: object, ends: Set[str], depth: int = 0) -> Any:
    """What checks a value by this schema, which may refer to definitions that end."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return core_schema.any_schema()
    read = partial(_read, ends=ends, depth=depth + 1)
    held: list[CoreSchema] = []
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference in ends:
        held.append(core_schema.definition_reference_schema(reference))
    for choices in ("anyOf", "oneOf"):
        if several := list_or_empty(schema.get(choices)):
            held.append(core_schema.union_schema([read(each) for each in several]))
    held += [read(each) for each in list_or_empty(schema.get("allOf"))]
    if "type" in schema or "properties" in schema:
        kinds = schema.get("type", "object")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        held.append(core_schema.union_schema([_typed(kind, schema, read) for kind in kinds or [None]]))
    if values := list_or_empty(schema.get("enum", [schema["const"]] if "const" in schema else None)):
        held.append(core_schema.no_info_plain_validator_function(partial(_one_of, values)))
    whole = core_schema.chain_schema(held or [core_schema.any_schema()])
    return core_schema.nullable_schema(whole) if schema.get("nullable") is True else whole


def _typed(kind: object, schema: Json, read: Callable[[object], Any]) -> Any:
    match kind:
        case "string":
            return core_schema.str_schema(**_lengths(_STRING, schema))
        case "integer":
            return core_schema.int_schema(**_whole(_bounds(_NUMBER, schema)))
        case "number":
            bounds = _bounds(_NUMBER, schema)
            whole = core_schema.int_schema(strict=True, **_whole(bounds))
            broken = core_schema.float_schema(allow_inf_nan=False, **bounds)
            return core_schema.union_schema([whole, broken])
        case "boolean":
            return core_schema.bool_schema()
        case "null":
            return core_schema.none_schema()
        case "array":
            return core_schema.list_schema(read(schema.get("items")), **_lengths(_ARRAY, schema))
        case "object":
            return _members(schema, read)
    return core_schema.any_schema()


def _members(schema: Json, read: Callable[[object], Any]) -> Any:
    required = list_or_empty(schema.get("required"))
    fields = {
        name: core_schema.typed_dict_field(read(inner), required=name in required)
        for name, inner in mapping_or_empty(schema.get("properties")).items()
    }
    unnamed = {
        name: core_schema.typed_dict_field(core_schema.any_schema(), required=True)
        for name in required
        if isinstance(name, str) and name not in fields
    }
    others = schema.get("additionalProperties", True)
    return core_schema.typed_dict_schema(
        fields | unnamed,
        extra_behavior="forbid" if others is False and "patternProperties" not in schema else "allow",
        extras_schema=read(others) if isinstance(others, Mapping) else None,
    )


def _bounds(names: Mapping[str, str], schema: Json) -> dict[str, Any]:
    """The bounds that are numbers, and steps above zero; the flags of older drafts are none."""
    named = {ours: schema.get(theirs) for theirs, ours in names.items()}
    return {
        name: value
        for name, value in named.items()
        if _is_number(value) and (name != "multiple_of" or value > 0)
    }


def _whole(bounds: Mapping[str, float]) -> dict[str, Any]:
    return {name: _WHOLE[name](Fraction(str(bound))) for name, bound in bounds.items()}


def _lengths(names: Mapping[str, str], schema: Json) -> dict[str, Any]:
    return {name: int(bound) for name, bound in _bounds(names, schema).items() if bound >= 0}


def _one_of(values: Sequence[Any], value: Any) -> Any:
    """The value, which is one of these; true is no 1."""
    if any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values):
        return value
    raise PydanticCustomError(
        "one_of", "Input should be {expected}", {"expected": " or ".join(map(repr, values))}
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST
