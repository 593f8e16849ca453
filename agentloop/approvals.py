"""Calls that need a person's yes: how they are answered, and what waits in a log for an answer.

A tool with `needs_approval` is not run before somebody said so, for that one call with those arguments. The
`approver` of the runner is asked at once; where there is none, or it says nothing, the run ends with the
status `needs_approval`, and `resume` goes on with the answers. What was asked and answered are records.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, TypeAlias

from agentloop._plumbing.checks import shown, text
from agentloop._plumbing.strict_json import strict_value
from agentloop.errors import UsageError
from agentloop.events import ApprovalAnswered, ApprovalAsked, ApprovalVerdict, Record
from agentloop.messages import Json, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that waits for a yes: `arguments` is the object that the model gave, `tool` the tool's name.

    `call_id` is what the answer is given under. A call of a sub-agent has its branch before it
    (`scout.1f0a9c3e/call_2`); `session_id` is the log that the call stands in. `server` is the MCP server
    that the tool is of, empty for a tool of the agent's own. No two calls have one `fingerprint`: an answer
    that bears it counts for this call alone.
    """

    call_id: str
    tool: str
    arguments: Json
    session_id: str
    server: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What all answers have: `by` says who gave it, `fingerprint` to which call; empty for any that waits."""

    by: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type is str:
                text(f"{type(self).__name__}.{each.name}", getattr(self, each.name))


@dataclass(frozen=True, slots=True)
class Approve(_Reply):
    """Run the call, with other arguments where some are given; `by` says who said so.

    With the `fingerprint` of a `Pending` it counts for that call alone, and without for the one that waits.

    Example:
        >>> Approve({"path": "notes.md"}, by="ann").arguments
        {'path': 'notes.md'}

    Raises:
        UsageError: the arguments are no JSON object, or `by` is no text.
    """

    arguments: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _Reply.__post_init__(self)
        if self.arguments is not None:
            _json_text(self.arguments)


@dataclass(frozen=True, slots=True)
class Reject(_Reply):
    """Do not run the call: the model is told the reason. `by` and `fingerprint` are as in `Approve`.

    Raises:
        UsageError: the reason or `by` is no text.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Respond(_Reply):
    """Do not run the call: this text is its result. `by` and `fingerprint` are as in `Approve`.

    Raises:
        UsageError: the text or `by` is no text.
    """

    text: str


ApprovalReply: TypeAlias = Approve | Reject | Respond
"""How a call that waits is answered."""

_VERDICTS: Mapping[type[ApprovalReply], ApprovalVerdict] = {
    Approve: "approved",
    Reject: "rejected",
    Respond: "responded",
}
"""The replies, and the word of each in the log; as plain data they go by the names of their classes."""

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
        """What these records say of it; of answers to what was asked of a call, the first counts."""
        asked: dict[str, ApprovalAsked] = {}
        answered: dict[str, ApprovalAnswered] = {}
        for record in records:
            match record.event:
                case ApprovalAsked(call_id=call_id) as event:
                    asked.setdefault(call_id, event)
                case ApprovalAnswered(call_id=call_id) as event if _is_to(event, asked.get(call_id)):
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
    kinds = {kind.__name__: kind for kind in _VERDICTS}
    given = {call_id: dict(each) for call_id, each in data.items()}
    return {call_id: kinds[each.pop("kind")](**each) for call_id, each in given.items()}


def fingerprint_of(asked: ApprovalAsked) -> str:
    """What tells this call from all others: a hash of the asking itself, the tool and the arguments."""
    told = json.dumps([asked.id, asked.server, asked.tool, asked.arguments])
    return sha256(told.encode()).hexdigest()[:16]


def answer_record(run_id: str, asked: ApprovalAsked, reply: ApprovalReply) -> ApprovalAnswered:
    """What the log keeps of a reply to the call that was asked about."""
    answered = ApprovalAnswered(
        run_id=run_id,
        call_id=asked.call_id,
        verdict=_VERDICTS[type(reply)],
        by=reply.by,
        tool=asked.tool,
        fingerprint=fingerprint_of(asked),
    )
    match reply:
        case Approve(arguments=given):
            return replace(answered, arguments=asked.arguments if given is None else _json_text(given))
        case Reject(reason=said) | Respond(text=said):
            return replace(answered, text=said)


def _is_to(answered: ApprovalAnswered, asked: ApprovalAsked | None) -> bool:
    """Whether that is what was asked; an older version did not say."""
    return not answered.fingerprint or (asked is not None and answered.fingerprint == fingerprint_of(asked))


def _json_text(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        raise UsageError(f"Approve.arguments must be a JSON object, not {shown(arguments)}")
    try:
        return json.dumps(strict_value(json.dumps(dict(arguments))))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"Approve.arguments must be a JSON object: {error}") from error
