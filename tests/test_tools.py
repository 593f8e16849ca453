"""Tools: how functions look to a model, and what comes of the model's calls."""

import asyncio
import contextlib
import contextvars
import functools
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict, Unpack

import pytest
from pydantic import AfterValidator, BaseModel, Field

from agentloop._plumbing.aio import DeadlineError, SelfCancelledError, in_thread, within
from agentloop.errors import RetryTool, ToolDefinitionError
from agentloop.messages import ToolCall, Usage
from agentloop.tools import RunContext, Tool, ToolAnswer, ToolRegistry, is_tool, tool
from agentloop.tools.registry import DEFAULT_TIMEOUT_SECONDS
from tests.cli_kit import program

CONTEXT = RunContext(session_id="s1", run_id="r1", call_id="c1", deps={"unit": "km"})


async def ask(function: Callable[..., Any] | Tool, arguments: str = "{}") -> ToolAnswer:
    """The answer to one call of the function's only tool."""
    registry = ToolRegistry([function])
    call = ToolCall(id="c1", name=registry.names[0], arguments=arguments)
    return await registry.answer(call, CONTEXT)


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    return dict(Tool.of(function).parameters)


# What a function looks like


def google(path: str, depth: int = 1) -> str:
    """Look at a folder.

    Longer words
    over two lines.

    Args:
        path (str): The folder,
            relative.
        depth: How deep: in levels.

    Returns:
        What is there.
    """
    return f"{path}{depth}"


def numpy_style(path: str, depth: int = 1) -> str:
    """Look at a folder.

    Longer words
    over two lines.

    Parameters
    ----------
    path : str
        The folder,
        relative.
    depth : int, optional
        How deep: in levels.

    Returns
    -------
    str
        What is there.
    """
    return f"{path}{depth}"


def sphinx_style(path: str, depth: int = 1) -> str:
    """Look at a folder.

    Longer words
    over two lines.

    :param path: The folder,
        relative.
    :param int depth: How deep: in levels.
    :returns: What is there.
    """
    return f"{path}{depth}"


@pytest.mark.parametrize("function", [google, numpy_style, sphinx_style])
def test_schema_from_hints_and_each_docstring_style(function: Callable[..., Any]) -> None:
    assert Tool.of(function).schema == {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": "Look at a folder.\n\nLonger words\nover two lines.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The folder, relative."},
                    "depth": {"type": "integer", "default": 1, "description": "How deep: in levels."},
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    }


def test_field_wins_over_the_docstring() -> None:
    def count(
        n: Annotated[int, Field(description="from Field", ge=1)], m: Annotated[int, Field(le=9)]
    ) -> int:
        """Count.

        Args:
            n: from the docstring
            m: from the docstring
        """
        return n + m

    assert parameters(count)["properties"] == {
        "n": {"type": "integer", "minimum": 1, "description": "from Field"},
        "m": {"type": "integer", "maximum": 9, "description": "from the docstring"},
    }


class Book(BaseModel):
    title: str
    pages: int = Field(default=1, title="Pages of it")


SHELVES = {"title": Book(title="x")}


def test_no_titles_but_a_property_called_title_stays() -> None:
    def lend(title: str, book: Book, kind: dict[str, Book] = SHELVES) -> str:
        return title + book.title + str(kind)

    schema = parameters(lend)
    assert set(schema["properties"]) == {"title", "book", "kind"}
    assert set(schema["$defs"]["Book"]["properties"]) == {"title", "pages"}
    assert "Pages of it" not in str(schema)
    assert schema["properties"]["kind"]["default"]["title"]["title"] == "x"
    assert schema["properties"]["title"] == {"type": "string"}


def test_a_default_that_json_cannot_hold_is_not_shown() -> None:
    def find(pattern: Any = object()) -> str:  # noqa: B008
        return str(pattern)

    assert parameters(find)["properties"] == {"pattern": {}}


