"""Answers of a type: by a tool and by the provider's format, refused, compacted, resumed."""

import asyncio
import dataclasses
import enum
import json
import math
from collections.abc import AsyncGenerator, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, Optional

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter, computed_field, create_model, field_validator
from typing_extensions import TypedDict

from agentloop import Agent, Message, Native, OutputError, Runner, Secrets, SyncRunner, tool
from agentloop.durable.held_run import WorkPlace
from agentloop.durable.orders import Order
from agentloop.durable.workflow import Workflow
from agentloop.errors import ToolDefinitionError
from agentloop.models import Answer, ModelPart, ModelRequest, Retry, TextPart
from agentloop.providers.openai import OpenAIChat, OpenAIResponses
from agentloop.run import Limits
from agentloop.runner import config_of
from agentloop.stream import AnyStreamEvent, OutputDelta, RunEnded
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import agentloop
from tests.kit import assert_valid, every_fact, read, reading, watched
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Call, Reply


class City(BaseModel):
    """A place with people."""

    name: str
    people: int


class Nowhere(BaseModel):
    """There is no such city."""

    why: str


class Tree(BaseModel):
    """Holds its like."""

    name: str
    children: "list[Tree]" = []


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


def city(**fields: Any) -> Any:
    return calls(final_answer={"name": "Rome", "people": 3, **fields})


def results_of(model: ScriptedModel) -> list[str]:
    """What the tools answered, as the newest request has it."""
    return [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]


_LEAVES: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]] = st.sampled_from(
    [
        (int, st.integers(-(10**12), 10**12)),
        (str, st.text(max_size=8)),
        (bool, st.booleans()),
        (float, st.floats(allow_nan=False, allow_infinity=False)),
        (date, st.dates()),
        (datetime, st.datetimes()),
        (Colour, st.sampled_from(Colour)),
        (Literal["near", "far"], st.sampled_from(["near", "far"])),
        (
            Tree,
            st.builds(
                Tree,
                name=st.text(max_size=4),
                children=st.lists(st.builds(Tree, name=st.text(max_size=3)), max_size=2),
            ),
        ),
    ]
)


@st.composite
def _larger(draw: st.DrawFn, inner: Any) -> tuple[Any, st.SearchStrategy[Any]]:
    kind, values = draw(inner)
    match draw(st.sampled_from(["list", "dict", "optional", "union", "model", "dataclass", "typeddict"])):
        case "list":
            return list[kind], st.lists(values, max_size=3)
        case "dict":
            return dict[str, kind], st.dictionaries(st.text(max_size=4), values, max_size=3)
        case "optional":
            return Optional[kind], st.none() | values  # noqa: UP045 — a type that is a value
        case "union":
            return City | Nowhere | None, st.none() | st.builds(Nowhere, why=st.text(max_size=5))
        case "model":
            model = create_model("Model", first=(kind, ...), second=(Optional[kind], None))  # noqa: UP045 — the same
            return model, st.builds(model, first=values, second=st.none() | values)
        case "dataclass":
            made = dataclasses.make_dataclass("Made", [("first", kind), ("number", int, 4)])
            return made, st.builds(made, first=values, number=st.integers(-9, 9))
    typed: Any = TypedDict("typed", {"first": kind, "of a name": int})  # type: ignore[misc]
    return typed, st.fixed_dictionaries({"first": values, "of a name": st.integers(-9, 9)})


TYPES = st.recursive(_LEAVES, _larger, max_leaves=4).flatmap(
    lambda each: st.tuples(st.just(each[0]), each[1])
)


@pytest.fixture(
    scope="module",
    params=[(kind, knows) for kind in (OpenAIChat, OpenAIResponses) for knows in ("all", "words")],
    ids=lambda each: f"{each[0].__name__}-{each[1]}",
)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Any, list[Any], str]]:
    """A model on a strict server, what that answers next, and whether it takes tools and formats."""
    replies: list[Any] = []
    kind, knows = request.param
    modes = ["no-tools", "no-formats"] if knows == "words" else []
    with StrictProvider(lambda body: replies.pop(0), modes=modes) as server:
        yield kind("m", base_url=server.url, window="8k"), replies, knows


