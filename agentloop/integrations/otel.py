"""OpenTelemetry: runs, calls of models and tools, and compactions as spans and metrics.

    runner = Runner(agent, callbacks=[OpenTelemetry()])

Names and values are those of the semantic conventions for generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/); what they have no name for begins with `agentloop.`.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentloop._plumbing.checks import flag, text_or_none
from agentloop.callbacks import Callbacks, Work, WorkOutcome
from agentloop.extras import missing_extra
from agentloop.messages import Message, ToolCall, Usage
from agentloop.models import Answer, ModelRequest
from agentloop.stores.base import branch_in
from agentloop.stream import CompactionResult, RunEnded

try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise missing_extra("OpenTelemetry needs", "otel") from error

__all__ = ["OpenTelemetry"]

_OPERATIONS = {"run": "invoke_agent", "model": "chat", "tool": "execute_tool"}
_KINDS = {"model": trace.SpanKind.CLIENT}
_OF_MODELS = ("run", "model")
"""Work that is named by the model that does it."""
_PROVIDER = context.create_key("provider")
_WENT_WELL = ("answered", "limit", "needs_approval", "ok", "done", "not_due", "skipped", "vetoed")
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [4**power for power in range(14)]
"""The buckets of both metrics, as the conventions advise them."""

_Attributes = dict[str, str | int | Sequence[str]]


class OpenTelemetry(Callbacks):
    """Makes spans and metrics of all that a runner does, or a worker of durable runs.

    The spans are `invoke_agent`, `chat`, `execute_tool` and `agentloop.compaction`, each below the one that
    it belongs to: those of a sub-agent below its call, and what tools do themselves below theirs. The metrics
    are `gen_ai.client.operation.duration` and `gen_ai.client.token.usage`. What was said stands in none of
    them but with `content=True`, redacted as it is in the log.

    The spans of a durable run are one trace, however many workers it has: the trace whose `carrier` it was
    submitted with, else one of its own, whose id is the run's and which is always sampled.

    `agent` is the agent's name, `provider` that of its models: by default `openai`, whose API they speak, and
    `agentloop` for the offline model. Without providers of spans and metrics it uses the global ones.

    Example:
        >>> from agentloop import Agent, OfflineModel, SyncRunner
        >>> with SyncRunner(Agent(OfflineModel()), callbacks=[OpenTelemetry(agent="helper")]) as runner:
        ...     runner.run("My door is green.").status
        'answered'

    Raises:
        UsageError: `content` is no bool, or a name no text.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        agent: str | None = None,
        provider: str | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        flag("content", content)
        text_or_none("agent", agent)
        text_or_none("provider", provider)
        self._content, self._agent, self._provider = content, agent, provider
        self._tracer = trace.get_tracer("agentloop", tracer_provider=tracer_provider)
        meter = metrics.get_meter("agentloop", meter_provider=meter_provider)
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def around(self, work: Work) -> Callable[[WorkOutcome], None]:
        """Begin the span of this work, in which the work is done; what it returns ends it."""
        name, attributes = self._begun(work)
        kind = _KINDS.get(work.kind, trace.SpanKind.INTERNAL)
        span = self._tracer.start_span(name, _parent_of(work), kind=kind, attributes=attributes)
        here = context.set_value(_PROVIDER, self._provider_of(work), trace.set_span_in_context(span))
        token, started = context.attach(here), time.monotonic()

        def end(outcome: WorkOutcome) -> None:
            context.detach(token)
            fault = _fault_of(outcome)
            if fault:
                span.set_attribute("error.type", fault)
                said = str(outcome.error or "") if self._content else ""
                span.set_status(trace.StatusCode.ERROR, said or None)
            self._tell(span, outcome.value)
            self._measure(work, outcome.value, time.monotonic() - started, fault)
            span.end()

        return end

    def _begun(self, work: Work) -> tuple[str, _Attributes]:
        """The name of the span, and what is known of the work before it is done."""
        known: _Attributes = {"gen_ai.conversation.id": work.session_id}
        if work.kind == "compaction":
            return "agentloop.compaction", {**known, "agentloop.compaction.strategy": work.name}
        operation = _OPERATIONS[work.kind]
        known["gen_ai.operation.name"] = operation
        if work.kind == "tool":
            known |= {"gen_ai.tool.name": work.name, "gen_ai.tool.type": "function"}
        else:
            known |= {"gen_ai.provider.name": self._provider_of(work), "gen_ai.request.model": work.name}
        match work.asked:
            case ModelRequest() as request:
                known |= self._of_request(request)
            case ToolCall() as call:
                known["gen_ai.tool.call.id"] = call.id
                known |= {"gen_ai.tool.call.arguments": call.arguments} if self._content else {}
        agent = _name_of_branch(work.session_id) or self._agent
        if work.kind == "run":
            known |= {"agentloop.run.id": work.run_id, **({"gen_ai.agent.name": agent} if agent else {})}
        of = agent if work.kind == "run" else work.name
        return f"{operation} {of}" if of else operation, known

    def _provider_of(self, work: Work) -> str:
        """Whose model this is, or that of the run in which the work is done."""
        if self._provider is not None:
            return self._provider
        if work.kind not in _OF_MODELS:
            return str(context.get_value(_PROVIDER) or "openai")
        return "agentloop" if work.name == "offline" else "openai"

    def _of_request(self, request: ModelRequest) -> _Attributes:
        kind = "json" if request.answer_schema else "text"
        known: _Attributes = {"gen_ai.output.type": kind, "agentloop.purpose": request.purpose}
        if request.max_output_tokens is not None:
            known["gen_ai.request.max_tokens"] = request.max_output_tokens
        if self._content:
            instructions = [each for each in request.messages if each["role"] in ("system", "developer")]
            said = [each for each in request.messages if each not in instructions]
            known["gen_ai.input.messages"] = _as_json(said)
            known["gen_ai.system_instructions"] = json.dumps(
                [part for each in instructions for part in _parts(each)]
            )
            known["gen_ai.tool.definitions"] = json.dumps(
                [{"type": "function", **tool["function"]} for tool in request.tools]
            )
        return known

    def _tell(self, span: trace.Span, value: object) -> None:
        """Say what is known of the work now that it is done."""
        match value:
            case Answer(message=message, usage=usage, finish=finish):
                if finish:
                    span.set_attribute("gen_ai.response.finish_reasons", [finish])
                if usage:
                    span.set_attributes(_of_usage(usage))
                    span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
                if self._content:
                    ended = {"finish_reason": finish or "stop"}
                    span.set_attribute("gen_ai.output.messages", _as_json([message.to_openai()], ended))
            case RunEnded(status=status, usage=usage, output=output):
                span.set_attribute("agentloop.run.status", status)
                span.set_attributes(_of_usage(usage))
                if self._content and output:
                    said = _as_json([Message.assistant(output).to_openai()], {"finish_reason": "stop"})
                    span.set_attribute("gen_ai.output.messages", said)
            case CompactionResult():
                for name in ("status", "reason", "tier", "tokens_before", "tokens_after", "compaction_id"):
                    span.set_attribute(f"agentloop.compaction.{name}", getattr(value, name))
            case _ if self._content and value is not None:
                span.set_attribute("gen_ai.tool.call.result", str(getattr(value, "text", "")))

    def _measure(self, work: Work, value: object, seconds: float, fault: str | None) -> None:
        if work.kind == "compaction":
            return
        name = "gen_ai.tool.name" if work.kind == "tool" else "gen_ai.request.model"
        operation, provider = _OPERATIONS[work.kind], self._provider_of(work)
        of = {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider, name: work.name}
        self._seconds.record(seconds, {**of, "error.type": fault} if fault else of)
        if isinstance(value, Answer) and value.usage:
            self._tokens.record(value.usage.input_tokens, {**of, "gen_ai.token.type": "input"})
            self._tokens.record(value.usage.output_tokens, {**of, "gen_ai.token.type": "output"})