def test_no_hint_takes_any_value() -> None:
    def echo(value, more=3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, RUF100
        return value, more

    assert parameters(echo) == {
        "type": "object",
        "properties": {"value": {}, "more": {"default": 3}},
        "required": ["value"],
        "additionalProperties": False,
    }


def test_a_docstring_that_no_style_can_read_is_the_description() -> None:
    def odd() -> None: ...

    for text in ("Note: x\n\n:bad\nArgs:\n  foo", ": :", "Look.\n\n:smile: at it"):
        odd.__doc__ = text
        assert Tool.of(odd).description == text
    odd.__doc__ = None
    assert Tool.of(odd).description == ""


# The decorator


def test_a_decorated_function_stays_the_function_it_was() -> None:
    def double(n: int) -> int:
        return 2 * n

    assert tool(double) is double
    assert double(4) == 8
    marked = tool(name="twice", idempotent=True, timeout_seconds=7, keep=True)(double)
    assert marked is double
    made = Tool.of(double)
    assert (made.name, made.idempotent, made.timeout_seconds, made.keep) == ("twice", True, 7, True)
    assert Tool.of(made) is made


def test_defaults_of_a_bare_function() -> None:
    made = Tool.of(google)
    assert (made.name, made.idempotent, made.timeout_seconds, made.keep) == (
        "google",
        False,
        DEFAULT_TIMEOUT_SECONDS,
        False,
    )


def test_is_tool_tells_marked_functions_from_others() -> None:
    class Shelf:
        @tool
        def take(self) -> None: ...

        @staticmethod
        @tool
        def size() -> None: ...

        @tool
        @classmethod
        def kind(cls) -> None: ...

    assert is_tool(Tool.of(google))
    assert is_tool(Shelf().take)
    assert is_tool(Shelf.size)
    assert is_tool(Shelf.kind)
    assert is_tool(functools.partial(Shelf().take))
    assert not is_tool(google)
    assert not is_tool(3)


@pytest.mark.parametrize("function", [len, "".join])
def test_what_takes_no_mark_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ToolDefinitionError, match="wrap it"):
        tool(function)


# What can be a tool