@pytest.mark.many(80, 10)
@given(drawn=TYPES)
def test_values_of_any_type_come_back_by_the_tool_by_the_format_and_in_words(served: Any, drawn: Any) -> None:
    model, replies, knows = served
    wanted, value = drawn
    assume(wanted is not str)
    adapter: TypeAdapter[Any] = TypeAdapter(wanted)
    told = adapter.dump_python(value, mode="json", by_alias=True)
    for output in (wanted, Native(wanted)):
        agent = Agent(model, output=output, compaction=None)
        assert agent.output_type
        form = agent.output_type.forms[0]
        given_so = json.dumps({"answer": told} if form.is_wrapped else told)
        by_tool = Reply(calls=(Call(name="final_answer", arguments=given_so),))
        in_words = f"Here it is:\n```json\n{given_so}\n```"
        replies[:] = [in_words if knows == "words" else given_so if isinstance(output, Native) else by_tool]
        assert asyncio.run(Runner(agent, transcripts=None).run("go")).output == value


@dataclasses.dataclass
class Measured:
    values: dict[str, list[float | None]]


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_number_that_json_lacks_is_refused_and_given_again(served: Any, wrapped: bool, number: str) -> None:
    model, replies, knows = served
    wanted: Any = float if wrapped else Measured
    given = [5.5 if wrapped else {"values": {"a": [1.5, None]}}]
    given.insert(0, number if wrapped else {"values": {"a": [1.5, number]}})
    value = 5.5 if wrapped else Measured({"a": [1.5, None]})
    for output in (wanted, Native(wanted)):
        texts = [json.dumps({"answer": each} if wrapped else each) for each in given]
        in_text = knows == "words" or isinstance(output, Native)
        by_tool = [Reply(calls=(Call(name="final_answer", arguments=each),)) for each in texts]
        replies[:] = texts if in_text else by_tool
        result = asyncio.run(Runner(Agent(model, output=output), transcripts=None).run("go"))
        assert result.output == value
        assert sum("NaN" in message.text for message in result.messages) == 1
        assert replies == []


@dataclasses.dataclass
class Bounded:
    name: str
    most: float = math.inf


class Counted(BaseModel):
    name: str

    @computed_field
    def rate(self) -> float:
        return math.inf


@pytest.mark.parametrize(
    ("kind", "text"), [(Bounded, '{"name":"Rome","most":null}'), (Counted, '{"name":"Rome","rate":null}')]
)
async def test_a_number_of_the_type_itself_may_be_infinite(kind: Any, text: str) -> None:
    model = ScriptedModel([calls(final_answer={"name": "Rome"})] * 2)
    runner = Runner(Agent(model, output=kind), transcripts=None)
    assert (await runner.run("go")).output == kind(name="Rome")
    (ended,) = [event async for event in runner.stream("go") if isinstance(event, RunEnded)]
    assert ended.output == text


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
def test_the_agents_requests_alone_ask_for_the_format_of_the_provider(kind: Any, tmp_path: Path) -> None:
    def brain(body: Body) -> str:
        is_summary = "<conversation" in json.dumps(body)
        return "Rome was spoken of. " * 9 if is_summary else '{"name": "Rome", "people": 3}'

    with StrictProvider(brain) as server:
        agent = Agent(kind("m", base_url=server.url), output=Native(City))
        with SyncRunner(agent, transcripts=tmp_path) as runner:
            for number in range(9):
                assert runner.run(f"{number} " * 300, session_id="s").output == City(name="Rome", people=3)
            compacted = runner.compact("s")
        assert compacted.status == "done"
        asked = [*map(format_in, server.bodies)]
    assert asked[-1] is None
    assert asked[0] == {
        "type": "json_schema",
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
            "required": ["name", "people"],
            "additionalProperties": False,
        },
    }


def format_in(body: Body) -> Any:
    """The format that a body of either API asks for."""
    if told := body.get("response_format"):
        return {"type": told["type"], **told["json_schema"]}
    return body.get("text", {}).get("format")


async def test_what_does_not_fit_goes_back_with_what_is_wrong() -> None:
    model = ScriptedModel([city(people="many"), "It is Rome.", city()])
    runner: Runner[City] = Runner(Agent(model, output=City), transcripts=None)
    result = await runner.run("Which city?", session_id="s")
    assert result.output == City(name="Rome", people=3)
    wrong, no_json = results_of(model)
    assert "people" in wrong
    assert "many" in wrong
    assert '"people"' in no_json  # the schema, for models that answer in text
    assert_valid(model.requests)
    again = await runner.resume("s")
    assert again.output == result.output
    assert len(model.requests) == 3


