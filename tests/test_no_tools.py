"""Servers without tools and without formats of answers: what can be said in words is, the rest is refused."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentloop import Agent, Image, Message, Native, OutputError, Runner, SyncRunner, tool
from agentloop.durable.held_run import WorkPlace
from agentloop.durable.orders import Order
from agentloop.durable.workflow import Workflow
from agentloop.errors import ModelError, ModelRefusedError
from agentloop.providers.openai import OpenAIChat, OpenAIResponses
from agentloop.providers.openai.refusals import Refusal, refuses_format, refuses_tools
from agentloop.run import Limits
from agentloop.runner import config_of
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent, RunEnded
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import agentloop
from tests.media_kit import png
from tests.refusing_kit import Refusing, refusal
from tests.strict_bodies import Body
from tests.strict_dialects import NO_FORMATS, NO_TOOLS
from tests.strict_provider import StrictProvider
from tests.strict_replies import Brain, asks_for_summary
from tests.strict_responses import as_chat, is_for_responses
from tests.test_output import format_in
from tests.test_shared_prefix import is_shared, reader, runner_for, shared

ROME = '{"name": "Rome", "people": 3}'
ALL = [(kind, streams) for kind in (OpenAIChat, OpenAIResponses) for streams in (True, False)]


class City(BaseModel):
    name: str
    people: int


@tool
def look() -> str:
    """Look."""
    return "Seen."


def as_chat_body(body: Body) -> Body:
    """A body of either API as one of chat completions."""
    return as_chat(body) if is_for_responses(body) else body


def said(body: Body) -> list[Any]:
    """The messages of a body of either API."""
    return list(as_chat_body(body)["messages"])


@pytest.mark.parametrize("wording", NO_TOOLS)
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
def test_a_plain_agent_and_a_typed_one_work_on_a_server_without_tools(kind: Any, wording: str) -> None:
    with StrictProvider(["Hello.", "Again.", ROME], modes=["no-tools"], no_tools=wording) as server:
        model = kind("m", base_url=server.url)
        with SyncRunner(Agent(model, recall=True, instructions="Be brief.")) as runner:
            assert [runner.run("Hi", session_id="s").output for _ in range(2)] == ["Hello.", "Again."]
        assert len(server.bodies) == 3  # it is refused once, for all that follows
        with SyncRunner(Agent(model, output=City, instructions="Be brief.")) as typed:
            assert typed.run("Which city?").output == City(name="Rome", people=3)
        instructions = said(server.bodies[-1])[0]
    assert len(server.bodies) == 4
    assert instructions["role"] == "system"
    assert instructions["content"].startswith("Be brief.\n\n")
    assert '"people": {"type": "integer"}' in instructions["content"]


NO_TOOLS_ABROAD = [
    "Ce modèle ne prend pas en charge les outils.",
    "Le paramètre « tools » n'est pas accepté par ce modèle.",
    "L'appel de fonctions est indisponible.",
    "El modelo no admite herramientas.",
    "Las llamadas a funciones no están disponibles.",
    "Este modelo não suporta ferramentas.",
    "O modelo não aceita chamadas de função.",
    "Dieses Modell unterstützt keine Werkzeuge.",
    "Funktionsaufrufe werden nicht unterstützt.",
    "Tool-Aufrufe sind für dieses Modell abgeschaltet.",
    "Il modello non supporta gli strumenti.",
    "Ten model nie obsługuje narzędzi.",
    "Dit model ondersteunt geen tools.",
    "Modellen stöder inte verktyg.",
    "Bu model araçları desteklemiyor.",
    "Модель не поддерживает вызов функций.",
    "このモデルはツールをサポートしていません。",
    "이 모델은 도구를 지원하지 않습니다.",
    "此模型不支援工具。",
]


@pytest.mark.parametrize(
    ("words", "param"), [*((words, None) for words in NO_TOOLS_ABROAD), ("Requisição inválida.", "tools")]
)
@pytest.mark.parametrize(("kind", "status"), [(OpenAIChat, 422), (OpenAIResponses, 400)])
def test_tools_refused_in_any_language_are_left_out_where_a_request_can_do_without(
    words: str, param: str | None, kind: Any, status: int
) -> None:
    says = refusal(words, param, status=status)
    brain = answers_by_turns("refused", "Hello.", "Again.", ROME)
    with Refusing(lambda body: "tools" in body, says, brain) as server:
        model = kind("m", base_url=server.url)
        with SyncRunner(Agent(model)) as runner:
            assert [runner.run("Hi", session_id="s").output for _ in range(2)] == ["Hello.", "Again."]
        with SyncRunner(Agent(model, output=City)) as typed:
            assert typed.run("Which city?").output == City(name="Rome", people=3)
        assert ["tools" in body for body in server.bodies] == [True, False, False, False]


@pytest.mark.parametrize("status", [200, 400])
def test_whatever_the_status_the_error_says_what_helps_an_agent_with_tools(status: int) -> None:
    says = refusal("m does not support tools", status=status)
    with Refusing(lambda body: "tools" in body, says) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url), tools=[look])
        with SyncRunner(agent) as runner, pytest.raises(ModelError, match="--tools none"):
            runner.run("Hi")


@pytest.mark.parametrize(
    "words", ["Requête refusée : outils interdits.", "tools: Tool names must be unique."]
)
def test_what_may_be_of_tools_is_believed_only_where_it_helps(words: str) -> None:
    refused = [True, True, True]
    with Refusing(lambda body: bool(refused) and refused.pop(), refusal(words)) as server:
        model = OpenAIChat("m", base_url=server.url)
        with SyncRunner(Agent(model)) as runner, pytest.raises(ModelRefusedError):
            runner.run("Hi")
        with SyncRunner(Agent(model, tools=[look])) as runner, pytest.raises(ModelRefusedError) as raised:
            runner.run("Hi")
        assert not raised.value.takes_no_tools
        with SyncRunner(Agent(model)) as runner:
            assert runner.run("Hi").output == "ok"
    assert ["tools" in body for body in server.bodies] == [True, False, True, True]


@pytest.mark.parametrize(
    ("words", "param"),
    [
        ("Le format « response_format » est indisponible.", None),
        ("El modo JSON no es compatible con este modelo.", None),
        ("Este modelo não aceita um esquema JSON.", None),
        ("このモデルはJSONスキーマに対応していません。", None),
        ("Ungültige Anfrage.", "response_format"),
        ("Ungültige Anfrage.", "response_format.json_schema.schema"),
    ],
)
def test_a_format_refused_in_any_language_is_asked_for_in_words(words: str, param: str | None) -> None:
    says = refusal(words, param)
    with Refusing(lambda body: "response_format" in body, says, lambda _: ROME) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url), output=Native(City))
        with SyncRunner(agent) as runner:
            told = [runner.run("Which city?").output for _ in range(2)]
    assert told == [City(name="Rome", people=3)] * 2
    assert ["response_format" in body for body in server.bodies] == [True, False, False]
    assert all("tools" in body for body in server.bodies)


@pytest.mark.parametrize("wording", NO_FORMATS)
@pytest.mark.parametrize(("kind", "streams"), ALL)
def test_a_format_that_is_refused_is_asked_for_in_words(kind: Any, streams: bool, wording: str) -> None:
    with StrictProvider([ROME, ROME], modes=["no-formats"], no_formats=wording) as server:
        model = kind("m", base_url=server.url, stream=streams)
        with SyncRunner(Agent(model, output=Native(City))) as runner:
            for _ in range(2):
                assert runner.run("Which city?").output == City(name="Rome", people=3)
        refused, first, second = server.bodies
    assert "people" not in json.dumps(said(refused))
    assert ["people" in json.dumps(said(each)) for each in (first, second)] == [True, True]
    assert [each.get("tools") for each in server.bodies] == [refused["tools"]] * 3


@pytest.mark.parametrize(("kind", "streams"), ALL)
@pytest.mark.parametrize("output", [City, Native(City)])
def test_what_does_not_fit_goes_back_in_words(output: Any, kind: Any, streams: bool) -> None:
    replies = ["I think of Rome.", '{"name": "Rome", "people": "many"}', f"Here it is:\n```json\n{ROME}\n```"]
    modes = ["no-tools", "no-formats", "V8"]
    with StrictProvider(replies, modes=modes) as server:
        agent = Agent(kind("m", base_url=server.url, stream=streams), output=output)
        with SyncRunner(agent) as runner:
            assert runner.run("Which city?", session_id="s").output == City(name="Rome", people=3)
            assert runner.resume("s").output == City(name="Rome", people=3)
        last = said(server.bodies[-1])
    assert [each["role"] for each in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert last[2]["content"] == replies[0]
    assert "JSON alone" in last[3]["content"]
    assert last[4]["content"] == replies[1]
    assert "people" in last[5]["content"]


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
def test_a_format_stays_where_tools_alone_are_refused(kind: Any) -> None:
    with StrictProvider(["Rome.", ROME], modes=["no-tools", "V8"]) as server:
        with SyncRunner(Agent(kind("m", base_url=server.url), output=Native(City))) as runner:
            assert runner.run("Which city?").output == City(name="Rome", people=3)
        bodies = server.bodies
    assert ["tools" in body for body in bodies] == [True, False, False]
    assert [format_in(body) for body in bodies] == [format_in(bodies[0])] * 3
    assert [each["role"] for each in said(bodies[-1])] == ["user", "assistant", "user"]


async def test_after_three_tries_the_run_fails_and_goes_on_by_resume() -> None:
    with StrictProvider(["I", "am", "lost.", ROME], modes=["no-tools"]) as server:
        runner = Runner(Agent(OpenAIChat("m", base_url=server.url), output=City))
        with pytest.raises(OutputError) as failed:
            await runner.run("Which city?", session_id="s")
        assert failed.value.text == "lost."
        assert (await runner.resume("s")).output == City(name="Rome", people=3)


@pytest.mark.parametrize("wording", NO_TOOLS)
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_tools_of_the_agents_own_are_refused_once_and_the_error_says_what_helps(
    kind: Any, wording: str
) -> None:
    with StrictProvider(modes=["no-tools"], no_tools=wording) as server:
        runner = Runner(Agent(kind("m", base_url=server.url), tools=[look]))
        for asked in (1, 2):
            with pytest.raises(ModelRefusedError, match="take a model that calls tools") as refused:
                await runner.run("Look.")
            assert len(server.bodies) == asked
    assert len(str(refused.value).splitlines()) == 1


def test_the_command_line_prints_the_json_alone_without_tools(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(City.model_json_schema()))
    with StrictProvider(["It is Rome: " + ROME], modes=["no-tools"]) as server:
        options = ("--tools", "none", "--schema", "schema.json", "--base-url", server.url, "-m", "m")
        done = agentloop("-p", "go", *options, cwd=tmp_path)
    assert done.out, done.err
    assert json.loads(done.out) == json.loads(ROME)
    assert "tool" not in server.bodies[-1]["messages"][0]["content"]


OTHER_REFUSALS = [
    "'tool_choice' is not supported with this model.",
    "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
    "Parallel tool calls are not supported.",
    "Parallel function calling not supported",
    "Multiple tool calls not supported",
    "function_call is not supported",
    "This model doesn't support tool use in streaming mode.",
    "tools[0].function.strict is not supported",
    "The web_search tool is not supported with this model.",
    "This model does not support tool choice required.",
    "Invalid schema for function 'look': 'uniqueItems' is not permitted.",
    "Messages with role 'tool' must be a response to a preceding message.",
]


@pytest.mark.parametrize("words", OTHER_REFUSALS)
def test_what_is_said_of_something_else_is_no_refusal_of_tools(words: str) -> None:
    sent = {"tools": [{}], "messages": [], "tool_choice": "auto", "parallel_tool_calls": False}
    assert not refuses_tools(Refusal.of(400, {"error": {"message": words}}), sent)


def test_a_format_that_is_not_the_agents_is_none_of_an_answer() -> None:
    sent: Body = {"response_format": {"type": "json_object"}}
    refusal = Refusal.of(400, {"error": {"message": "response_format is not supported"}})
    assert not refuses_format(refusal, sent)


def answers_by_turns(*replies: str) -> Brain:
    """A brain that gives these replies in turn, and summaries."""
    said = itertools.cycle(replies)
    return lambda body: "They spoke of Rome. " * 20 if asks_for_summary(body) else next(said)


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("output", [City, Native(City)])
def test_compaction_between_the_tries_forgets_no_schema(output: Any, kind: Any, tmp_path: Path) -> None:
    brain = answers_by_turns("I look into it. " * 120, ROME)
    with StrictProvider(brain, window=6_000, modes=["no-tools", "no-formats", "V8"]) as server:
        agent = Agent(kind("m", base_url=server.url, window=6_000), output=output, max_steps=9)
        with SyncRunner(agent, transcripts=tmp_path) as runner:
            for number in range(12):
                told = runner.run(f"{number} " * 400, session_id="s")
                assert told.output == City(name="Rome", people=3)
            assert runner.run("And?", session_id="s", limits=Limits(steps=1)).status == "limit"
        agents = [body for body in server.bodies if not asks_for_summary(as_chat_body(body))]
        assert len(agents) < len(server.bodies)
        assert server.refusals == []
    taken = [body for body in agents if not body.get("tools") and format_in(body) is None]
    assert len(agents) - len(taken) <= 2
    assert all('"people"' in said(body)[0]["content"] for body in taken)


async def test_what_a_summary_is_refused_changes_nothing_for_the_agent(tmp_path: Path) -> None:
    no_tools = NO_TOOLS["ollama"]
    with Refusing(lambda body: is_shared(body) and "tools" in body, no_tools, reader(40)) as server:
        model = OpenAIChat("m", base_url=server.url, window=8_000)
        result = await runner_for(model, tmp_path, shared()).run("Read it all.")
        bodies = server.bodies
    assert [each.status for each in result.compactions] == ["done"] * len(result.compactions)
    asked = ["tools" in body for body in bodies if is_shared(body)]
    assert asked == [True] + [False] * len(result.compactions)
    assert len(asked) > 2
    assert all("tools" in body for body in bodies if not is_shared(body))


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_calls_of_another_server_go_in_words(kind: Any) -> None:
    @tool
    def shot() -> list[Any]:
        """Take a screenshot."""
        return ["The screen:", Image(data=png(16, 16), name="screen.png")]

    asks = calls(shot={}, look={})
    there = Agent(
        ScriptedModel([asks, calls(final_answer=json.loads(ROME))]), tools=[shot, look], output=City
    )
    store = InMemoryStore()
    await Runner(there, store=store, transcripts=None).run("Look.", session_id="s")
    with StrictProvider([ROME], modes=["no-tools", "V8"]) as server:
        here = Agent(kind("m", base_url=server.url), output=City)
        result = await Runner(here, store=store, transcripts=None).run("And now?", session_id="s")
        assert result.output == City(name="Rome", people=3)
        system, _, called, results, given, taken, acknowledged, asked = said(server.bodies[-1])
    assert "[called shot with {}]\n[called look with {}]" in called["content"]
    texts = [part["text"] for part in results["content"] if part["type"] in ("text", "input_text")]
    marks = [text[-10:-1] for text in texts if text.startswith("[result of a call, up to ")]
    assert texts == [
        *(f"[result of a call, up to {marks[0]}]", "The screen:", f"[{marks[0]}]"),
        *(f"[result of a call, up to {marks[1]}]", "Seen.", f"[{marks[1]}]"),
    ]
    assert len(results["content"]) == 7
    assert json.loads(given["content"]) == json.loads(ROME)
    assert taken["content"] == "[The answer was taken.]"
    assert [acknowledged["role"], asked["content"], system["role"]] == ["assistant", "And now?", "system"]


async def test_a_worker_gets_answers_in_words() -> None:
    told: list[AnyStreamEvent] = []
    with StrictProvider(["Rome", ROME], modes=["no-tools"]) as server:
        runner = Runner(Agent(OpenAIChat("m", base_url=server.url), output=City), transcripts=None)
        place = WorkPlace(config=config_of(runner), limits=Limits(steps=9), sink=told.append)
        order = Order(session_id="s", prompt=Message.user("Which city?"), submitted=0.0).to_text()
        await Workflow(place_of=lambda _: place, record=lambda _, work: work()).run("r", order)  # type: ignore[arg-type, return-value]
    assert isinstance(told[-1], RunEnded)
    assert json.loads(told[-1].output) == json.loads(ROME)


@pytest.mark.parametrize(
    "text",
    [
        ROME,
        f"Here you are: {ROME}",
        f"I weighed {{all}} of them [1].\n\n{ROME}\n",
        f"```json\n{ROME}\n```",
        f"The answer:\n```\n{ROME}\n```\nTell me if you need more.",
        f'First I thought of\n```json\n{{"name": "Oslo"}}\n```\nbut it is\n```json\n{ROME}\n```',
        '```json\n{"name": "Rome",\n "people": 3}\n```',
        '<tool_call>{"name": "final_answer", "arguments": ' + ROME + "}</tool_call>",
        '{"name": "final_answer", "arguments": ' + ROME + "}",
    ],
)
async def test_json_is_found_in_a_text_where_it_can_mean_one_thing_only(text: str) -> None:
    result = await Runner(Agent(ScriptedModel([text]), output=City), transcripts=None).run("Which city?")
    assert result.output == City(name="Rome", people=3)


@pytest.mark.parametrize(
    "text",
    [
        f"Such as {ROME}? I do not know.",
        "[1]",
        '{"name": "Rome", "people": 3',
        "{" * 100_000,
        "[" * 100_000 + "}",
        '{"a": ' * 3_000 + "}",
        "```\n" * 50_000 + "}",
        "I found nothing about it in {}",
    ],
)
async def test_a_text_that_may_mean_something_else_is_no_answer(text: str) -> None:
    model = ScriptedModel([text, ROME])
    runner = Runner(Agent(model, output=City, compaction=None), transcripts=None)
    assert (await runner.run("Which city?")).output == City(name="Rome", people=3)
    assert len(model.requests) == 2
