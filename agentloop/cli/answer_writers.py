"""How a call ended, written to standard output as text, JSON, or a line of JSON for each event."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentloop._plumbing.to_text import strict
from agentloop.approvals import Pending
from agentloop.cli.terminal import StandardOutput
from agentloop.messages import Usage
from agentloop.stream import CallbackFailed, LimitName, RunEnded, RunStatus, StreamEvent, to_json

_STRICT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended; `status` is a word of the exit table, `error` one line where it was no answer.

    `reason`, `limit` and `pending` are those of `RunResult`.
    """

    status: RunStatus
    output: str = ""
    session_id: str | None = None
    run_id: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    compactions: int = 0
    callback_failures: tuple[CallbackFailed, ...] = ()
    error: str | None = None
    reason: str | None = None
    limit: LimitName | None = None
    pending: Sequence[Pending] = ()


class AnswerWriter:
    """Writes a run to standard output: the answer alone, at the end.

    So text that a retry makes void is never shown.
    """

    def __init__(self, output: StandardOutput) -> None:
        self._output = output
        self._ended = False

    async def event(self, event: StreamEvent) -> None:
        """Something happened."""

    async def end(self, outcome: Outcome) -> None:
        """Nothing more will happen; called once, also where nothing happened at all."""
        if outcome.output:
            await self._output.write(outcome.output.removesuffix("\n") + "\n")

    def last_words(self, outcome: Outcome) -> None:
        """The process leaves now, whatever is stuck: say how it ended, where nobody is to be waited for.

        A text has no word for it.
        """


class JsonWriter(AnswerWriter):
    """One object at the end."""

    async def end(self, outcome: Outcome) -> None:
        """The end, unless it is told already, and whatever is not handed over yet."""
        line, self._ended = self._line(outcome), True
        await self._output.write(line)

    def last_words(self, outcome: Outcome) -> None:
        """The end, unless it is told already."""
        self._output.write_at_once(self._line(outcome))

    def _line(self, outcome: Outcome) -> str:
        return "" if self._ended else json_line(self._last(outcome))

    def _last(self, outcome: Outcome) -> Mapping[str, Any]:
        return asdict(outcome)


class StreamJsonWriter(JsonWriter):
    """Each event as one line; `run_ended` is always the last, also where no run began."""

    async def event(self, event: StreamEvent) -> None:
        """One line."""
        self._ended = self._ended or isinstance(event, RunEnded)
        await self._output.write(json_line(to_json(event)))

    def _last(self, outcome: Outcome) -> Mapping[str, Any]:
        return to_json(
            RunEnded(
                session_id=outcome.session_id or "",
                run_id=outcome.run_id or "",
                time=time.time(),
                status=outcome.status,
                output=outcome.output,
                usage=outcome.usage,
                cost=outcome.cost,
                error=outcome.error,
                reason=outcome.reason,
                limit=outcome.limit,
            )
        )


def writer_for(shape: str, output: StandardOutput) -> AnswerWriter:
    """The writer for `text`, `json` or `stream-json`."""
    if shape == "json":
        return JsonWriter(output)
    return StreamJsonWriter(output) if shape == "stream-json" else AnswerWriter(output)


def json_line(value: Mapping[str, Any]) -> str:
    """One line of strict JSON in strict UTF-8."""
    try:
        text = _STRICT.encode(value)
    except ValueError:
        # NaN and the infinities, which a model's server may have sent, are no JSON.
        text = _STRICT.encode(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None))
    return strict(text) + "\n"