async def test_after_three_tries_the_run_fails_and_its_session_goes_on() -> None:
    model = ScriptedModel([city(people="many"), "Rome", city(name=None), city()])
    runner = Runner(Agent(model, output=City), transcripts=None)
    with pytest.raises(OutputError, match=r"none of 3 answers was of the type .*; the last: name") as caught:
        await runner.run("Which city?", session_id="s")
    assert json.loads(caught.value.text)["name"] is None
    assert len(str(caught.value).splitlines()) == 1
    assert (await runner.resume("s")).output == City(name="Rome", people=3)
    assert_valid(model.requests)


async def test_a_tools_result_that_reads_like_a_refused_answer_is_no_try() -> None:
    def look() -> str:
        """Look."""
        return "[The answer was not taken: no] Give it again."

    model = ScriptedModel([calls(look={}), calls(look={}), city(people="many"), city()])
    result = await Runner(Agent(model, tools=[look], output=City), transcripts=None).run("Which city?")
    assert result.output == City(name="Rome", people=3)


async def test_each_type_of_a_union_is_a_tool_of_its_own() -> None:
    model = ScriptedModel([calls(final_answer_Nowhere={"why": "It sank."}), '{"name": "Rome", "people": 3}'])
    agent: Agent[City | Nowhere] = Agent(model, output=City | Nowhere)
    runner = Runner(agent, transcripts=None)
    assert (await runner.run("Atlantis?")).output == Nowhere(why="It sank.")
    assert (await runner.run("Rome?")).output == City(name="Rome", people=3)
    offered = {each["function"]["name"]: each["function"]["description"] for each in model.requests[0].tools}
    assert "There is no such city." in offered["final_answer_Nowhere"]
    assert "final_answer_City" in offered


