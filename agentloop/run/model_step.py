"""One step of the loop: ask the model, and put its answer into the log."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any

from agentloop._plumbing.to_text import error_text
from agentloop.bounds import MOST_CALLS, MOST_CALLS_RUN
from agentloop.context import overflow_error, says_nothing
from agentloop.errors import BadAnswerError, ContextTooLongError, OutputError, SpoiltAnswerError
from agentloop.events import ModelCalled
from agentloop.messages import Message, ToolCall
from agentloop.model_call import OnPart
from agentloop.models import CUT_SHORT, Answer, ModelRequest, Retry, TextPart
from agentloop.prompts import (
    ANSWER_CUT_OFF,
    ANSWER_GIVEN_TWICE,
    ANSWER_IN_TEXT_REFUSED,
    ANSWER_REFUSED,
    ANSWER_TAKEN,
    FINAL_ANSWER,
    NOT_RUN,
    TOO_MANY_CALLS,
    fault_of_answer,
    is_told_of_text_calls,
)
from agentloop.run.state import Run
from agentloop.sessions import Session
from agentloop.stream import OutputDelta, TextDelta
from agentloop.text_calls import TextCalls, faults_in, faulty_as_text, with_calls
from agentloop.tools import ArgumentsError

if TYPE_CHECKING:
    from agentloop.tools import OutputType

SMALLER_TRIES = 2
"""So often a request that the server found too long is made smaller and sent again."""

VAIN_TRIES = 3
"""So many answers in a row that come to nothing end the run: with neither text nor call, or cut-off calls."""

OUTPUT_TRIES = 3
"""So often a run is given an answer that is not of the type asked for, until it fails."""

_VAIN = {
    "length": "were cut off by the output limit: raise max_output_tokens",
    "content_filter": "were withheld by a content filter: say it differently",
}


async def ask_model(run: Run, session: Session) -> Session:
    """The session with the model's answer to it.

    Raises:
        ModelError: the model gave none; `BadAnswerError` also where `VAIN_TRIES` in a row came to nothing.
        ContextOverflowError: the server refused the request as too long, and smaller ones too.
    """
    for attempt in range(1, SMALLER_TRIES + 1):
        try:
            return await _asked(run, session)
        except ContextTooLongError as error:
            session = await _shrunk(run, session, error)
            await run.emitter.emit_retry(Retry(attempt=attempt, wait_seconds=0.0, error=str(error)))
    try:
        return await _asked(run, session)
    except ContextTooLongError as error:
        raise overflow_error(error, run.keeper.budget, session.context) from error


def came_to_nothing(message: Message, finish: str | None) -> bool:
    """Whether an answer has neither text nor a call, or calls that were cut short."""
    return says_nothing(message) or bool(message.tool_calls and finish in CUT_SHORT)


async def _shrunk(run: Run, session: Session, error: ContextTooLongError) -> Session:
    """The session with another request than the one refused: what is shown in none makes none shorter."""
    refused = request_for(run, session)
    while request_for(run, session) == refused:
        session = await run.keeper.shrink(session, error)
    return session


def request_for(run: Run, session: Session) -> ModelRequest:
    """The request that the context stands for."""
    budget = run.keeper.budget
    request = run.prefix.request(session.context, recalls=budget.recall > 0)
    return replace(request, max_output_tokens=budget.longest_answer(session.context))


async def _asked(run: Run, session: Session) -> Session:
    """The session with one answer.

    Raises:
        ModelError: there is none, or it comes to nothing as those before it.
    """

    request, counted = request_for(run, session), run.keeper.budget.counted(session.context)
    output = run.agent.output_type
    names = [each["function"]["name"] for each in request.tools]
    offers = any(name in run.registry or (output and output.gives_answer(name)) for name in names)
    texts = TextCalls(request.tools if offers else ())
    request = replace(request, messages=await run.media.fill(request.messages))
    answer, called = await _answered(run, request, counted, texts)
    pieces = texts.read(answer.message)
    if any(faults_in(pieces)) and _is_told(run, session):
        pieces = faulty_as_text(pieces)
    answer = replace(answer, message=with_calls(answer.message, pieces))
    if rest := texts.rest(answer.message):
        await run.emitter.emit(TextDelta(text=rest))
    return await _take(run, session, answer, called, faults_in(pieces))


def _is_told(run: Run, session: Session) -> bool:
    """Whether the model was told in this run of calls in a text that cannot run."""
    results = (entry for entry in session.context.visible if entry.run_id == run.id)
    return any(is_told_of_text_calls(entry.message.text) for entry in results if entry.message.role == "tool")


async def _answered(
    run: Run, request: ModelRequest, counted: int, texts: TextCalls
) -> tuple[Answer, ModelCalled | None]:
    """The answer, shown as it comes; a spoilt one came to nothing, and is asked for again as it is.

    `texts` says what of its text is shown.

    Raises:
        ModelError: there is none; `SpoiltAnswerError` where it is the last of `VAIN_TRIES` in a row.
    """

    begun = _Begun(run.agent.output_type)

    async def show(part: TextPart | Retry) -> None:
        if isinstance(part, Retry):
            texts.clear()
            begun.clear()
            await run.emitter.emit_retry(part)
        elif text := texts.add(part.text):
            await run.emitter.emit(TextDelta(text=text))
            if (value := begun.add(text)) is not None:
                await run.emitter.emit(OutputDelta(output=value))

    while True:
        texts.clear()
        begun.clear()
        try:
            return await _called(run, request, counted, show)
        except SpoiltAnswerError as error:
            run.in_vain += 1
            if run.in_vain >= VAIN_TRIES:
                raise
            await run.emitter.emit_retry(Retry(attempt=run.in_vain, wait_seconds=0.0, error=str(error)))


async def _called(
    run: Run, request: ModelRequest, counted: int, on_part: OnPart
) -> tuple[Answer, ModelCalled | None]:
    """One call of the model with the callbacks around it; no record where one of them answered instead."""
    callbacks, called = run.emitter.callback_list, None
    if not run.emitter.callbacks:
        return await run.emitter.ask(run.agent.model, request, counted=counted, on_part=on_part)
    asked = await callbacks.before_model(request)
    if isinstance(asked, Answer):
        answer = replace(asked, message=run.emitter.hide(asked.message))
    else:
        answer, called = await run.emitter.ask(run.agent.model, asked, counted=counted, on_part=on_part)
    return await callbacks.after_model(answer), called


class _Begun:
    """What an answer that comes as a text gives so far; `output` is what it is to be, None for any text.

    It is read again once it has grown by an eighth, so that all reading together is linear in the text.
    """

    def __init__(self, output: "OutputType | None") -> None:
        self._output = output
        self.clear()

    def clear(self) -> None:
        """Forget the text so far, since the answer is begun anew."""
        self._text, self._next, self._value = "", 1, None

    def add(self, text: str) -> Any:
        """What it gives with this piece too, as JSON gives it; None where that is nothing new."""
        self._text += text if self._output else ""
        if self._output is None or len(self._text) < self._next:
            return None
        self._next = len(self._text) + 1 + len(self._text) // 8
        value = self._output.begun(self._text)
        if value is None or value == self._value:
            return None
        self._value = value
        return value


async def _take(
    run: Run, session: Session, answer: Answer, called: ModelCalled | None, faults: Sequence[str | None]
) -> Session:
    """Store the answer; calls in one that was cut short are answered as not run, with it.

    So are calls in its text that cannot run, by their `faults`, and calls beyond `MOST_CALLS_RUN`. Those that
    give an answer of a type are answered too, as taken or not.

    Raises:
        OutputError: it is the last of `OUTPUT_TRIES` in the run that are not of the type; it is stored too.
        BadAnswerError: it asks for more than `MOST_CALLS`, or is the last of `VAIN_TRIES` in a row that came
            to nothing, which is stored too.
    """
    if len(answer.message.tool_calls) > MOST_CALLS:
        raise BadAnswerError(f"the answer asks for more than {MOST_CALLS:,} calls")
    if called is not None:
        run.spend(answer, called.counted)
    await run.learn_window()
    message, judged = _judged(run.agent.output_type, run.emitter.hide(answer.message), answer.finish)
    message = run.call_ids(session).of_message(message)
    said = [run.record_of(message, finish=answer.finish)]
    in_vain = came_to_nothing(message, answer.finish)
    if message.tool_calls and answer.finish in CUT_SHORT:
        faults = [NOT_RUN[answer.finish]] * len(message.tool_calls)
    elif (count := len(message.tool_calls)) > MOST_CALLS_RUN:
        beyond = TOO_MANY_CALLS.format(said=count, most=MOST_CALLS_RUN)
        faults = [*(faults or [None] * count)[:MOST_CALLS_RUN], *[beyond] * (count - MOST_CALLS_RUN)]
    told = [fault or verdict for fault, verdict in zip_longest(faults, judged)]
    for call, text in zip(message.tool_calls, told, strict=False):
        if text:
            said.append(run.record_of(Message.tool(call.id, text)))
    session = await run.record(session, *filter(None, (called,)), *said, usage=answer.usage, cost=answer.cost)
    run.in_vain = run.in_vain + 1 if in_vain else 0
    if run.in_vain >= VAIN_TRIES:
        why = _VAIN.get(answer.finish or "", "were empty: ask differently, or another model")
        raise BadAnswerError(f"{VAIN_TRIES} answers in a row {why}")
    fault = next(filter(None, map(fault_of_answer, filter(None, told))), None)
    if fault and _answers_refused(run, session) >= OUTPUT_TRIES:
        raise OutputError(
            f"{OUTPUT_TRIES} answers were none of the type asked for: {fault}", text=_given(message)
        )
    return session


def _judged(
    output: "OutputType | None", message: Message, finish: str | None
) -> tuple[Message, list[str | None]]:
    """The answer, and for each of its calls what it is told at once: whether it gave an answer of the type.

    A text that gives none becomes one that calls `final_answer` in vain, so that it can be told so as any
    call is. It is asked for JSON, which every model can give.
    """
    if output is None:
        return message, []
    if message.tool_calls:
        return message, [*_verdicts(output, message.tool_calls)]
    if says_nothing(message) or not (fault := _fault(output, message.text, None)):
        return message, []
    fault = ANSWER_CUT_OFF if finish in CUT_SHORT else fault
    told = ANSWER_IN_TEXT_REFUSED.format(schema=output.words, fault=fault)
    return message.with_calls((ToolCall(id="", name=FINAL_ANSWER, arguments="{}"),)), [told]


def _verdicts(output: "OutputType", calls: Sequence[ToolCall]) -> Iterator[str | None]:
    """What each of these calls is told; None for one that gives no answer."""
    is_taken = False
    for call in calls:
        if not output.gives_answer(call.name):
            yield None
        elif is_taken:
            yield ANSWER_GIVEN_TWICE
        elif fault := _fault(output, call.arguments, call.name):
            yield ANSWER_REFUSED.format(fault=fault)
        else:
            is_taken = True
            yield ANSWER_TAKEN


def _fault(output: "OutputType", text: str, tool: str | None) -> str | None:
    """What is wrong with a text, or with the arguments of that tool, as an answer; None for nothing."""
    try:
        output.read(text, tool)
    except ArgumentsError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 — a validator of the type's author may raise anything
        return error_text(error)
    return None


def _answers_refused(run: Run, session: Session) -> int:
    """How many answers of this run were none of the type asked for."""
    said = takewhile(lambda entry: entry.run_id == run.id, reversed(session.context.said))
    return sum(
        entry.message.role == "tool" and fault_of_answer(entry.message.text) is not None for entry in said
    )


def _given(message: Message) -> str:
    return message.text or next((call.arguments for call in reversed(message.tool_calls)), "")
