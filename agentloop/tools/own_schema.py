"""Arguments held to the JSON schema that a tool brings along.

Held to are types, values, bounds, members, items, choices and references inside of the schema, by pydantic
and as it holds others to type hints: "5" is a number where one is wanted. What else a schema says is for the
model: https://json-schema.org/draft/2020-12/json-schema-validation
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, TypeGuard

from pydantic_core import CoreSchema, PydanticCustomError, SchemaError, SchemaValidator, core_schema

from agentloop.messages import Json

_DEFINITIONS = ("$defs", "definitions")
_MOST = 2**63
"""Bounds from here on are none that pydantic can hold."""

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
    try:
        definitions = [
            _read(inner, schema) | {"ref": f"#/{where}/{name}"}
            for where in _DEFINITIONS
            for name, inner in _mapping(schema.get(where)).items()
        ]
        return SchemaValidator(core_schema.definitions_schema(_read(schema, schema), definitions))
    except (SchemaError, RecursionError, TypeError, ValueError, LookupError, ArithmeticError):
        return None


def _read(schema: object, root: Json) -> Any:
    """What checks a value by this schema, a part of the root."""
    if not isinstance(schema, Mapping):
        return core_schema.any_schema()
    held: list[CoreSchema] = []
    reference = schema.get("$ref")
    if isinstance(reference, str) and _is_inside(reference, root):
        held.append(core_schema.definition_reference_schema(reference))
    for choices in ("anyOf", "oneOf"):
        if several := _list(schema.get(choices)):
            held.append(core_schema.union_schema([_read(each, root) for each in several]))
    held += [_read(each, root) for each in _list(schema.get("allOf"))]
    if "type" in schema or "properties" in schema:
        kinds = schema.get("type", "object")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        held.append(core_schema.union_schema([_typed(kind, schema, root) for kind in kinds or [None]]))
    if values := _list(schema.get("enum", [schema["const"]] if "const" in schema else None)):
        held.append(core_schema.no_info_plain_validator_function(partial(_one_of, values)))
    whole = core_schema.chain_schema(held or [core_schema.any_schema()])
    return core_schema.nullable_schema(whole) if schema.get("nullable") is True else whole


def _typed(kind: object, schema: Json, root: Json) -> Any:
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
            return core_schema.list_schema(_read(schema.get("items"), root), **_lengths(_ARRAY, schema))
        case "object":
            return _members(schema, root)
    return core_schema.any_schema()


def _members(schema: Json, root: Json) -> Any:
    required = _list(schema.get("required"))
    fields = {
        name: core_schema.typed_dict_field(_read(inner, root), required=name in required)
        for name, inner in _mapping(schema.get("properties")).items()
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
        extras_schema=_read(others, root) if isinstance(others, Mapping) else None,
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


def _one_of(values: list[Any], value: Any) -> Any:
    """The value, which is one of these; true is no 1."""
    if any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values):
        return value
    raise PydanticCustomError(
        "one_of", "Input should be {expected}", {"expected": " or ".join(map(repr, values))}
    )


def _is_inside(reference: str, root: Json) -> bool:
    parts = reference.split("/")
    return len(parts) == 3 and parts[0] == "#" and parts[2] in _mapping(root.get(parts[1]))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
