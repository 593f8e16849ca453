"""One step of the loop: ask the model, and put its answer into the log."""

from collections.abc import Sequence
from dataclasses import replace

from agentloop.bounds import MOST_CALLS, MOST_CALLS_RUN
from agentloop.context import overflow_error, says_nothing
from agentloop.errors import BadAnswerError, ContextTooLongError, SpoiltAnswerError
from agentloop.events import ModelCalled
from agentloop.messages import Message
from agentloop.model_call import call_model
from agentloop.models import CUT_SHORT, Answer, ModelRequest, Retry, TextPart
from agentloop.prompts import NOT_RUN, TOO_MANY_CALLS, is_told_of_text_calls
from agentloop.run.state import Run
from agentloop.sessions import Session
from agentloop.stream import TextDelta
from agentloop.text_calls import TextCalls, as_text, faults_in, with_calls

SMALLER_TRIES = 2
"""So often a request that the server found too long is made smaller and sent again."""

VAIN_TRIES = 3
"""So many answers in a row that come to nothing end the run: with neither text nor call, or cut-off calls."""

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
            session = await run.keeper.shrink(session, error)
            await run.emitter.emit_retry(Retry(attempt=attempt, wait_seconds=0.0, error=str(error)))
    try:
        return await _asked(run, session)
    except ContextTooLongError as error:
        raise overflow_error(error, run.keeper.budget, session.context) from error


def came_to_nothing(message: Message, finish: str | None) -> bool:
    """Whether an answer has neither text nor a call, or calls that were cut short."""
    return says_nothing(message) or bool(message.tool_calls and finish in CUT_SHORT)


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
    offers = any(each["function"]["name"] in run.registry for each in request.tools)
    texts = TextCalls(request.tools if offers else ())
    answer, called = await _answered(run, request, counted, texts)
    pieces = texts.read(answer.message)
    if any(faults_in(pieces)) and _is_told(run, session):
        pieces = as_text(pieces)
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
) -> tuple[Answer, ModelCalled]:
    """The answer, shown as it comes; a spoilt one came to nothing, and is asked for again as it is.

    `texts` says what of its text is shown.

    Raises:
        ModelError: there is none; `SpoiltAnswerError` where it is the last of `VAIN_TRIES` in a row.
    """

    async def show(part: TextPart | Retry) -> None:
        if isinstance(part, Retry):
            texts.clear()
            await run.emitter.emit_retry(part)
        elif text := texts.add(part.text):
            await run.emitter.emit(TextDelta(text=text))

    while True:
        texts.clear()
        try:
            return await call_model(run.agent.model, request, counted=counted, on_part=show)
        except SpoiltAnswerError as error:
            run.in_vain += 1
            if run.in_vain >= VAIN_TRIES:
                raise
            await run.emitter.emit_retry(Retry(attempt=run.in_vain, wait_seconds=0.0, error=str(error)))


async def _take(
    run: Run, session: Session, answer: Answer, called: ModelCalled, faults: Sequence[str | None]
) -> Session:
    """Store the answer; calls in one that was cut short are answered as not run, with it.

    So are calls in its text that cannot run, by their `faults`, and calls beyond `MOST_CALLS_RUN`.

    Raises:
        BadAnswerError: it asks for more than `MOST_CALLS`, or is the last of `VAIN_TRIES` in a row that came
            to nothing, which is stored too.
    """
    if len(answer.message.tool_calls) > MOST_CALLS:
        raise BadAnswerError(f"the answer asks for more than {MOST_CALLS:,} calls")
    run.spend(answer, called.counted)
    await run.learn_window()
    message = run.call_ids(session).of_message(run.emitter.hide(answer.message))
    said = [run.record_of(message, finish=answer.finish)]
    in_vain = came_to_nothing(message, answer.finish)
    if message.tool_calls and answer.finish in CUT_SHORT:
        faults = [NOT_RUN[answer.finish]] * len(message.tool_calls)
    elif (count := len(message.tool_calls)) > MOST_CALLS_RUN:
        beyond = TOO_MANY_CALLS.format(said=count, most=MOST_CALLS_RUN)
        faults = [*(faults or [None] * count)[:MOST_CALLS_RUN], *[beyond] * (count - MOST_CALLS_RUN)]
    for call, fault in zip(message.tool_calls, faults, strict=False):
        if fault:
            said.append(run.record_of(Message.tool(call.id, fault)))
    session = await run.record(session, called, *said, usage=answer.usage, cost=answer.cost)
    run.in_vain = run.in_vain + 1 if in_vain else 0
    if run.in_vain >= VAIN_TRIES:
        why = _VAIN.get(answer.finish or "", "were empty: ask differently, or another model")
        raise BadAnswerError(f"{VAIN_TRIES} answers in a row {why}")
    return session
