"""Arguments held to the JSON schema that a tool brings along.

Held to are types, values, bounds, members, items, choices and references inside of the schema, by pydantic
and as it holds others to type hints: "5" is a number where one is wanted. What else a schema says is for the
model: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import CoreSchema, SchemaError, SchemaValidator, core_schema

from agentloop.messages import Json

_DEFINITIONS = ("$defs", "definitions")
_BOUNDS = {
    "string": {"minLength": "min_length", "maxLength": "max_length"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
    "number": {
        "minimum": "ge",
        "maximum": "le",
        "exclusiveMinimum": "gt",
        "exclusiveMaximum": "lt",
        "multipleOf": "multiple_of",
    },
}


def checks_of(schema: Json) -> SchemaValidator | None:
    """What checks arguments by this schema and gives them back; None where nothing can be made of it."""
    try:
        definitions = [
            _read(inner, schema) | {"ref": f"#/{where}/{name}"}
            for where in _DEFINITIONS
            for name, inner in _mapping(schema.get(where)).items()
        ]
        return SchemaValidator(core_schema.definitions_schema(_read(schema, schema), definitions))
    except (SchemaError, RecursionError, TypeError, ValueError, KeyError):
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
        typed = [_typed(kind, schema, root) for kind in kinds]
        held.append(core_schema.union_schema(typed) if len(typed) > 1 else typed[0])
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values and all(map(_is_plain, values)):
        held.append(core_schema.literal_schema(values))
    return core_schema.chain_schema(held) if len(held) > 1 else held[0] if held else core_schema.any_schema()


def _typed(kind: object, schema: Json, root: Json) -> Any:
    match kind:
        case "string":
            return core_schema.str_schema(**_bounds("string", schema))
        case "integer":
            return core_schema.int_schema(**_bounds("number", schema))
        case "number":
            bounds = _bounds("number", schema)
            whole = core_schema.int_schema(strict=True, **bounds)
            return core_schema.union_schema([whole, core_schema.float_schema(**bounds)])
        case "boolean":
            return core_schema.bool_schema()
        case "null":
            return core_schema.none_schema()
        case "array":
            return core_schema.list_schema(_read(schema.get("items"), root), **_bounds("array", schema))
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


def _bounds(kind: str, schema: Json) -> dict[str, Any]:
    """The bounds that are numbers; the flags of older drafts are none."""
    named = {ours: schema.get(theirs) for theirs, ours in _BOUNDS[kind].items()}
    return {name: value for name, value in named.items() if _is_number(value)}


def _is_inside(reference: str, root: Json) -> bool:
    parts = reference.split("/")
    return len(parts) == 3 and parts[0] == "#" and parts[2] in _mapping(root.get(parts[1]))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | bool)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