class Scale:
    """Scale a number."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, n: int) -> int:
        return self.factor * n

    def method(self, n: int) -> int:
        """Scale by method."""
        return self.factor * n

    async def later(self, n: int) -> int:
        """Scale later."""
        return self.factor * n


class AsyncScale(Scale):
    async def __call__(self, n: int) -> int:  # type: ignore[override]
        """Scale in time."""
        return self.factor * n


def add(n: int, m: int) -> int:
    """Add."""
    return n + m


def by_position(n: int, /, m: int = 1) -> int:
    return 10 * n + m


def only_by_name(*, n: int, m: int = 1) -> int:
    return 10 * n + m


@pytest.mark.parametrize(
    ("function", "name", "description", "text"),
    [
        (Scale(3), "Scale", "Scale a number.", "12"),
        (AsyncScale(3), "AsyncScale", "Scale in time.", "12"),
        (Scale(3).method, "method", "Scale by method.", "12"),
        (Scale(3).later, "later", "Scale later.", "12"),
        (functools.partial(add, 5), "add", "Add.", "need m"),
        (functools.partial(add, m=5), "add", "Add.", "9"),
        (functools.partial(functools.partial(Scale(3))), "Scale", "Scale a number.", "12"),
        (functools.partial(Scale(3).later), "later", "Scale later.", "12"),
        (by_position, "by_position", "", "41"),
        (only_by_name, "only_by_name", "", "41"),
    ],
)
async def test_all_kinds_of_callables(
    function: Callable[..., Any], name: str, description: str, text: str
) -> None:
    made = Tool.of(function)
    assert (made.name, made.description) == (name, description)
    if text == "need m":
        assert (await ask(function, '{"m": 4}')).text == "9"
    else:
        assert await ask(function, '{"n": 4}') == ToolAnswer(text, "ok")


def test_what_a_partial_bound_is_not_for_the_model() -> None:
    assert list(parameters(functools.partial(add, m=5))["properties"]) == ["n"]


async def test_further_named_arguments_are_let_through() -> None:
    def collect(first: str, **rest: int) -> dict[str, int]:
        return rest

    assert (await ask(collect, '{"first": "x", "a": 1, "b": "2"}')).text == '{"a": 1, "b": 2}'
    assert (await ask(collect, '{"first": "x", "a": "no"}')).status == "error"


async def test_a_decorator_that_wraps_is_looked_through() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    wrapped = logged(tool(name="summed")(lambda n, m=2: n + m))
    assert await ask(wrapped, '{"n": 1}') == ToolAnswer("3", "ok")
    assert Tool.of(wrapped).name == "summed"


def starred(*paths: str) -> None: ...


def unresolvable(x: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def not_json(x: threading.Lock) -> None: ...


def not_describable(x: Callable[[], int]) -> None: ...


def half_a_character(x: Literal["f\udcff"]) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (starred, "make \\*paths a list"),
        (unresolvable, "the type of x, 'NoSuchType', cannot be resolved"),
        (not_json, "not_json cannot become a tool: a parameter has a type that JSON cannot give"),
        (not_describable, "a type that JSON cannot give"),
        (half_a_character, r"a type that JSON cannot give \(SchemaError: .*'f\\udcff'\)"),
        (Book, "give a function"),
        (3, "give a function"),
        (lambda: None, "bad tool name '<lambda>'.*@tool\\(name="),
        (tool(name="")(functools.partial(add)), "bad tool name ''"),
        (tool(name="ünder")(functools.partial(add)), "bad tool name"),
        (tool(name="x" * 65)(functools.partial(add)), "bad tool name"),
        (tool(name="x\n")(functools.partial(add)), "bad tool name"),
        (tool(timeout_seconds=0)(functools.partial(add)), "more than 0"),
        (tool(timeout_seconds=float("nan"))(functools.partial(add)), "more than 0"),
        (iter, "signature cannot be read"),
    ],
)
def test_what_cannot_be_a_tool_says_what_to_do(wrong: Any, text: str) -> None:
    with pytest.raises(ToolDefinitionError, match=text):
        ToolRegistry([wrong])


# The run's context


def _seen(context: RunContext[Any] | None) -> str:
    return f"{context.session_id} {context.call_id} {context.deps['unit']}" if context else "none"


def plain_context(n: int, context: RunContext[dict[str, str]]) -> str:
    return _seen(context)


def text_context(context: "RunContext[Any]", n: int) -> str:
    return _seen(context)


def unknown_deps(context: "RunContext[NotImported]", n: int) -> str:  # type: ignore[name-defined]  # noqa: F821
    return _seen(context)


def optional_context(n: int, context: Optional[RunContext[Any]] = None) -> str:  # noqa: UP045
    return _seen(context)


def union_context(n: int, *, context: RunContext[Any] | None) -> str:
    return _seen(context)


def annotated_context(n: int, context: Annotated[RunContext[Any], "mine"], /) -> str:
    return _seen(context)


def bare_context(n: int, context: RunContext) -> str:  # type: ignore[type-arg]
    return _seen(context)


@pytest.mark.parametrize(
    "function",
    [
        plain_context,
        text_context,
        unknown_deps,
        optional_context,
        union_context,
        annotated_context,
        bare_context,
    ],
)
async def test_the_context_is_filled_in_and_hidden(function: Callable[..., Any]) -> None:
    assert list(parameters(function)["properties"]) == ["n"]
    assert await ask(function, '{"n": 1}') == ToolAnswer("s1 c1 km", "ok")
    assert (await ask(function, '{"n": 1, "context": {}}')).text.endswith(
        "context: there is no such argument"
    )


def test_the_context_is_found_under_postponed_annotations() -> None:
    source = (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from agentloop.tools import RunContext\n"
        "def look(n: int, context: RunContext[int] | None = None) -> None: ...\n"
    )
    module: dict[str, Any] = {}
    exec(source, module)
    assert list(parameters(module["look"])["properties"]) == ["n"]


async def test_progress_goes_to_whoever_was_given() -> None:
    said: list[str] = []

    def work(context: RunContext[Any]) -> Usage:
        context.progress("half")
        return context.usage

    context = replace(CONTEXT, on_progress=said.append, usage=Usage(input_tokens=7))
    registry = ToolRegistry([work])
    answer = await registry.answer(ToolCall(id="c", name="work"), context)
    assert said == ["half"]
    assert answer.text == '{"input_tokens": 7, "output_tokens": 0, "cached_tokens": 0}'
    assert (await ask(work)).status == "ok"


# The registry


def test_the_registry_is_a_mapping_in_order() -> None:
    registry = ToolRegistry([google, add])
    assert registry.names == ("google", "add")
    assert list(registry) == ["google", "add"]
    assert len(registry) == 2
    assert registry["add"].function is add
    assert registry.get("none") is None
    assert [schema["function"]["name"] for schema in registry.schemas] == ["google", "add"]
    assert ToolRegistry().schemas == ()


def test_two_tools_of_one_name_are_both_named() -> None:
    other = tool(name="add")(functools.partial(Scale(2).method))
    with pytest.raises(ToolDefinitionError, match=r"test_tools\.add and .*test_tools\.Scale\.method"):
        ToolRegistry([add, other])
    with pytest.raises(ToolDefinitionError, match=r"both tests\.test_tools\.Scale: give it once"):
        ToolRegistry([Scale(1), Scale(2)])


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    registry = ToolRegistry([google, add])
    answer = await registry.answer(ToolCall(id="c", name="gogle"), CONTEXT)
    assert answer.status == "error"
    assert answer.text == "There is no tool 'gogle'. Did you mean 'google'? The tools are: google, add."
    assert "The tools are" in (await registry.answer(ToolCall(id="c", name=""), CONTEXT)).text
    none = await ToolRegistry().answer(ToolCall(id="c", name="x" * 9_999), CONTEXT)
    assert none.text.endswith("There are no tools.")
    assert len(none.text) < 200


async def test_a_tool_made_by_hand_needs_no_docstring() -> None:
    async def call(**arguments: Any) -> dict[str, Any]:
        return arguments

    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    made = Tool(name="remote", description="Far away.", parameters=schema, function=call)
    assert made.schema["function"]["parameters"] == schema
    assert await ask(made, '{"q": "x", "r": [1]}') == ToolAnswer('{"q": "x", "r": [1]}', "ok")


OWN = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "mode": {"enum": ["r", "w"]},
        "size": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "tree": {"$ref": "#/$defs/node"},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["n"]}
    },
}


def everything(**arguments: Any) -> dict[str, Any]:
    return arguments


def by_hand(parameters: Any, description: Any = "Far away.") -> Tool:
    return Tool(name="remote", description=description, parameters=parameters, function=everything)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{}", "path: is required and was not given"),
        ('{"path": 3}', "path: Input should be a valid string, not 3"),
        ('{"path": ""}', "path: String should have at least 1 character"),
        ('{"path": "a", "lines": [1, 0]}', "lines.1: Input should be greater than or equal to 1, not 0"),
        ('{"path": "a", "mode": "x"}', "mode: Input should be 'r' or 'w', not 'x'"),
        ('{"path": "a", "size": "big"}', "size"),
        ('{"path": "a", "tree": {"n": 1, "next": {}}}', "tree.next.n: is required and was not given"),
        ('{"path": "a", "more": 1}', "more: there is no such argument"),
    ],
)
@pytest.mark.whole
async def test_arguments_are_held_to_a_schema_of_the_tools_own(arguments: str, text: str) -> None:
    answer = await ask(by_hand(OWN), arguments)
    assert answer.status == "error"
    assert text in answer.text


async def test_arguments_that_fit_a_schema_of_the_tools_own_are_given_as_they_are() -> None:
    given = '{"path": "a", "lines": [1, 2], "mode": "r", "size": 3, "tree": {"next": {"n": 2}, "n": 1}}'
    assert (await ask(by_hand(OWN), given)).text == given
    mended = await ask(by_hand(OWN), '{"path": "[1]", "lines": "[1, 2]", "mode": null}')
    assert mended.text == '{"path": "[1]", "lines": [1, 2]}'


@pytest.mark.parametrize(
    ("schema", "fits", "others"),
    [
        ({"type": "number", "minimum": 0.5}, [0.5, 1], [0, 0.4, -1]),
        ({"type": "number", "exclusiveMaximum": 2.5}, [2, 2.4], [2.5, 3]),
        ({"type": "number", "multipleOf": 0.1}, [0.3, 7], [0.35]),
        ({"type": "number", "multipleOf": 1.5}, [3, 4.5], [2, 4]),
        ({"type": "integer", "minimum": 0.5, "maximum": 3.5}, [1, 3], [0, 4]),
        ({"type": "integer", "exclusiveMinimum": 0.5, "exclusiveMaximum": 3.5}, [1, 3], [0, 4]),
        ({"type": "number"}, [1, 1.5], ["nan", "inf", "x"]),
        ({"type": "string", "nullable": True}, ["a", None], [1]),
        ({"$ref": "#/$defs/size", "nullable": True}, [1, None], ["a"]),
        ({"enum": ["auto", 1, 2.5]}, ["auto", 1, 2.5], ["off", True, 2]),
        ({"type": "string", "minLength": 2.0}, ["ab"], ["a"]),
        ({"const": {"a": 1}}, [{"a": 1}], [{"a": 2}]),
    ],
)
async def test_values_are_held_to_what_a_schema_says_of_them(
    schema: dict[str, Any], fits: list[object], others: list[object]
) -> None:
    size = {"size": {"type": "integer"}}
    made = by_hand({"properties": {"x": schema}, "required": ["x"], "$defs": size})
    for value in fits:
        given = json.dumps({"x": value})
        assert await ask(made, given) == ToolAnswer(given, "ok")
    for value in others:
        assert (await ask(made, json.dumps({"x": value}))).status == "error", value


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "number", "multipleOf": 0},
        {"type": "integer", "minimum": float("inf")},
        {"type": "string", "maxLength": -1},
        {"type": "array", "minItems": 10**30},
        {"type": "number", "maximum": float("nan")},
        {"type": []},
        {"enum": []},
    ],
)
async def test_what_cannot_be_held_of_one_part_leaves_the_others_held(odd: dict[str, Any]) -> None:
    made = by_hand({"properties": {"odd": odd, "size": {"type": "integer"}}})
    assert (await ask(made, '{"size": "big"}')).status == "error"
    assert (await ask(made, '{"size": 1}')).status == "ok"


@pytest.mark.parametrize(
    "odd", [{"properties": 3}, {"required": "q"}, {"$ref": "#/$defs/none"}, {"anyOf": [3]}]
)
async def test_a_schema_that_says_nothing_known_holds_nothing_up(odd: dict[str, Any]) -> None:
    assert (await ask(by_hand(odd), '{"q": 1}')).text == '{"q": 1}'


ENDLESS = """
import asyncio, json, sys
from agentloop.messages import ToolCall
from agentloop.tools import RunContext, Tool, ToolRegistry

