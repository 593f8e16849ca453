"""One step of the loop: ask the model, and put its answer into the log."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest

from agentloop.bounds import MOST_CALLS, MOST_CALLS_RUN
from agentloop.context import overflow_error, says_nothing
from agentloop.errors import BadAnswerError, ContextTooLongError, OutputError, SpoiltAnswerError
from agentloop.events import ModelCalled
from agentloop.messages import Message
from agentloop.models import (
    CUT_SHORT,
    Answer,
    ModelRequest,
    OnPart,
    PassingPart,
    Retry,
    TextCalls,
    TextPart,
    faults_in,
    faulty_as_text,
    with_calls,
)
from agentloop.prompts import FINAL_ANSWER, NOT_RUN, TOO_MANY_CALLS, fault_of_answer, is_told_of_text_calls
from agentloop.run.state import Run
from agentloop.sessions import Session
from agentloop.stream import OutputDelta, TextDelta

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
            return await _ask_once(run, session)
        except ContextTooLongError as error:
            session = await _shrink(run, session, error)
            await run.emitter.emit_retry(Retry(attempt=attempt, wait_seconds=0.0, error=str(error)))
    try:
        return await _ask_once(run, session)
    except ContextTooLongError as error:
        raise overflow_error(error, run.keeper.budget, session.context) from error


def came_to_nothing(message: Message, finish: str | None) -> bool:
    """Whether an answer has neither text nor a call, or calls that were cut short."""
    return says_nothing(message) or bool(message.tool_calls and finish in CUT_SHORT)


async def _shrink(run: Run, session: Session, error: ContextTooLongError) -> Session:
    """The session with another request than the one refused: what is shown in none makes none shorter."""
    refused = request_for(run, session)
    while request_for(run, session) == refused:
        session = await run.keeper.shrink(session, error)
    return session


def request_for(run: Run, session: Session) -> ModelRequest:
    """The request that the context stands for."""
    budget = run.keeper.budget
    request = run.config.prefix.request(session.context, recalls=budget.recall > 0)
    return replace(request, max_output_tokens=budget.longest_answer(session.context))


async def _ask_once(run: Run, session: Session) -> Session:
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
    answer, called = await _receive_answer(run, request, counted, texts)
    pieces = texts.read(answer.message)
    if any(faults_in(pieces)) and _is_told(run, session):
        pieces = faulty_as_text(pieces)
    answer = replace(answer, message=with_calls(answer.message, pieces))
    if rest := texts.rest(answer.message):
        await run.emitter.emit(TextDelta(text=rest))
    return await _store_answer(run, session, answer, called, faults_in(pieces))


def _is_told(run: Run, session: Session) -> bool:
    """Whether the model was told in this run of calls in a text that cannot run."""
    results = (entry for entry in session.context.visible if entry.run_id == run.id)
    return any(is_told_of_text_calls(entry.message.text) for entry in results if entry.message.role == "tool")


async def _receive_answer(
    run: Run, request: ModelRequest, counted: int, texts: TextCalls
) -> tuple[Answer, ModelCalled | None]:
    """The answer, shown as it comes; a spoilt one came to nothing, and is asked for again as it is.

    `texts` says what of its text is shown.

    Raises:
        ModelError: there is none; `SpoiltAnswerError` where it is the last of `VAIN_TRIES` in a row.
    """
    output = run.agent.output_type
    growing = output.growing() if output else None

    async def show(part: PassingPart) -> None:
        if isinstance(part, Retry):
            begin()
            await run.emitter.emit_retry(part)
            return
        if isinstance(part, TextPart) and (text := texts.add(part.text)):
            await run.emitter.emit(TextDelta(text=text))
        if growing and (value := growing.add(part)) is not None:
            await run.emitter.emit(OutputDelta(output=value))

    def begin() -> None:
        texts.clear()
        if growing:
            growing.clear()

    while True:
        begin()
        try:
            return await _call_with_callbacks(run, request, counted, show)
        except SpoiltAnswerError as error:
            run.in_vain += 1
            if run.in_vain >= VAIN_TRIES:
                raise
            await run.emitter.emit_retry(Retry(attempt=run.in_vain, wait_seconds=0.0, error=str(error)))


async def _call_with_callbacks(
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


async def _store_answer(
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
    message, told = _judge(run, answer, faults)
    message = run.call_ids(session).of_message(message)
    said = [run.record_of(message, finish=answer.finish)]
    for call, text in zip(message.tool_calls, told, strict=False):
        if text:
            said.append(run.record_of(Message.tool(call.id, text)))
    session = await run.record(session, *filter(None, (called,)), *said, usage=answer.usage, cost=answer.cost)
    run.in_vain = run.in_vain + 1 if came_to_nothing(message, answer.finish) else 0
    if run.in_vain >= VAIN_TRIES:
        why = _VAIN.get(answer.finish or "", "were empty: ask differently, or another model")
        raise BadAnswerError(f"{VAIN_TRIES} answers in a row {why}")
    fault = next(filter(None, map(fault_of_answer, filter(None, told))), None)
    if fault and _answers_refused(run, session) >= OUTPUT_TRIES:
        raise OutputError(
            f"none of {OUTPUT_TRIES} answers was of the type asked for; the last: {fault}",
            text=_given_text(message),
        )
    return session


def _judge(run: Run, answer: Answer, faults: Sequence[str | None]) -> tuple[Message, Sequence[str | None]]:
    """The message to store, and what each of its calls is told at once, None for one that is to run."""
    message = run.emitter.hide(answer.message)
    judged: Sequence[str | None] = ()
    if run.agent.output_type and not says_nothing(message):
        message, judged = run.agent.output_type.judge(message, is_cut=answer.finish in CUT_SHORT)
    if message.tool_calls and answer.finish in CUT_SHORT:
        faults = [NOT_RUN[answer.finish]] * len(message.tool_calls)
    elif (count := len(message.tool_calls)) > MOST_CALLS_RUN:
        beyond = TOO_MANY_CALLS.format(said=count, most=MOST_CALLS_RUN)
        faults = [*(faults or [None] * count)[:MOST_CALLS_RUN], *[beyond] * (count - MOST_CALLS_RUN)]
    return message, [fault or verdict for fault, verdict in zip_longest(faults, judged)]


def _answers_refused(run: Run, session: Session) -> int:
    """How many answers of this run were none of the type asked for."""
    entries = takewhile(lambda entry: entry.run_id == run.id, reversed(session.context.said))
    said = [entry.message for entry in entries]
    calls = (call for message in said for call in message.tool_calls)
    gave = {call.id for call in calls if call.name.startswith(FINAL_ANSWER)}
    results = (message for message in said if message.role == "tool" and message.tool_call_id in gave)
    return sum(fault_of_answer(message.text) is not None for message in results)


def _given_text(message: Message) -> str:
    return message.text or next((call.arguments for call in reversed(message.tool_calls)), "")