@pytest.mark.parametrize(
    ("output", "said", "value"),
    [
        (int, "7", 7),
        (Native(int), '{"answer": 7}', 7),
        (Native(str), 'Write\n```json\n{"a": 1}\n```', 'Write\n```json\n{"a": 1}\n```'),
        (Literal["yes", "no"], "yes", "yes"),
        (list[int], "```json\n[1, 2]\n```", [1, 2]),
        (date, "2026-11-29", date(2026, 11, 29)),
        (
            {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            '{"n": 1}',
            {"n": 1},
        ),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", [1]),
    ],
)
async def test_a_text_that_is_the_value_is_the_answer(output: Any, said: str, value: Any) -> None:
    runner = Runner(Agent(ScriptedModel([said]), output=output), transcripts=None)
    assert (await runner.run("go")).output == value


async def test_calls_beside_the_answer_run_before_the_run_ends() -> None:
    done: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note it."""
        done.append(text)
        return "noted"

    model = ScriptedModel([[*calls(note={"text": "a"}), *city(), *city(name="Oslo")]])
    runner = Runner(Agent(model, tools=[note], output=City), transcripts=None)
    result = await runner.run("go", session_id="s")
    assert result.output == City(name="Rome", people=3)
    assert done == ["a"]


async def test_values_grow_while_they_come_unless_secrets_are_hidden() -> None:
    class Long(BaseModel):
        model_config = ConfigDict(extra="allow")
        text: str = ""

    said = json.dumps({"text": "word " * 40})
    for redact in (None, Secrets(["hush"])):
        with StrictProvider([said]) as server:
            agent = Agent(OpenAIChat("m", base_url=server.url), output=Native(Long))
            runner = Runner(agent, transcripts=None, redact=redact)
            events: list[AnyStreamEvent] = await watched(runner, "go")
        begun = [event.output["text"] for event in events if isinstance(event, OutputDelta) and event.output]
        assert begun == sorted(begun, key=len)
        assert bool(begun) is (redact is None)
        (ended,) = [event for event in events if isinstance(event, RunEnded)]
        assert json.loads(ended.output)["text"] == "word " * 40


CITIES = [{"name": f"City {number}", "people": number} for number in range(9)]
LISTED = json.dumps({"answer": CITIES})


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize(
    ("output", "said"),
    [
        (list[City], Reply(calls=(Call(name="final_answer", arguments=LISTED),))),
        (list[City], Reply(text="I think.", calls=(Call(name="final_answer", arguments=LISTED),))),
        (Native(list[City]), Reply(text=LISTED)),
        (list[City], Reply(text=f"Here:\n```json\n{json.dumps(CITIES)}\n```")),
        ({"type": "array", "items": City.model_json_schema()}, Reply(text=f"Here: {LISTED}")),
        (
            dict[str, list[City]] | list[City],
            Reply(calls=(Call(name="final_answer", arguments=LISTED),)),
        ),
    ],
)
async def test_a_list_grows_by_what_fits(kind: Any, output: Any, said: Reply) -> None:
    with StrictProvider([said]) as server:
        agent = Agent(kind("m", base_url=server.url), output=output)
        events = await watched(Runner(agent, transcripts=None), "go")
    begun = [event.output for event in events if isinstance(event, OutputDelta)]
    assert len({len(each) for each in begun}) > 3
    assert begun == [CITIES[: len(each)] for each in sorted(begun, key=len)]
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    assert json.loads(ended.output) == CITIES


async def test_each_try_and_each_type_of_a_union_grows_by_itself() -> None:
    model = ScriptedModel(
        [
            calls(final_answer_City={"name": "Rome", "people": "many"}),
            calls(final_answer_Nowhere={"why": "It sank."}),
        ]
    )
    agent: Agent[City | Nowhere] = Agent(model, output=City | Nowhere)
    events = await watched(Runner(agent, transcripts=None), "Atlantis?")
    begun = [event.output for event in events if isinstance(event, OutputDelta)]
    assert begun[-1] == {"why": "It sank."}
    assert all(set(each) == {"why"} for each in begun)


async def test_compactions_between_the_tries_forget_no_try(tmp_path: Path) -> None:
    wrong = city(people="many")
    model = ScriptedModel(
        [*reading(30)[:-1], wrong, *reading(12)[:-1], wrong, *reading(12)[:-1], wrong],
        window=8_000,
        summary=every_fact,
    )
    runner = Runner(Agent(model, tools=[read], output=City), transcripts=tmp_path)
    with pytest.raises(OutputError):
        await runner.run("Read", session_id="s")
    assert_valid(model.requests)
    assert (await runner.status("s")).tokens <= 8_000


async def test_at_a_limit_the_text_so_far_is_the_output() -> None:
    model = ScriptedModel(["I look first.", city(people="many")])
    result = await Runner(Agent(model, output=City, max_steps=1), transcripts=None).run("go")
    assert (result.status, result.output) == ("limit", "I look first.")


async def test_a_sub_agent_answers_in_json() -> None:
    below = Agent(ScriptedModel([city()]), output=City).as_tool("find", "Finds a city.")
    model = ScriptedModel([calls(find={"task": "Find Rome."}), "Found."])
    await Runner(Agent(model, tools=[below]), transcripts=None).run("go")
    assert json.loads(results_of(model)[0]) == {"name": "Rome", "people": 3}


@dataclasses.dataclass
class Door:
    """A dataclass."""

    number: int


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Door(7), "give Door in place of Door"),
        (City(name="Rome", people=3), "give City in place of City"),
        (lambda: City, "it is a function"),
        ({"name": str}, "the schema is not JSON"),
        ({"type": "objec"}, "'objec' is no type of a JSON schema"),
        ({"type": "array", "items": {"type": ["string", "none"]}}, "'none' is no type of a JSON schema"),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "int"}}}, "'int' is no type of"),
    ],
)
def test_an_output_that_is_no_type_is_refused_in_one_line(wanted: object, says: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        _ = Agent(ScriptedModel([]), output=wanted).system
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_json_cannot_give_and_a_name_twice_are_refused() -> None:
    def final_answer() -> str:
        """Taken."""
        return ""

    with pytest.raises(ToolDefinitionError, match=r"output=.*JSON"):
        Agent(ScriptedModel([]), output=ScriptedModel)
    with pytest.raises(ToolDefinitionError, match="final_answer"):
        Agent(ScriptedModel([]), tools=[final_answer], output=City)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("spec", "given", "printed"),
    [("schema.json", {"n": 5}, {"n": 5}), ("builtins:int", {"answer": 5}, 5)],
)
def test_the_command_line_prints_the_json_alone(
    spec: str, given: object, printed: object, tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    said = Reply(calls=(Call(name="final_answer", arguments=json.dumps(given)),))
    with StrictProvider([said]) as server:
        done = agentloop("-p", "go", "--schema", spec, "--base-url", server.url, "-m", "m", cwd=tmp_path)
    assert json.loads(done.out) == printed


async def test_an_answer_that_is_to_be_text_is_any_text() -> None:
    model = ScriptedModel(["Rome."])
    agent = Agent(model, output=str)
    result = await Runner(agent, transcripts=None).run("Which city?")
    assert result.output == "Rome."
    assert [each["function"]["name"] for each in model.requests[0].tools] == ["compact"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("none.json", "none.json"),
        ("bad.json", "no JSON"),
        ("io:StringIO", "no type"),
        ("list.json", "object"),
        (
            "City",
            "check the path, or name a type as MODULE:NAME",
        ),
        ("typo.json", "'strin' is no type of a JSON schema, there are object, array, string"),
        ("builtins:copyright", "builtins:copyright is no type of an answer: output="),
    ],
)
def test_a_schema_that_is_none_is_one_line(tmp_path: Path, spec: str, says: str) -> None:
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "typo.json").write_text('{"type": "object", "properties": {"name": {"type": "strin"}}}')
    done = agentloop("-p", "go", "--schema", spec, "-m", "offline", cwd=tmp_path)
    assert done.status == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


async def test_a_worker_answers_in_json() -> None:
    told: list[AnyStreamEvent] = []
    agent = Agent(ScriptedModel([city(people="many"), city()]), output=City)
    config = config_of(Runner(agent, transcripts=None))
    place = WorkPlace(config=config, limits=Limits(steps=9), sink=told.append)
    order = Order(session_id="s", prompt=Message.user("Which city?"), submitted=0.0)
    text = order.to_text()
    await Workflow(place_of=lambda _: place, record=lambda _, work: work()).run("r", text)  # type: ignore[arg-type, return-value]
    assert isinstance(told[-1], RunEnded)
    assert json.loads(told[-1].output) == {"name": "Rome", "people": 3}


class _Piecewise:
    """A model that gives these parts, and last an answer of this text."""

    name, window, max_output_tokens = "piecewise", 8_000, None

    def __init__(self, text: str, *parts: TextPart | Retry) -> None:
        self.text, self.parts = text, parts

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        for part in self.parts:
            yield part
        yield Answer(message=Message.assistant(self.text))


async def test_what_an_answer_gives_so_far_begins_anew_with_another_try() -> None:
    text = json.dumps({"name": "Rome", "people": 3})
    parts = (TextPart(text=text[:9]), Retry(attempt=1, wait_seconds=0.0, error="gone"), TextPart(text=text))
    runner = Runner(Agent(_Piecewise(text, *parts), output=Native(City)), transcripts=None)
    events = await watched(runner, "go")
    assert [event.output for event in events if isinstance(event, OutputDelta)] == [json.loads(text)]


async def test_no_partial_answer_holds_a_number_that_json_lacks() -> None:
    text = json.dumps({"people": "inf", "name": "Rome"})
    output = create_model("Place", people=(float, ...), name=(str, ...))
    model = _Piecewise(text, TextPart(text=text))
    runner = Runner(Agent(model, output=Native(output), max_steps=1), transcripts=None)
    events = await watched(runner, "go")
    assert not any(isinstance(event, OutputDelta) for event in events)


async def test_half_a_character_in_an_answer_ends_no_run() -> None:
    answers = ['\ud800 {"text": "Rome"}', '{"text": "Rome"}']
    result = await Runner(Agent(ScriptedModel(answers), output=dict[str, str])).run("go")
    assert result.output == {"text": "Rome"}


async def test_a_validator_that_raises_at_half_a_text_ends_no_run() -> None:
    class Known(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def known(cls, name: str) -> str:
            return {"Rome": "Roma"}[name]

    text = '{"name": "Rome"}'
    parts = (TextPart(text=text[:11]), TextPart(text=text[11:]))
    runner = Runner(Agent(_Piecewise(text, *parts), output=Native(Known)), transcripts=None)
    assert (await runner.run("go")).output == Known.model_construct(name="Roma")