def ref(name):
    return {"$ref": f"#/$defs/{name}"}

def chain(count):
    return {str(number): ref(number + 1) for number in range(count)} | {str(count): {"type": "integer"}}

def deep(around):
    schema = {"type": "integer"}
    for _ in range(100):
        schema = around(schema)
    return schema

SCHEMAS = {
    "itself": ({"0": ref(0)}, ref(0)),
    "itself among all": ({"0": {"allOf": [{"allOf": [ref(1)]}]}, "1": ref(0)}, ref(0)),
    "itself and a type": ({"0": {"allOf": [ref(0), {"type": "integer"}]}}, ref(0)),
    "the one choice": ({"0": {"anyOf": [{"oneOf": [ref(0)]}]}}, ref(0)),
    "itself or null": ({"0": {"nullable": True, **ref(0)}}, ref(0)),
    "a choice": ({"0": {"anyOf": [ref(0), {"type": "integer"}]}}, ref(0)),
    "a member": ({"0": {"properties": {"p": ref(0)}}}, ref(0)),
    "a row of 60": (chain(60), ref(0)),
    "a row of 500": (chain(500), ref(0)),
    "a row of 50,000": (chain(50_000), ref(0)),
    "a row of lists": (
        {str(number): {"type": "array", "items": ref(number + 1)} for number in range(100_000)},
        {"anyOf": [ref(0), ref(1)]},
    ),
    "deep items": ({}, deep(lambda schema: {"type": "array", "items": schema})),
}

