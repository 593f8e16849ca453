"""When an answer is over: what half answers, early words of the end and signs of life come to."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentloop import OpenAIChat, OpenAIResponses, RetryPolicy
from agentloop.errors import ModelUnavailableError
from agentloop.events import Compacted
from agentloop.stream import Retrying
from tests.counted_tool_kit import ran, watched_texts
from tests.kit import watched
from tests.server_kit import Waits
from tests.slow_server_kit import DROP, Told, always, chunk, piece, runner_at, runners, say, telling
from tests.strict_bodies import Body

GAP = 1.3
"""Longer than a word of the end is waited behind where it is believed."""

EARLY: dict[str, Told] = {
    "the reason in each chunk": [
        chunk(piece(id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE"}'), "tool_calls"),
        chunk({}, "tool_calls"),
    ],
    "an empty chunk with it first": [
        chunk({"role": "assistant"}, "stop"),
        GAP,
        chunk(piece(id="a")),
        chunk(piece('{"path": "FILE"}'), "stop"),
    ],
    "a reason behind what is thought": [
        chunk({"reasoning_content": "I look."}),
        chunk({}, "stop"),
        GAP,
        chunk(piece(id="a")),
        chunk(piece('{"path": "FILE"}')),
        chunk({}, "tool_calls"),
    ],
    "each call with it": [
        chunk(piece('{"path": "FILE"}', id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE, again"}', 1, id="b"), "tool_calls"),
    ],
    "each call with it, behind a text": [
        chunk({"content": "So: "}),
        chunk(piece('{"path": "FILE"}', id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE, again"}', 1, id="b"), "tool_calls"),
    ],
    "a call with no argument yet": [
        chunk({"content": "So: "}),
        chunk(piece(id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE"}'), "tool_calls"),
    ],
    "half of a call": [
        chunk({"content": "So: "}),
        chunk(piece('{"pa', id="a"), "tool_calls"),
        GAP,
        chunk(piece('th": "FILE"}'), "tool_calls"),
    ],
}


@pytest.mark.deep
async def test_no_early_word_of_the_end_cuts_a_call_off() -> None:
    def told_by(name: str) -> Callable[[int], Told]:
        told = [
            each if isinstance(each, float) else each.replace(b"FILE", name.encode()) for each in EARLY[name]
        ]
        return lambda number: told if number == 1 else say("done")

    async with runners(map(told_by, EARLY)) as at:
        results = await asyncio.gather(*(runner.run("go") for runner, _ in at))
    assert [(result.output, len(got)) for result, (_, got) in zip(results, at, strict=True)] == [
        ("done", 2)
    ] * len(EARLY)
    again = [f"{name}, again" for name in EARLY if name.startswith("each call with it")]
    assert ran == dict.fromkeys([*EARLY, *again], 1)


@pytest.mark.deep
async def test_no_early_word_of_the_end_cuts_a_text_off() -> None:
    pieces: Told = [chunk({"content": "Part one. "}, "stop"), GAP, chunk({"content": "Part two."}, "stop")]
    cases: list[Told] = [pieces, [chunk({"content": "\n"}), *pieces]]
    async with runners(map(always, cases)) as at:
        seen = await asyncio.gather(*(watched(runner, "go") for runner, _ in at))
    assert [watched_texts(each) for each in seen] == [["Part one. Part two."], ["\nPart one. Part two."]]
    assert [len(got) for _, got in at] == [1, 1]


DROPPED: dict[str, Told] = {
    "a text, with its first chunk": [chunk({"content": "Part"}, "stop")],
    "a text, with its last chunk": [chunk({"content": "Pa"}), chunk({"content": "rt"}, "stop")],
    "a call, with its own chunk": [chunk({"content": "Part"}), chunk(piece("{}", id="a"), "tool_calls")],
    "half of a call": [chunk(piece('{"path": "o', id="a")), chunk({}, "tool_calls")],
    "more behind it": [chunk({"content": "Pa"}), chunk({}, "stop"), chunk({"content": "rt"})],
    "the reason again": [chunk({"content": "Pa"}, "stop"), chunk({"content": "rt"}), chunk({}, "stop")],
}


@pytest.mark.parametrize("told", DROPPED.values(), ids=DROPPED.keys())
async def test_a_drop_behind_a_word_that_may_be_early_is_a_broken_stream(told: Told) -> None:
    async with telling(lambda number: [*told, DROP] if number == 1 else say("whole")) as (url, got):
        seen = await watched(runner_at(url), "go")
    assert not ran
    assert watched_texts(seen) == ["whole"]
    assert len([each for each in seen if isinstance(each, Retrying)]) == 1
    assert len(got) == 2


LEFT: dict[str, Told] = {
    "a call whose arguments may be still to come": [chunk(piece(id="a"), "tool_calls")],
    "the same behind a text": [chunk({"content": "So: "}), chunk(piece(id="a"), "tool_calls")],
    "a call behind the word": [chunk(piece("{}", id="a")), chunk({}, "stop"), chunk(piece("{}", 1, id="b"))],
    "a text behind the word alone": [chunk({}, "stop"), chunk({"content": "Part"})],
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT.keys())
async def test_what_may_go_on_is_a_broken_stream_where_the_server_leaves(left: Told) -> None:
    async with telling(lambda number: left if number == 1 else say("whole")) as (url, got):
        assert (await runner_at(url).run("go")).output == "whole"
    assert (dict(ran), len(got)) == ({}, 2)


async def test_a_text_behind_its_end_is_a_part_of_the_answer_where_the_server_leaves() -> None:
    told: Told = [*say("all")[:2], chunk({"content": "\n"}), chunk({"content": "told"})]
    async with telling(lambda _: told) as (url, got):
        seen = await watched(runner_at(url), "go")
    assert watched_texts(seen) == ["all\ntold"]
    assert len(got) == 1


BEGUN = [b"data: {"[:length] for length in range(8)]


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_a_stream_cut_in_its_first_bytes_is_a_broken_stream(kind: type[Any]) -> None:
    begun = [
        *BEGUN,
        b"\xef\xbb",
        b"\xef\xbb\xbfda",
        b"even",
        b"id",
        b": ping\n\nda",
        b"event: ping\ndata: {}\n\nd",
    ]
    options: Body = {"kind": kind, "retry": RetryPolicy(attempts=2, sleep=Waits())}
    async with runners((always([each]) for each in begun), **options) as at:
        ends = await asyncio.gather(*(runner.run("go") for runner, _ in at), return_exceptions=True)
    assert [type(end) for end in ends] == [ModelUnavailableError] * len(begun)
    assert [len(got) for _, got in at] == [2] * len(begun)


ENDED: dict[str, Told] = {
    "by its own chunk": [chunk({"content": "all"}), chunk({}, "stop")],
    "cut short in a call": [chunk({"content": "all"}), chunk(piece('{"path', id="a")), chunk({}, "length")],
}
PINGS: Told = [0.02, b": ping\n\n", 0.02, b"event: ping\ndata: {}\n\n", 0.02, chunk({"content": ""})] * 400


@pytest.mark.deep
@pytest.mark.parametrize("told", ENDED.values(), ids=ENDED.keys())
@pytest.mark.parametrize("behind", [[DROP], PINGS], ids=["drop", "pings"])
async def test_what_has_surely_ended_is_an_answer_whatever_comes_behind_it(told: Told, behind: Told) -> None:
    async with telling(lambda number: [*told, *behind] if number == 1 else say("done")) as (url, _):
        seen = await watched(runner_at(url), "go")
    assert watched_texts(seen)[0] == "all"
    assert not [each for each in seen if isinstance(each, Retrying)]


NO_ARGUMENTS: Body = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look"}}]}


@pytest.mark.deep
@pytest.mark.parametrize("call", [piece(id="a"), NO_ARGUMENTS], ids=["empty", "missing"])
@pytest.mark.parametrize("behind", [[], [DROP], PINGS], ids=["end", "drop", "pings"])
async def test_a_call_without_arguments_runs_once_a_chunk_of_its_own_says_the_end(
    call: Body, behind: Told
) -> None:
    told: Told = [chunk(call), chunk({}, "tool_calls"), *behind]
    async with telling(lambda number: told if number == 1 else say("done")) as (url, got):
        assert (await runner_at(url, timeout_seconds=60).run("go")).output == "done"
    assert (dict(ran), len(got)) == ({"nowhere": 1}, 2)


IN_DOUBT: dict[str, Told] = {
    "one chunk": [chunk({"content": "all"}, "stop")],
    "with its last chunk": [chunk({"content": "a"}), chunk({"content": "ll"}, "stop")],
    "more behind it": [*say("al")[:2], chunk({"content": "l"})],
}


@pytest.mark.deep
async def test_what_may_have_ended_and_is_never_closed_ends_once_nothing_more_comes() -> None:
    async with runners((always([*told, *PINGS]) for told in IN_DOUBT.values()), timeout_seconds=2) as at:
        results = await asyncio.gather(*(runner.run("go") for runner, _ in at))
    assert [result.output for result in results] == ["all"] * len(at)
    assert [len(got) for _, got in at] == [1] * len(at)


SIGNS: dict[str, bytes] = {
    "comments": b": keepalive\n\n",
    "pings": b'event: ping\ndata: {"type": "ping"}\n\n',
    "empty chunks": chunk({"content": ""}),
    "blanks": b"\n",
}


@pytest.mark.deep
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_signs_of_life_alone_do_not_hold_a_run_up_for_ever(
    stream: bool, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentloop.providers.openai.sse.SIGNS_OF_LIFE_FACTOR", 1)
    lives: list[Told] = [[sign, 0.02] * 3_000 for sign in SIGNS.values()]
    options: Body = {"timeout_seconds": 2, "stream": stream, "retry": RetryPolicy(attempts=1), "kind": kind}
    async with runners(map(always, lives), **options) as at:
        ends = await asyncio.gather(*(runner.run("go") for runner, _ in at), return_exceptions=True)
    assert [type(end) for end in ends] == [ModelUnavailableError] * len(lives)
    assert ["signs of life" in str(end) for end in ends] == [True] * len(lives)


@pytest.mark.deep
async def test_signs_of_life_between_pieces_are_silence_that_is_borne() -> None:
    waiting: Told = [b": keepalive\n\n", 0.3] * 7
    told: Told = [*waiting, chunk({"content": "a"}), *waiting, *say("ll")]
    async with telling(lambda _: told) as (url, got):
        assert (await runner_at(url, timeout_seconds=2).run("go")).output == "all"
    assert len(got) == 1


async def test_half_a_summary_never_stands_for_the_history() -> None:
    halves: Told = [
        chunk({"content": "The user asked for facts. First half, "}, "stop"),
        GAP,
        chunk({"content": "second half."}, "stop"),
    ]
    long = "we decided this and more words. " * 60
    async with telling(lambda number: say(f"{number} {long}") if number < 5 else halves) as (url, _):
        runner = runner_at(url)
        for number in range(4):
            await runner.run(f"question {number} {long}", session_id="s")
        await runner.compact("s")
        events = await runner.events("s")
    summaries = [each.event.replacement for each in events if isinstance(each.event, Compacted)]
    assert ["second half." in str(summary) for summary in summaries] == [True]
