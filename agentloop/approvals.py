"""Calls that need a person's yes: how they are answered, and what waits in a log for an answer.

A tool with `needs_approval` is not run before somebody said so, for that one call with those arguments. The
`approver` of the runner is asked at once; where there is none, or it says nothing, the run ends with the
status `needs_approval`, and `resume` goes on with the answers. What was asked and answered are records.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from agentloop._plumbing.checks import shown, text
from agentloop._plumbing.strict_json import strict_value
from agentloop.errors import UsageError
from agentloop.events import ApprovalAnswered, ApprovalAsked, Record
from agentloop.messages import Json, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that waits for a yes: `arguments` is the object that the model gave, `tool` the tool's name.

    `call_id` is what the answer is given under. A call of a sub-agent has its branch before it
    (`scout.1f0a9c3e/call_2`); `session_id` is the log that the call stands in.
    """

    call_id: str
    tool: str
    arguments: Json
    session_id: str


@dataclass(frozen=True, slots=True)
class Approve:
    """Run the call, with other arguments where some are given; `by` says who said so.

    Example:
        >>> Approve({"path": "notes.md"}, by="ann").arguments
        {'path': 'notes.md'}

    Raises:
        UsageError: the arguments are no JSON object, or `by` is no text.
    """

    arguments: Mapping[str, Any] | None = None
    by: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        text("Approve.by", self.by)
        if self.arguments is not None:
            _json_text(self.arguments)


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not run the call: the model is told the reason.

    Raises:
        UsageError: the reason or `by` is no text.
    """

    reason: str
    by: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        text("Reject.reason", self.reason)
        text("Reject.by", self.by)


@dataclass(frozen=True, slots=True)
class Respond:
    """Do not run the call: this text is its result.

    Raises:
        UsageError: the text or `by` is no text.
    """

    text: str
    by: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        text("Respond.text", self.text)
        text("Respond.by", self.by)


ApprovalReply: TypeAlias = Approve | Reject | Respond
"""How a call that waits is answered."""

Answers: TypeAlias = Mapping[str, ApprovalReply]
"""Replies by the ids of the calls that they answer."""

Approver: TypeAlias = Callable[[Pending], ApprovalReply | Awaitable[ApprovalReply | None] | None]
"""Is asked at once for a call; None where nobody can say."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """What was asked and answered of calls, by their ids."""

    asked: Mapping[str, ApprovalAsked] = field(default_factory=dict)
    answered: Mapping[str, ApprovalAnswered] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Approvals":
        """What these records say of it; the first answer to a call counts."""
        asked: dict[str, ApprovalAsked] = {}
        answered: dict[str, ApprovalAnswered] = {}
        for record in records:
            match record.event:
                case ApprovalAsked(call_id=call_id) as event:
                    asked[call_id] = event
                case ApprovalAnswered(call_id=call_id) as event:
                    answered.setdefault(call_id, event)
        return cls(asked, answered)

    def waits(self, call: ToolCall) -> bool:
        """Whether the call was asked about and has no answer."""
        return call.id in self.asked and call.id not in self.answered


def checked_answers(answers: object) -> Answers:
    """The answers given, by the ids of calls.

    Raises:
        UsageError: they are no mapping of ids to replies.
    """
    if not isinstance(answers, Mapping):
        raise UsageError(f"answers must be replies by the ids of calls, not {shown(answers)}")
    for call_id, reply in answers.items():
        if not isinstance(call_id, str) or not isinstance(reply, ApprovalReply):
            raise UsageError(
                f"answers must be {{call_id: Approve() | Reject(reason) | Respond(text)}}, "
                f"not {shown(call_id)}: {shown(reply)}"
            )
    return dict(answers)


def answers_to_json(answers: Answers) -> dict[str, Any]:
    """The answers as plain data."""
    return {call_id: {"kind": type(reply).__name__, **asdict(reply)} for call_id, reply in answers.items()}


def answers_from_json(data: Mapping[str, Any]) -> Answers:
    """The answers that this data stands for."""
    kinds: Mapping[str, Callable[..., ApprovalReply]] = {
        "Approve": Approve,
        "Reject": Reject,
        "Respond": Respond,
    }
    given = {call_id: dict(each) for call_id, each in data.items()}
    return {call_id: kinds[each.pop("kind")](**each) for call_id, each in given.items()}


def answer_record(run_id: str, call: ToolCall, reply: ApprovalReply) -> ApprovalAnswered:
    """What the log keeps of a reply to this call."""
    answered = ApprovalAnswered(run_id=run_id, call_id=call.id, verdict="approved", by=reply.by)
    match reply:
        case Approve(arguments=given):
            return replace(answered, arguments=call.arguments if given is None else _json_text(given))
        case Reject(reason=why):
            return replace(answered, verdict="rejected", text=why)
        case Respond(text=result):
            return replace(answered, verdict="responded", text=result)


def _json_text(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        raise UsageError(f"Approve.arguments must be a JSON object, not {shown(arguments)}")
    try:
        return json.dumps(strict_value(json.dumps(dict(arguments))))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"Approve.arguments must be a JSON object: {error}") from error
