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
    """Writes a run to standard output as `text`, `json` or `stream-json`.

    Of a text that is the answer alone, at the end: what a retry makes void is never shown. JSON tells the end
    also where no run began: as one object, or as the last line, `run_ended`, of one for each event.
    """

    def __init__(self, shape: str, output: StandardOutput) -> None:
        self._shape = shape
        self._output = output
        self._ended = False

    async def event(self, event: StreamEvent) -> None:
        """Something happened."""
        if self._shape == "stream-json":
            self._ended = self._ended or isinstance(event, RunEnded)
            await self._output.write(json_line(to_json(event)))

    async def end(self, outcome: Outcome) -> None:
        """Nothing more will happen: the end, unless it is told, and whatever is not handed over yet."""
        last, self._ended = self._last(outcome), True
        await self._output.write(last)

    def last_words(self, outcome: Outcome) -> None:
        """The process leaves now, whatever is stuck: say how it ended, where nobody is to be waited for.

        A text has no word for it.
        """
        if self._shape != "text":
            self._output.write_at_once(self._last(outcome))

    def _last(self, outcome: Outcome) -> str:
        if self._ended:
            return ""
        if self._shape == "text":
            return outcome.output.removesuffix("\n") + "\n" if outcome.output else ""
        if self._shape == "json":
            return json_line(asdict(outcome))
        ended = RunEnded(
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
        return json_line(to_json(ended))


def json_line(value: Mapping[str, Any]) -> str:
    """One line of strict JSON in strict UTF-8."""
    try:
        text = _STRICT.encode(value)
    except ValueError:
        # NaN and the infinities, which a model's server may have sent, are no JSON.
        text = _STRICT.encode(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None))
    return strict(text) + "\n"