def _parent_of(work: Work) -> context.Context | None:
    """What a worker's part of a durable run stands below; None for what is current."""
    if work.carrier is None:
        return None
    carried = propagate.extract(work.carrier, context.Context())
    if trace.get_current_span(carried).get_span_context().is_valid:
        return carried
    parent = trace.SpanContext(
        trace_id=int(work.run_id, 16),
        span_id=int(work.run_id[:16], 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), context.Context())


def _of_usage(usage: Usage) -> Mapping[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }


def _name_of_branch(session_id: str) -> str | None:
    """The sub-agent whose log this is, `scout` for `s~lead.1f0a.scout.9c3e`; None for no branch."""
    parts = (branch_in(session_id) or "").split(".")
    return ".".join(parts[-2:-1]) or None


def _fault_of(outcome: WorkOutcome) -> str | None:
    if outcome.error is not None:
        return type(outcome.error).__qualname__
    status = getattr(outcome.value, "status", "ok")
    return None if status in _WENT_WELL else str(status)


def _as_json(messages: Iterable[Mapping[str, Any]], more: Mapping[str, str] = {}) -> str:
    return json.dumps([{"role": each["role"], "parts": list(_parts(each)), **more} for each in messages])


def _parts(message: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    content = message.get("content")
    if message["role"] == "tool":
        yield {"type": "tool_call_response", "id": message["tool_call_id"], "response": content}
    elif isinstance(content, str) and content:
        yield {"type": "text", "content": content}
    elif content:
        yield from ({**part, "content": part.get("text")} if "text" in part else part for part in content)
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        yield {
            "type": "tool_call",
            "id": call["id"],
            "name": function.get("name"),
            "arguments": function.get("arguments"),
        }