async def main():
    named, schema = SCHEMAS[sys.argv[1]]
    parameters = {"properties": {"x": schema, "size": {"type": "integer"}}, "$defs": named}
    tool = Tool(name="t", description="d", parameters=parameters, function=lambda **given: "ok")
    context = RunContext(session_id="s", run_id="r", call_id="c", deps=None)
    for given in ({}, {"x": 1}, {"x": "a"}, {"x": {"p": {}}}, {"x": [[]]}, {"size": "a"}):
        call = ToolCall(id="c", name="t", arguments=json.dumps(given))
        print((await ToolRegistry([tool]).answer(call, context)).status)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("name", "fitting"),
    [
        ("itself", "1 a p []"),
        ("itself among all", "1 a p []"),
        ("itself and a type", "1 a p []"),
        ("the one choice", "1 a p []"),
        ("itself or null", "1 a p []"),
        ("a choice", "1"),
        ("a member", "p"),
        ("a row of 60", "1"),
        ("a row of 500", "1 a p []"),
        pytest.param("a row of 50,000", "1 a p []", marks=pytest.mark.deep),
        pytest.param("a row of lists", "[]", marks=pytest.mark.deep),
        ("deep items", "[]"),
    ],
)
def test_a_schema_without_an_end_holds_its_other_parts(name: str, fitting: str, tmp_path: Path) -> None:
    with program(ENDLESS, name, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    expected = [None, "1", "a", "p", "[]"]
    statuses = ["ok" if each is None or each in fitting.split() else "error" for each in expected]
    assert (process.returncode, out.split()) == (0, [*statuses, "error"]), err


@pytest.mark.parametrize(
    "around",
    [
        lambda schema: {"type": "object", "properties": {"p": schema}},
        lambda schema: {"type": "array", "items": schema},
        lambda schema: {"anyOf": [schema]},
        lambda schema: {"allOf": [schema]},
    ],
)
def test_a_schema_that_no_request_can_hold_is_refused(around: Callable[[object], object]) -> None:
    schema: object = {}
    for _ in range(2000):
        schema = around(schema)
    for parameters in ({"properties": {"x": schema}}, {"$defs": {"x": schema}}):
        with pytest.raises(ToolDefinitionError, match="nested more than 128 deep"):
            by_hand(parameters)


def test_a_tool_made_by_hand_has_properties() -> None:
    for given in ({}, {"type": "object"}):
        assert by_hand(given).schema["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("wrong", [None, [], "object", {"type": "string"}])
def test_parameters_that_are_no_schema_of_an_object_are_refused(wrong: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="parameters must be a JSON schema of type object"):
        by_hand(wrong)


def test_a_description_is_a_text_and_not_too_long() -> None:
    with pytest.raises(ToolDefinitionError, match="description must be a text, not None"):
        by_hand({}, description=None)
    with pytest.warns(UserWarning, match=r"1,025 characters; some servers refuse more than 1,024"):
        by_hand({}, description="x" * 1025)


class Where(TypedDict, total=False):
    path: str


def unpacked(depth: int = 1, **where: Unpack[Where]) -> str:
    return f"{depth} {dict(where)}"


def test_keys_that_are_to_be_unpacked_are_to_be_named() -> None:
    with pytest.raises(ToolDefinitionError, match=r"give the keys of \*\*where one by one, each a parameter"):
        Tool.of(unpacked)


def test_a_text_that_annotates_a_parameter_describes_it() -> None:
    def look(
        path: Annotated[str, "the file"],
        lines: Annotated[int, "not this", Field(description="how many")] = 1,
        mode: Annotated[str, "how"] = "r",
    ) -> None:
        """Look.

        Args:
            mode: not this.
        """

    described = {name: each["description"] for name, each in Tool.of(look).parameters["properties"].items()}
    assert described == {"path": "the file", "lines": "how many", "mode": "how"}


# Arguments


async def test_arguments_that_can_mean_only_one_thing_are_taken() -> None:
    @dataclass
    class Edit:
        old: str
        lines: list[int]

    def change(
        text: str,
        edits: list[Edit],
        names: set[str] | None = None,
        count: int = 2,
        either: str | list[str] = "",
    ) -> str:
        return f"{text} {edits} {names} {count} {either}"

    shown = "[1] [test_arguments_that_can_mean_only_one_thing_are_taken.<locals>.Edit(old='a', lines=[3])] "
    edits = json.dumps([{"old": "a", "lines": "[3]"}])
    given = {"text": "[1]", "edits": edits, "count": None, "either": '["x"]'}
    assert (await ask(change, json.dumps(given))).text == shown + 'None 2 ["x"]'
    given |= {"edits": json.loads(edits), "names": '["n"]', "count": "3"}
    assert (await ask(change, json.dumps(given))).text == shown + "{'n'} 3 [\"x\"]"
    refused = await ask(change, '{"text": null, "edits": "[1", "names": "{}"}')
    assert "text: Input should be a valid string, not None" in refused.text
    assert "edits: Input should be a valid list, not '[1'" in refused.text


async def test_raw_control_characters_in_strings_are_taken() -> None:
    def say(text: str) -> str:
        return text

    assert (await ask(say, '{"text":\n"a\n\tb\\n"}')).text == "a\n\tb\n"
    assert ToolCall(id="c", name="say", arguments='{"text": "a\nb"}').decoded() == {"text": "a\nb"}


@pytest.mark.parametrize("given", [5, "x", {"a": 1}])
async def test_what_is_no_list_is_told_in_words_of_json(given: Any) -> None:
    def count(values: Sequence[int]) -> int:
        return len(values)

    assert (
        "values: Input should be a valid list, not" in (await ask(count, json.dumps({"values": given}))).text
    )


@pytest.mark.parametrize("blank", ["", "  \n"])
async def test_blank_arguments_are_no_arguments(blank: str) -> None:
    assert await ask(tool(name="named")(functools.partial(lambda n=2: n)), blank) == ToolAnswer("2", "ok")
    assert (await ask(add, blank)).text == (
        "add was not called, since its arguments do not fit: "
        "n: is required and was not given; m: is required and was not given"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("null", "they are null; give one JSON object"),
        ("[]", "they are a JSON list; give one JSON object"),
        ('"x"', "they are a JSON string"),
        ("3", "they are a JSON number"),
        ("true", "they are a JSON number or truth value"),
        ('{"n": 1, "m', "they are not valid JSON (Unterminated string"),
        ('{"n": 1, "m": 2}{"n": 1, "m": 2}', "they are not valid JSON (Extra data"),
        ("[" * 100_000, "they are not valid JSON"),
        ('{"n": ' + "9" * 5000 + "}", "they are not valid JSON"),
        (
            '{"n": "x", "m": 2}',
            "n: Input should be a valid integer, unable to parse string as an integer, not 'x'",
        ),
        ('{"n": 1, "m": 2, "o": 3}', "o: there is no such argument"),
        ('{"n": "' + "y" * 500 + '", "m": 2}', "…"),
    ],
)
async def test_arguments_that_do_not_fit_are_answered(arguments: str, text: str) -> None:
    answer = await ask(add, arguments)
    assert answer.status == "error"
    assert text in answer.text
    assert "\n" not in answer.text
    assert "pydantic" not in answer.text
    assert len(answer.text) < 400


async def test_many_faults_are_told_shortly() -> None:
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    answer = await ask(total, '{"numbers": [' + ", ".join(['"x"'] * 40) + "]}")
    assert "numbers.0: " in answer.text
    assert answer.text.endswith("; and 30 more")


async def test_arguments_are_converted() -> None:
    @dataclass
    class Point:
        x: int
        y: int

    def hold(point: Point, book: Book, names: set[str]) -> str:
        return f"{point.x + point.y} {book.pages} {sorted(names)}"

    given = '{"point": {"x": 1, "y": "2"}, "book": {"title": "t"}, "names": ["b", "a"]}'
    assert (await ask(hold, given)).text == "3 1 ['a', 'b']"


async def test_a_validator_that_breaks_is_an_answer() -> None:
    def broken(value: str) -> str:
        raise LookupError("no such unit")

    def measure(n: Annotated[str, AfterValidator(broken)]) -> str:
        return n

    assert await ask(measure, '{"n": "1"}') == ToolAnswer(
        "measure failed: LookupError: no such unit", "error"
    )


# Failures of the tool itself


def failing(kind: str) -> None:
    """Fail in the way asked for."""
    match kind:
        case "key":
            raise KeyError("failing")
        case "silent":
            raise ValueError
        case "type":
            add(1)  # type: ignore[call-arg]
        case "validation":
            Book.model_validate({})
        case "retry":
            raise RetryTool("use a smaller n")
        case "retry silent":
            raise RetryTool
        case "group":
            raise BaseExceptionGroup("two", [ValueError("a"), SystemExit(2)])
        case "exit":
            sys.exit(3)
        case "stop":
            raise StopIteration
        case "generator exit":
            raise GeneratorExit
        case "unprintable":
            raise _UnprintableError
        case "timeout":
            raise TimeoutError("the server is slow")


async def failing_later(kind: str) -> None:
    """Fail in the way asked for, in the event loop."""
    await asyncio.sleep(0)
    failing(kind)


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


FAILURES = {
    "key": "KeyError: 'failing'",
    "silent": "ValueError (without a text)",
    "type": "TypeError: add() missing 1 required positional argument: 'm'",
    "validation": "ValidationError: 1 validation error for Book",
    "group": "BaseExceptionGroup: two (2 sub-exceptions): ValueError: a; SystemExit: 2",
    "exit": "SystemExit: 3",
    "unprintable": "_UnprintableError (its text cannot be read: RuntimeError)",
    "timeout": "TimeoutError: the server is slow",
}


@pytest.mark.parametrize("function", [failing, failing_later])
@pytest.mark.parametrize("kind", FAILURES)
async def test_l16_a_failure_is_an_answer(function: Callable[..., Any], kind: str) -> None:
    answer = await ask(function, f'{{"kind": "{kind}"}}')
    assert answer.status == "error"
    assert answer.text.startswith(f"{function.__name__} failed: {FAILURES[kind]}")


@pytest.mark.parametrize("function", [failing, failing_later])
async def test_l16_what_would_end_a_coroutine_is_an_answer(function: Callable[..., Any]) -> None:
    answer = await ask(function, '{"kind": "stop"}')
    assert answer.status == "error"
    assert "StopIteration" in answer.text


async def test_l16_a_thread_may_raise_anything() -> None:
    assert (await ask(failing, '{"kind": "generator exit"}')).text.startswith("failing failed: GeneratorExit")

    def interrupted() -> None:
        raise KeyboardInterrupt

    assert (await ask(interrupted)).text == "interrupted failed: KeyboardInterrupt (without a text)"


@pytest.mark.parametrize("function", [failing, failing_later])
async def test_retry_tells_the_model_what_to_change(function: Callable[..., Any]) -> None:
    name = function.__name__
    answer = await ask(function, '{"kind": "retry"}')
    assert answer == ToolAnswer(f"Call {name} again, differently: use a smaller n", "error")
    assert (await ask(function, '{"kind": "retry silent"}')).text == f"Call {name} again, differently"


async def test_a_tool_that_is_cancelled_from_within_is_an_answer() -> None:
    async def gone() -> None:
        raise asyncio.CancelledError

    assert await ask(gone) == ToolAnswer("gone failed: it was cancelled before it had a result", "error")


# Values that are more than values


async def test_generators_and_awaitables_are_followed() -> None:
    def lines() -> Iterator[str]:
        yield "a"
        yield "b"

    async def later_lines() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    async def endless() -> AsyncIterator[int]:
        while True:
            yield 1

    def coroutine() -> Any:
        return failing_later("none")

    assert (await ask(lines)).text == '["a", "b"]'
    assert (await ask(later_lines)).text == '["a", "b"]'
    assert (await ask(endless)).text.endswith('1, "[more values left out]"]')
    assert await ask(coroutine) == ToolAnswer("(no result)", "ok")


async def test_what_a_generator_yields_before_it_fails_is_a_result() -> None:
    def breaks(after: int) -> Iterator[int]:
        yield from range(after)
        raise ValueError("half way")

    async def breaks_later(after: int) -> AsyncIterator[int]:
        for number in range(after):
            yield number
        raise ValueError("half way")

    for function in (breaks, breaks_later):
        kept = '[0, 1, "[the rest failed: ValueError: half way]"]'
        assert await ask(function, '{"after": 2}') == ToolAnswer(kept, "ok")
        nothing = f"{function.__name__} failed: ValueError: half way"
        assert await ask(function, '{"after": 0}') == ToolAnswer(nothing, "error")


async def test_sync_tools_run_in_threads_with_the_context_variables() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def where() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {variable.get()}"

    async def here() -> str:
        return where()

    assert (await ask(where)).text == "False set"
    assert (await ask(here)).text == "True set"


async def test_sync_tools_run_side_by_side() -> None:
    together = threading.Barrier(3)

    def meet() -> str:
        together.wait(timeout=120)
        return "met"

    answers = await asyncio.gather(*(ask(meet) for _ in range(3)))
    assert {answer.text for answer in answers} == {"met"}


# Time limits and cancelling


async def test_a_stuck_thread_times_out_and_its_late_result_is_dropped() -> None:
    release, ended = threading.Event(), threading.Event()

    @tool(timeout_seconds=0.01)
    def stuck() -> str:
        release.wait(timeout=120)
        ended.set()
        return "late"

    answer = await ask(stuck)
    assert answer.status == "timeout"
    assert answer.text.startswith("stuck timed out after 0.01 s; what it did until then stays done: look")
    release.set()
    assert await in_thread(ended.wait, 120)


async def test_an_async_tool_that_times_out_is_really_cancelled() -> None:
    seen: list[str] = []

    @tool(timeout_seconds=0.01)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    assert (await ask(slow)).status == "timeout"
    assert seen == ["cleaned up"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_l16_cancelling_reaches_the_caller_and_leaves_no_task(is_async: bool) -> None:
    started, release = threading.Event(), threading.Event()
    seen: list[str] = []

    async def later() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    def stuck() -> None:
        started.set()
        release.wait(timeout=120)

    before = asyncio.all_tasks()
    running = asyncio.create_task(ask(later if is_async else stuck))
    await in_thread(started.wait, 120)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    release.set()
    assert asyncio.all_tasks() == before
    assert seen == (["cleaned up"] if is_async else [])


async def test_work_that_swallows_cancelling_is_left_behind() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        raise ValueError("nobody looks at this")

    with pytest.raises(DeadlineError):
        await within(stubborn(), seconds=0.01, grace_seconds=0.01)
    release.set()


async def test_within_gives_what_the_work_gives() -> None:
    async def fine() -> int:
        return 3

    async def bad() -> None:
        raise TimeoutError("its own")

    async def gone() -> None:
        raise asyncio.CancelledError

    assert await within(fine(), seconds=float("inf")) == 3
    with pytest.raises(TimeoutError, match="its own"):
        await within(bad(), seconds=5)
    with pytest.raises(SelfCancelledError):
        await within(gone(), seconds=5)


async def test_in_thread_gives_and_raises_what_the_function_does() -> None:
    assert await in_thread(add, 1, m=2) == 3
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)


def test_a_late_result_finds_a_closed_loop(capfd: pytest.CaptureFixture[str]) -> None:
    entered, release = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @tool(timeout_seconds=0.01)
    def stuck() -> None:
        threads.append(threading.current_thread())
        entered.set()
        release.wait(timeout=120)

    assert asyncio.run(ask(stuck)).status == "timeout"
    assert entered.wait(timeout=120)
    release.set()
    threads[0].join(timeout=120)
    assert not threads[0].is_alive()
    assert capfd.readouterr() == ("", "")


STUCK = """
import asyncio, threading
from agentloop.messages import ToolCall
from agentloop.tools import RunContext, ToolRegistry, tool

@tool(timeout_seconds=0.01)
def stuck() -> None:
    threading.Event().wait()

context = RunContext(session_id="s", run_id="r", call_id="c", deps=None)
print(asyncio.run(ToolRegistry([stuck]).answer(ToolCall(id="c", name="stuck"), context)).status)
"""


def test_a_stuck_tool_does_not_hold_up_the_end_of_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "timeout\n", "")


def test_pydantic_loads_with_the_first_tool() -> None:
    source = (
        "import sys, agentloop.tools; print('pydantic' in sys.modules, 'docstring_parser' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\n"
