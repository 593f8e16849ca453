"""OpenTelemetry: spans and metrics of runs, by the names of the conventions' package."""

import asyncio
import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentloop import Agent, Callbacks, Compaction, Deny, Limits, OfflineModel, Runner, Secrets, Usage, tool
from agentloop.durable import RunQueue
from agentloop.errors import ModelUnavailableError, UsageError
from agentloop.integrations.otel import OpenTelemetry
from agentloop.messages import Message
from agentloop.models import Answer
from agentloop.testing import FailingModel, ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, at_work, over
from tests.kit import read, until

url, queue = durable_work_kit.url, durable_work_kit.queue

DURATION = "gen_ai.client.operation.duration"


class Watched:
    """What a runner with our callback tells."""

    def __init__(self, **options: Any) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        meters = MeterProvider(metric_readers=[self._reader])
        self.callback = OpenTelemetry(tracer_provider=provider, meter_provider=meters, **options)

    def runner(self, agent: Agent[Any], *more: Callbacks, **options: Any) -> Runner:
        return Runner(agent, transcripts=None, callbacks=[self.callback, *more], **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def tree(self) -> list[str]:
        """Each span as `parent > name`, in the order of their beginnings."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        spans = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [
            f"{names.get(span.parent.span_id, '?') if span.parent else ''} > {span.name}" for span in spans
        ]

    def points(self, metric: str) -> list[Mapping[str, Any]]:
        """The attributes of each series of a metric, with its count and sum."""
        data = self._reader.get_metrics_data()
        assert data
        every = [each for of in data.resource_metrics for scope in of.scope_metrics for each in scope.metrics]
        found = [each for each in every if each.name == metric]
        return [
            {**point.attributes, "count": point.count, "sum": point.sum}
            for each in found
            for point in each.data.data_points  # type: ignore[union-attr]
        ]


def values(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def said(text: str, *more: Any) -> Answer:
    usage = Usage(input_tokens=100, output_tokens=7, cached_tokens=40)
    return Answer(
        message=Message.assistant(text, *more), usage=usage, finish="tool_calls" if more else "stop"
    )


@tool
async def look(path: str) -> str:
    """Look at a file."""
    return f"{path} is fine"


def conventions() -> set[str]:
    """Every attribute and metric that the installed conventions name."""
    names = set[str]()
    for area in ("gen_ai", "error"):
        module = import_module(f"opentelemetry.semconv._incubating.attributes.{area}_attributes")
        names |= {value for value in vars(module).values() if isinstance(value, str)}
    metrics = import_module("opentelemetry.semconv._incubating.metrics.gen_ai_metrics")
    return names | {value for value in vars(metrics).values() if isinstance(value, str)}


async def test_spans_of_a_run_nest_and_their_names_are_the_conventions() -> None:
    watched = Watched(agent="helper", content=True)
    batch = calls(("look", {"path": "a"}), ("look", {"path": "b"}))
    model = ScriptedModel([said("", batch), said("Both are fine.")])
    runner = watched.runner(Agent(model, tools=[look], instructions="Be brief."))
    with watched.tracer.start_as_current_span("request"):
        await runner.run("Look at a and b.", session_id="s")
    below = "invoke_agent helper > "
    assert watched.tree() == [
        " > request",
        "request > invoke_agent helper",
        f"{below}chat scripted",
        f"{below}execute_tool look",
        f"{below}execute_tool look",
        f"{below}chat scripted",
    ]
    used = {name for span in watched.spans for name in values(span)}
    assert {name for name in used if not name.startswith("agentloop.")} <= conventions()
    first, second = watched.named("chat scripted")
    assert first.kind is trace.SpanKind.CLIENT
    told = values(first)
    assert {name: told[name] for name in told if ".usage." in name} == {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 40,
    }
    assert told["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert told["gen_ai.conversation.id"] == "s"
    assert json.loads(told["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    user, assistant, *results = json.loads(values(second)["gen_ai.input.messages"])
    assert user == {"role": "user", "parts": [{"type": "text", "content": "Look at a and b."}]}
    assert [part["name"] for part in assistant["parts"]] == ["look", "look"]
    assert [result["parts"][0]["response"] for result in results] == ["a is fine", "b is fine"]
    tools = {values(span)["gen_ai.tool.call.result"] for span in watched.named("execute_tool look")}
    assert tools == {"a is fine", "b is fine"}
    [run] = watched.named("invoke_agent helper")
    assert values(run)["gen_ai.usage.input_tokens"] == 200
    assert "Both are fine." in values(run)["gen_ai.output.messages"]


async def test_metrics_count_tokens_and_seconds() -> None:
    watched = Watched()
    model = ScriptedModel([said("", calls(look={"path": "a"})), said("Fine.")])
    await watched.runner(Agent(model, tools=[look])).run("Look at a.")
    of = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "scripted",
    }
    assert watched.points("gen_ai.client.token.usage") == [
        {**of, "gen_ai.token.type": "input", "count": 2, "sum": 200},
        {**of, "gen_ai.token.type": "output", "count": 2, "sum": 14},
    ]
    seconds = watched.points(DURATION)
    counted = {point["gen_ai.operation.name"]: point["count"] for point in seconds}
    assert counted == {"chat": 2, "execute_tool": 1, "invoke_agent": 1}
    named = {name for point in seconds for name in point} - {"count", "sum"}
    assert named | {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"} <= conventions()


@pytest.mark.parametrize(
    ("options", "told"), [({}, {"agentloop", "openai"}), ({"provider": "groq"}, {"groq"})]
)
async def test_the_provider_is_that_of_the_model(options: dict[str, Any], told: set[str]) -> None:
    watched = Watched(**options)
    await watched.runner(Agent(OfflineModel(), tools=[look])).run("Use look on 'a'.")
    points = watched.points(DURATION)
    assert {point["gen_ai.operation.name"] for point in points} == {"invoke_agent", "chat", "execute_tool"}
    names = {point["gen_ai.provider.name"] for point in points}
    names |= {str(values(span)["gen_ai.provider.name"]) for span in watched.named("chat offline")}
    assert names == told - {"openai"}
    await watched.runner(Agent(ScriptedModel(["Fine."]))).run("Hi.")
    assert {point["gen_ai.provider.name"] for point in watched.points(DURATION)} == told


async def test_nothing_that_was_said_is_told_unasked() -> None:
    secret = "swordfish"
    watched = Watched()

    @tool
    async def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    model = ScriptedModel([said(secret, calls(fail={"why": secret})), said(secret)])
    await watched.runner(Agent(model, tools=[fail], instructions=secret)).run(secret, session_id="s")
    refused = FailingModel(ModelUnavailableError(f"no {secret}"))
    with pytest.raises(ModelUnavailableError):
        await watched.runner(Agent(refused)).run(secret)
    assert len(watched.spans) == 6
    assert secret not in "".join(span.to_json() for span in watched.spans)


async def test_what_is_told_on_request_is_redacted() -> None:
    watched = Watched(content=True)
    key = "sk-proj-" + "a1B2" * 12
    model = ScriptedModel([said("", calls(look={"path": key})), said("Fine.")])
    await watched.runner(Agent(model, tools=[look]), redact=Secrets()).run(f"Look at {key}.")
    assert key not in "".join(span.to_json() for span in watched.spans)


async def test_a_tool_sees_its_span_and_a_sub_agent_stands_below_its_call() -> None:
    watched = Watched()
    current = list[Any]()

    @tool
    def inside() -> str:
        """Do something with spans of its own."""
        current.append(trace.get_current_span())
        return "done"

    scout = Agent(ScriptedModel([said("", calls(inside={})), said("found")], name="small"), tools=[inside])
    batch = calls(("scout", {"task": "Find it."}))
    lead = Agent(
        ScriptedModel([said("", batch), said("It is found.")]), tools=[scout.as_tool("scout", "Finds.")]
    )
    await watched.runner(lead).run("Find it.", session_id="s")
    assert watched.tree() == [
        " > invoke_agent",
        "invoke_agent > chat scripted",
        "invoke_agent > execute_tool scout",
        "execute_tool scout > invoke_agent scout",
        "invoke_agent scout > chat small",
        "invoke_agent scout > execute_tool inside",
        "invoke_agent scout > chat small",
        "invoke_agent > chat scripted",
    ]
    assert current[0].name == "execute_tool inside"
    assert len({span.context.trace_id for span in watched.spans if span.context}) == 1


async def test_failed_denied_and_cancelled_work_ends_its_spans_with_an_error() -> None:
    watched, begun = Watched(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Never end."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ModelUnavailableError):
        await watched.runner(Agent(FailingModel(ModelUnavailableError("away")))).run("Hi.")
    denying = Callbacks(before_tool=lambda call: Deny("no"))
    model = ScriptedModel([said("", calls(look={"path": "a"})), said("Well.")])
    await watched.runner(Agent(model, tools=[look]), denying).run("Hi.")
    hanging = Agent(ScriptedModel([said("", calls(hang={})), said("Well.")]), tools=[hang])
    task = asyncio.create_task(watched.runner(hanging).run("Hi."))
    await until(begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    faults = {span.name: values(span).get("error.type") for span in watched.spans}
    assert faults == {
        "chat failing": "ModelUnavailableError",
        "invoke_agent": "CancelledError",
        "execute_tool look": "error",
        "execute_tool hang": "CancelledError",
        "chat scripted": None,
    }
    every = [values(span).get("error.type") for span in watched.named("invoke_agent")]
    assert every == ["ModelUnavailableError", None, "CancelledError"]
    [denied] = watched.named("execute_tool look")
    assert denied.status.status_code is trace.StatusCode.ERROR
    points = watched.points(DURATION)
    assert "ModelUnavailableError" in {point.get("error.type") for point in points}


async def test_a_run_at_its_limit_has_not_failed() -> None:
    watched = Watched()
    model = ScriptedModel([said("", calls(look={"path": "a"}))])
    runner = watched.runner(Agent(model, tools=[look]))
    await runner.run("Look at a.", limits=Limits(steps=1))
    [run] = watched.named("invoke_agent")
    assert values(run)["agentloop.run.status"] == "limit"
    assert "error.type" not in values(run)


async def test_a_compaction_has_a_span_and_its_summary_stands_below() -> None:
    watched = Watched()
    batches = [said("", calls(read={"name": f"file_{at}"})) for at in range(12)]
    writer = ScriptedModel([said("Facts so far: none, all files were read well.")] * 9, name="writer")
    agent = Agent(
        ScriptedModel([*batches, said("all read")], window=4_000),
        tools=[read],
        compaction=Compaction(micro=None, model=writer),
    )
    result = await watched.runner(agent).run("Read twelve files.")
    spans = watched.named("agentloop.compaction")
    assert len(spans) == len(result.compactions) > 0
    told = values(spans[0])
    assert told["agentloop.compaction.status"] == "done"
    assert told["agentloop.compaction.tokens_after"] < told["agentloop.compaction.tokens_before"]
    assert "agentloop.compaction > chat writer" in watched.tree()
    assert "invoke_agent > agentloop.compaction" in watched.tree()


@pytest.mark.parametrize("is_carried", [True, pytest.param(False, marks=pytest.mark.deep)])
async def test_the_workers_of_a_durable_run_tell_one_trace(
    url: str, queue: RunQueue, is_carried: bool
) -> None:
    watched, gate = Watched(), Gate()
    batches = [said("", calls(wait={})), said("", calls(wait={})), said("done")]
    agent = Agent(ScriptedModel(batches), tools=[gate.wait])
    carrier = dict[str, str]()
    with watched.tracer.start_as_current_span("request") as request:
        propagate.inject(carrier)
    run_id = await queue.submit("Wait.", carrier=carrier if is_carried else None)
    async with at_work(agent, url, callbacks=[watched.callback]):
        await until(gate.entered)
    gate.leave.set()
    async with at_work(agent, url, callbacks=[watched.callback]):
        await over(queue, run_id)
    spans = [span for span in watched.spans if span.name != "request"]
    assert len([span for span in spans if span.name == "invoke_agent"]) == 2
    wanted = request.get_span_context().trace_id if is_carried else int(run_id, 16)
    assert {span.context.trace_id for span in spans if span.context} == {wanted}


@pytest.mark.parametrize("options", [{"content": 1}, {"agent": 5}, {"provider": 5}])
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        OpenTelemetry(**options)
