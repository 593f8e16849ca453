"""What a summariser's model is sent, piece by piece, and what is made of its answers."""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.compaction.reading import MAX_CHUNKS
from agentloop.compaction.replacement import Replacement
from agentloop.compaction.summary import Summariser, TakeNote, room_left, summary_budget
from agentloop.context import Budget, Context, Entry, count_message, count_request, prose_of
from agentloop.errors import BadAnswerError, ContextTooLongError, SummaryRefusedError
from agentloop.events import ModelCalled
from agentloop.messages import Message, ToolCall
from agentloop.models import Answer, ModelRequest, Retry, TextPart, call_model
from agentloop.prompts import SUMMARY_RECORD, SUMMARY_SYSTEM, summary_message
from agentloop.providers.offline import OfflineModel
from agentloop.strategies import DropAgentItems, DropOldest, LastLines, MarkOldResults, Summary
from agentloop.testing import Reply, ScriptedModel, calls
from tests.kit import (
    COUNTER,
    FACT,
    assert_valid,
    context_of,
    conversation_in,
    every_fact,
    later,
    orderly,
    texts,
)

CHANGED = re.compile("[<\ud800]")
"""What reads otherwise in a request: a delimiter made harmless, and what UTF-8 cannot say."""

RECORD = "The user asked for a thing, and it was done."


async def unheard(part: TextPart | Retry) -> None:
    """Nobody listens."""


def beside(most: int) -> dict[str, Any]:
    """Options for a record of at most so many tokens, which names paths and how long it may be."""

    def record(max_tokens: int, prose: str) -> str:
        paths = [f"src/part_{at}.py" for at in range(max_tokens // 4)]
        while COUNTER(" ".join(paths)) > max_tokens:
            paths.pop()
        return " ".join(paths)

    return {"beside": record, "beside_tokens": most}


Writer: TypeAlias = Callable[..., Summariser]


def unnoted(called: ModelCalled) -> None:
    """Nobody notes it."""


def summariser(model: Any, *, window: int = 3_000, spec: Summary | None = None, **options: Any) -> Writer:
    agent = Budget(window=window, fixed=100, model="agent", counter=COUNTER)
    budget = summary_budget(model, agent, longest=options.pop("longest", 400))
    given = {
        "limit_seconds": 20,
        "beside": lambda max_tokens, prose: "",
        "beside_tokens": 0,
        "whole_tokens": budget.reserve + options.get("beside_tokens", 0),
        "prefix": None,
        **options,
    }
    return partial(
        Summariser,
        model=model,
        budget=budget,
        ask=partial(call_model, on_part=unheard),
        spec=spec or Summary(),
        **given,
    )


async def written(
    writer: Writer, messages: Sequence[Message], *, focus: str | None = None, note: TakeNote = unnoted
) -> Replacement:
    """What is written of all these messages."""
    context = context_of(messages)
    return await written_of(writer, context.visible, context, focus=focus, note=note)


async def written_of(
    writer: Writer,
    covered: Sequence[Entry],
    context: Context,
    *,
    reads: Sequence[Entry] | None = None,
    focus: str | None = None,
    note: TakeNote = unnoted,
) -> Replacement:
    """What is written of these entries, made from `reads`, else from them."""
    reads = covered if reads is None else reads
    return await writer(covered=covered, reads=reads, context=context, focus=focus, note=note).write()


def prose(result: Replacement) -> str:
    """What is written above the record."""
    return result.text.partition(f"\n\n{SUMMARY_RECORD}\n")[0]


def questions(model: ScriptedModel) -> list[str]:
    return [str(request.messages[-1]["content"]) for request in model.requests]


def material(question: str) -> str:
    return conversation_in(question)


def long_talk(turns: int, words: int = 250) -> list[Message]:
    """Turns of a user's text with a fact at each end, and an answer of a few words."""
    said = []
    for at in range(turns):
        said.append(Message.user(f"FACT-{at:06x} " + "word " * words + f"FACT-{at + 4096:06x}"))
        said.append(Message.assistant(f"Answer {at}: so it is."))
    return said


def earlier(text: str, seq: int = 1) -> Entry:
    message = Message.user(summary_message(text, "transcript_1.jsonl"))
    tokens = count_message(message, COUNTER)
    return Entry(seq=seq, message=message, tokens=tokens, original=message, kind="summary", at=1)


async def test_what_fits_is_read_by_one_request_with_the_instruction_last() -> None:
    model = ScriptedModel([], window=3_000, summary=RECORD)
    result = await written(summariser(model), long_talk(3), focus="the words")
    (question,) = questions(model)
    assert material(question).startswith("User: FACT-000000")
    rest = question.rpartition("\n</conversation ")[2]
    order = [rest.index(each) for each in ("Write the record", "Asked", "Errors seen", "the words")]
    assert order == sorted(order)
    assert rest.endswith("Give special care to: the words")
    assert model.requests[0].messages[0]["content"] == SUMMARY_SYSTEM
    assert model.requests[0].tools == ()
    assert (result.text, prose(result), result.unread) == (RECORD, RECORD, ())


@pytest.mark.parametrize("turns", [9, 14, 20])
async def test_n_pieces_take_n_requests_and_one_more(turns: int) -> None:
    model = ScriptedModel([], window=3_000, summary=RECORD)
    noted: list[ModelCalled] = []
    result = await written(summariser(model), long_talk(turns), note=noted.append)
    *maps, last = questions(model)
    assert 2 <= len(maps) <= MAX_CHUNKS
    assert len(noted) == len(model.requests)
    assert material(last) == "\n\n".join([f"Earlier record: {RECORD}"] * len(maps))
    assert f"was read in {len(maps)} parts" in last
    for at, question in enumerate(maps):
        assert f"part {at + 1} of {len(maps)}" in question
        assert "Earlier record:" not in material(question)
    assert result.unread == ()


@pytest.mark.many(30)
@given(orderly(most_turns=9), st.lists(texts, max_size=4), st.integers(1_800, 4_000))
def test_l4_all_that_was_said_is_whole_in_an_accepted_request(
    messages: list[Message], more: list[str], window: int
) -> None:
    said = [*messages, *(Message.user(text) for text in more), Message.user("bye " * 600)]
    model = ScriptedModel([], window=window, summary=every_fact)
    result = asyncio.run(written(summariser(model, window=window), said))
    read = [material(question) for question in questions(model)]
    for seq, message in enumerate(said, 1):
        if (
            message.role in ("user", "assistant")
            and seq not in result.unread
            and not CHANGED.search(message.text)
        ):
            assert any(message.text in piece for piece in read)
    assert len(read) <= MAX_CHUNKS + 1
    assert_valid(model.requests)
    assert all(count_request(r, COUNTER) + (r.max_output_tokens or 0) <= window for r in model.requests)
    unread = {fact for seq in result.unread for fact in FACT.findall(said[seq - 1].text)}
    assert set(FACT.findall(prose(result))) | unread == {
        fact for message in said for fact in FACT.findall(message.text)
    }


async def test_own_texts_replace_ours_and_the_rest_stays() -> None:
    spec = Summary(system="You are terse {x}.", instruction="List it in {max_words} words, as {json}.")
    model = ScriptedModel([], summary=RECORD)
    await written(summariser(model, spec=spec, longest=100), long_talk(2), focus="names")
    assert model.requests[0].messages[0]["content"] == "You are terse {x}."
    (question,) = questions(model)
    assert question.endswith(" is.\n\nList it in 60 words, as {json}.\n\nGive special care to: names")


async def test_long_texts_of_ones_own_leave_less_room_for_the_conversation() -> None:
    spec = Summary(system="Be careful. " * 150, instruction="Write it all down. " * 150)
    model = ScriptedModel([], window=3_000, summary=RECORD)
    await written(summariser(model, spec=spec), long_talk(8))
    assert len(model.requests) > 2
    assert all(count_request(r, COUNTER) + (r.max_output_tokens or 0) <= 3_000 for r in model.requests)


@pytest.mark.parametrize("most", [20, 100, 300])
async def test_a_summary_keeps_to_its_longest_length_with_its_index(most: int) -> None:
    paths = " ".join(f"src/module_{at}.py" for at in range(200))
    model = ScriptedModel([], summary="It was done. " * 300)
    spec = Summary(max_tokens=most)
    writer = summariser(model, window=8_000, spec=spec, **beside(most // 3), longest=most - most // 3)
    result = await written(writer, [Message.user(f"Read {paths} " + "now " * 3_000), *long_talk(2)])
    assert COUNTER(result.text) <= most
    assert prose(result).startswith("It "), "what does not fit is cut in its middle"


async def test_pieces_keep_to_their_own_bound() -> None:
    model = ScriptedModel([], summary=RECORD)
    await written(summariser(model, window=20_000, spec=Summary(chunk_tokens=700)), long_talk(8))
    *maps, _ = questions(model)
    assert len(maps) == 4
    assert all(COUNTER(material(question)) <= 700 for question in maps)


@pytest.mark.parametrize(("chars", "whole"), [(100, False), (3_000, True)])
async def test_each_message_is_capped_whoever_said_it(chars: int, whole: bool) -> None:
    middles = ["MIDDLE-user", "MIDDLE-assistant", "MIDDLE-tool"]
    user, assistant, tool = ("word " * 120 + middle + " word" * 120 for middle in middles)
    said = [Message.user(user), Message.assistant(assistant, calls(("read", {}))), Message.assistant("yes")]
    said.insert(2, Message.tool(said[1].tool_calls[0].id, tool))
    model = ScriptedModel([], summary=RECORD)
    spec = Summary(message_chars=chars)
    result = await written(summariser(model, window=8_000, spec=spec), said)
    (question,) = questions(model)
    assert [middle in question for middle in middles] == [whole] * 3
    blocks = [block for block in material(question).split("\n\n") if len(block) > 40]
    assert whole or all(len(block) <= chars + 100 for block in blocks)
    assert result.unread == ()


@pytest.mark.parametrize("role", ["tool", "assistant"])
async def test_a_capped_message_says_of_its_whole_length_what_is_left_out(role: str) -> None:
    text = "word " * 4_000
    (call,) = calls(("write", {"text": text if role == "assistant" else ""}))
    result = Message.tool(call.id, text if role == "tool" else "done")
    said = [Message.user("go"), Message.assistant("", [call]), result, Message.assistant("yes")]
    model = ScriptedModel([], summary=RECORD)
    await written(summariser(model, window=8_000, spec=Summary(message_chars=1_000)), said)
    ((left_out, total),) = re.findall(r"\[([\d,]+) of ([\d,]+) characters left out", questions(model)[0])
    assert int(left_out.replace(",", "")) > 19_000
    assert int(total.replace(",", "")) >= 20_000


def refusing(above: int, *, window: int | None, reply: Reply = every_fact) -> Callable[[ModelRequest], Reply]:
    """Refuses requests above so many tokens, as a server whose window is other than was thought."""

    def answer(request: ModelRequest) -> Reply:
        tokens = count_request(request, COUNTER) + (request.max_output_tokens or 0)
        if tokens > above:
            return ContextTooLongError("too long", window=window, tokens=None)
        return reply(request) if callable(reply) else reply  # type: ignore[return-value]

    return answer


@pytest.mark.parametrize("named", [2_000, None])
async def test_l9_an_overflow_of_a_piece_teaches_the_window(named: int | None) -> None:
    model = ScriptedModel([], summary=refusing(2_000, window=named))
    result = await written(summariser(model, window=8_000), long_talk(12, words=100))
    sizes = [count_request(r, COUNTER) + (r.max_output_tokens or 0) for r in model.requests]
    refused = [size for size in sizes if size > 2_000]
    assert len(refused) == 1
    assert max(sizes[len(refused) :]) <= 2_000
    read = {fact for message in long_talk(12, words=100) for fact in FACT.findall(message.text)}
    assert set(FACT.findall(prose(result))) == read


async def test_an_overflow_of_the_last_request_reads_no_piece_again() -> None:
    def answer(request: ModelRequest) -> Reply:
        content = str(request.messages[-1]["content"])
        if "was read in" in content and count_request(request, COUNTER) > 900:
            return ContextTooLongError("too long")
        return f"Part {len(model.requests)}: " + "as was said " * 100

    model = ScriptedModel([], summary=answer)
    result = await written(summariser(model), long_talk(20))
    maps = [question for question in questions(model) if "part 1 of" in question]
    reduces = [question for question in questions(model) if "was read in" in question]
    assert len(maps) == 1
    assert len(reduces) > 1
    assert COUNTER(reduces[-1]) < COUNTER(reduces[0])
    assert prose(result).startswith("Part ")


async def test_a_window_that_is_never_enough_is_given_up() -> None:
    model = ScriptedModel([], summary=ContextTooLongError("too long", window=10))
    with pytest.raises(SummaryRefusedError, match="too long for its window"):
        await written(summariser(model), long_talk(20))
    assert len(model.requests) <= 4


async def test_a_piece_whose_answer_is_refused_is_asked_for_once_more() -> None:
    replies = iter(["", RECORD])
    model = ScriptedModel([], summary=lambda request: next(replies, RECORD))
    await written(summariser(model), long_talk(9))
    first, again, *others = questions(model)
    assert again.startswith(first)
    assert again.endswith("could not be used: it was blank. Write the record again, shorter and complete.")
    assert not any("could not be used" in other for other in others)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "blank"),
        ("<think>What was it that they asked for", "blank"),
        ("502 Bad Gateway", "error text"),
        (calls(("read", {})), "tool call"),
        (Answer(message=Message.assistant("And then they"), finish="length"), "cut off"),
    ],
)
@pytest.mark.parametrize("turns", [3, 9])
async def test_l6_two_bad_texts_in_a_row_are_refused(bad: Reply, why: str, turns: int) -> None:
    model = ScriptedModel([], summary=bad)
    with pytest.raises(SummaryRefusedError, match=why):
        await written(summariser(model), long_talk(turns))
    assert len(model.requests) == 2


async def test_a_text_as_large_as_what_it_stands_for_is_refused() -> None:
    said = [Message.user("a few words"), Message.assistant("and a few more")]
    model = ScriptedModel([], summary="more words than were ever said " * 20)
    with pytest.raises(SummaryRefusedError, match="what it stands for takes"):
        await written(summariser(model), said)


async def test_the_time_limit_holds_for_all_requests_of_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(request: ModelRequest) -> str:
        later(monkeypatch, 40)
        if len(model.requests) == 2:
            await asyncio.Event().wait()
        return RECORD

    model = ScriptedModel([], summary=slow)
    with pytest.raises(BadAnswerError, match=r"longer than 60 s"):
        await written(summariser(model, limit_seconds=60), long_talk(9))
    assert len(model.requests) == 2


@pytest.mark.parametrize("thought", ["", "<think>Well.</think>\n", " <THINKING>a</thinking><think>b</think>"])
async def test_what_is_thought_goes_and_what_is_said_of_thoughts_stays(thought: str) -> None:
    record = "Asked: strip <think>…</think> from answers.\nOpen: an unclosed <think> tag. FACT-000000"
    model = ScriptedModel([], window=3_000, summary=thought + record)
    assert prose(await written(summariser(model), long_talk(3))) == record


@pytest.mark.parametrize("words", [100, 700])
async def test_an_earlier_record_goes_first_and_is_never_nested_over_three_passes(words: int) -> None:
    text, facts = "FACT-aaaaaa was said before.", {"FACT-aaaaaa"}
    for number in range(3):
        said = [Message.user(f"FACT-{number:06x}{at} " + "word " * words) for at in range(4)]
        facts |= {fact for message in said for fact in FACT.findall(message.text)}
        entries = [earlier(text), *context_of([Message.user("task"), *said]).visible[1:]]
        model = ScriptedModel([], window=3_000, summary=every_fact)
        result = await written_of(summariser(model, **beside(100)), entries, context_of(said))
        text = result.text
        *_, last = questions(model)
        assert material(last).partition("\n\n")[2].startswith("Earlier record: ")
        assert material(last).count("FACT-aaaaaa") == 1
        assert "<summary>" not in last
        assert text.count("Facts so far") == 1
        assert text.count(SUMMARY_RECORD) <= 1
    assert set(FACT.findall(text)) >= facts


async def test_words_around_a_record_are_not_read() -> None:
    note = Message.user("What have we said so far?")
    around = Entry(seq=99, message=note, tokens=9, original=note, kind="note")
    said = context_of([Message.user("x"), *long_talk(2)])
    model = ScriptedModel([], summary=RECORD)
    result = await written_of(summariser(model), [around, *said.visible], said)
    assert "said so far" not in questions(model)[0]
    assert result.unread == ()


NAMED = [
    Message.user(f"Open src/part_{at}.py and https://example.com/{at}. " + "word " * 90) for at in range(20)
]


@pytest.mark.parametrize("most", [0, 60, 200])
async def test_the_record_stands_below_the_prose_and_the_model_is_told(most: int) -> None:
    model = ScriptedModel([], summary="Each src/part_19.py was opened. " * 60)
    result = await written(summariser(model, window=8_000, **beside(most)), NAMED)
    written_prose, line, record = result.text.partition(f"\n\n{SUMMARY_RECORD}\n")
    assert written_prose.startswith("Each src/part_19.py was opened.")
    assert bool(line) == bool(most)
    assert COUNTER(result.text) <= 400 + most
    told = material(questions(model)[0]).partition("Stands below: ")[2].partition("\n\n")[0]
    assert bool(told) == bool(most)
    assert record.startswith(told)


async def test_a_line_of_the_record_is_not_said_again_above_it() -> None:
    said = "Each src/part_19.py was opened."
    model = ScriptedModel([], summary=f"src/part_0.py src/part_1.py\n{said}\n{SUMMARY_RECORD}")
    result = await written(summariser(model, window=8_000, **beside(100)), NAMED)
    assert result.text.startswith(f"{said}\n\n{SUMMARY_RECORD}\nsrc/part_0.py src/part_1.py ")


async def test_l17_a_request_that_alone_is_larger_than_the_window_is_not_sent() -> None:
    model = ScriptedModel([], summary="It was said: src/part_1.py.")
    with pytest.raises(SummaryRefusedError, match="too long for its window"):
        await written(summariser(model, window=316), NAMED)
    assert model.requests == []


async def test_a_short_prose_leaves_the_record_more_room() -> None:
    model = ScriptedModel([], summary="Each src/part_19.py was opened.")
    result = await written(summariser(model, window=8_000, **beside(100)), NAMED)
    assert 400 < COUNTER(result.text) <= 500


@pytest.mark.parametrize("text", ["Désolé, je ne peux pas. " * 60, "Quota überschritten. " * 60])
async def test_a_text_in_doubt_leaves_most_to_the_record(text: str) -> None:
    model = ScriptedModel([], summary=text)
    result = await written(summariser(model, window=8_000, **beside(100)), NAMED)
    assert COUNTER(prose(result)) <= 100
    assert COUNTER(result.text) - COUNTER(prose(result)) > 300


async def test_a_prose_cannot_say_where_the_record_begins() -> None:
    model = ScriptedModel([], summary=f"All of src/part_19.py.\n{SUMMARY_RECORD}\nWhat users said:\n- Push.")
    result = await written(summariser(model, window=8_000), NAMED)
    assert prose_of(result.text)[1] == ""


async def test_the_record_gives_way_before_the_prose_is_refused() -> None:
    said = [Message.user("Open " + " ".join(f"src/part_{at}.py" for at in range(60)))]
    context = context_of(said)
    lengths = {}
    for words in range(20, 284, 32):
        model = ScriptedModel([], summary="It was said: src/part_1.py " + "word " * words)
        result = await written_of(summariser(model, **beside(1_000)), context.visible, context)
        assert room_left(result.text, context.visible, COUNTER) > 0
        lengths[words] = len(result.text) - len(prose(result))
    assert lengths[20] > lengths[84] > 0 == lengths[276]
    assert lengths[276] == 0


async def test_what_is_read_may_be_more_than_what_it_stands_for() -> None:
    context = context_of(long_talk(4))
    model = ScriptedModel([], summary=RECORD)
    covered, reads = context.visible[:4], context.visible[:6]
    result = await written_of(summariser(model), covered, context, reads=reads)
    assert "FACT-000002" in questions(model)[0]
    assert "FACT-000003" not in questions(model)[0]
    assert result.unread == ()
    less = await written_of(summariser(model), covered, context, reads=reads[2:])
    assert less.unread == (1, 2)


async def test_nothing_to_read_is_no_summary() -> None:
    model = ScriptedModel([])
    with pytest.raises(SummaryRefusedError, match="nothing to be read"):
        await written_of(summariser(model), (), context_of(long_talk(2)))
    assert model.requests == []


async def test_what_trims_drop_is_unread_and_an_overflow_makes_them_drop_more() -> None:
    model = ScriptedModel([], summary=refusing(2_000, window=2_000))
    spec = Summary(trims=(DropOldest(),))
    result = await written(summariser(model, window=3_000, spec=spec), long_talk(20))
    first, second = questions(model)
    read = FACT.findall(second)
    assert len(FACT.findall(first)) > len(read) > 0
    assert "FACT-000013" in read
    assert "FACT-000000" not in first
    unread = {fact for seq in result.unread for fact in FACT.findall(long_talk(20)[seq - 1].text)}
    assert unread.isdisjoint(read)
    assert len(unread | set(read)) == 40


def tool_talk(count: int, lines: int) -> list[Message]:
    said = [Message.user("Run the tests.")]
    for at in range(count):
        result = "\n".join(f"line {number} of {at}" for number in range(lines))
        said += [Message.assistant("", [ToolCall(id=f"c{at}", name="run")]), Message.tool(f"c{at}", result)]
    return [*said, Message.assistant("All passed.")]


async def test_trims_are_applied_in_their_order_and_lift_the_cut_of_results() -> None:
    model = ScriptedModel([], summary=RECORD)
    spec = Summary(trims=(MarkOldResults(keep=2), LastLines(60)))
    result = await written(summariser(model, window=8_000, spec=spec), tool_talk(4, 200))
    (question,) = questions(model)
    assert question.count("[Old tool result content cleared]") == 2
    assert "line 139 of 3" not in question
    assert all(f"line {number} of 3" in question for number in range(140, 200))
    assert result.unread == (3, 5)


async def test_what_the_agent_did_goes_before_what_users_said() -> None:
    model = ScriptedModel([], window=1_500, summary=RECORD)
    spec = Summary(trims=(DropAgentItems(),))
    said = [*tool_talk(3, 150), Message.user("FACT-0000aa " + "word " * 50)]
    result = await written(summariser(model, window=1_500, spec=spec), said)
    (question,) = questions(model)
    assert "FACT-0000aa" in question
    assert "Run the tests." in question
    assert {1, 9}.isdisjoint(result.unread)
    assert set(result.unread) > {7, 8}


@pytest.mark.parametrize("words", [60, 500])
async def test_the_offline_model_records_in_one_request_and_in_several(words: int) -> None:
    said = [
        Message.user(f"My name is Ada. Never touch src/legacy.py. {'word ' * words}"),
        *long_talk(6, words),
    ]
    result = await written(summariser(OfflineModel(window=3_000)), said)
    assert "src/legacy.py" in prose(result)
    assert COUNTER(prose(result)) <= 400
