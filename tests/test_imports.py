"""What is imported is taken in whole, or refused with its place: also a number that no run can count with."""

import json

import pytest

from agentloop._plumbing.amounts import MOST_TOKENS
from agentloop.codec import encode
from agentloop.errors import UsageError
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    MessageRecord,
    ModelCalled,
    Noted,
    Restored,
)
from agentloop.messages import Message
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import to_openai
from agentloop.sessions.importing import parse
from agentloop.stores import InMemoryStore
from agentloop.testing import ScriptedModel
from tests.export_kit import DONE, TASK, WHOLE, asks, length, log


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_messages_is_read_and_counted(indent: int | None) -> None:
    events = parse(json.dumps(to_openai(WHOLE), indent=indent), count=length)
    assert events == [
        MessageRecord(message=message, tokens=length(message))
        for message in (TASK, asks("a"), Message.tool("a", "x" * 500), DONE)
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_lines_of_messages_are_read_with_any_line_ends(start: str, end: str) -> None:
    lines = [
        json.dumps(data, ensure_ascii=False) for data in to_openai(log(TASK, Message.user("a\u2028b\x85")))
    ]
    events = parse(start + "".join(line + end for line in lines), count=length)
    assert [event.message.text for event in events if isinstance(event, MessageRecord)] == [
        "task",
        "a\u2028b\x85",
    ]


def test_lines_may_mix_messages_and_events() -> None:
    described = Described(title="Mine")
    assert parse(f'{encode(described)}\n{{"role":"user","content":"hi"}}', count=length) == [
        described,
        MessageRecord(message=Message.user("hi"), tokens=2),
    ]


GOOD = '{"role":"user","content":"hi"}\n'
FORWARD = encode(Restored(seq=2))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing to import"),
        ("\ufeff \r\n", "nothing to import"),
        ("[]", "nothing to import"),
        ("hello", "line 1: this is no JSON"),
        (GOOD + "\n" + GOOD[:-5], "line 3: this is no JSON"),
        (GOOD + GOOD.strip() + GOOD, "line 2: this is no JSON"),
        (GOOD + "\0\0\0", "line 2: this is no JSON"),
        (GOOD + '{"content":"no role"}', "line 2: a message must be"),
        (GOOD + "5", "line 2: a message must be"),
        (GOOD + '{"v":1,"kind":"restored"}', "line 2: damaged record of kind 'restored': 'seq' is missing"),
        (GOOD + FORWARD, "line 2: this event points at a record that is not before it"),
        (
            GOOD + encode(Cleared(items=(ClearedItem(seq=0, message=TASK, tokens=1),))),
            "line 2: this event points",
        ),
        (
            GOOD + encode(Compacted(covers=((1, 9),), replacement="", at=1, tokens=0)),
            "line 2: this event points",
        ),
        ("[" * 100_000, "the list: nested over 110 levels deep"),
        (GOOD + '{"role":"user","x":' + "[" * 200, "line 2: nested over 110 levels deep"),
        (GOOD.replace(",", ",\n") * 2 + "[" * 200, "the file: nested over 110 levels deep"),
        ("[{" + ",".join(f'"{n}":1' for n in range(10_001)) + "}]", "item 1: an object has 10,001 keys"),
        ('[{"role":"user"}', "this is no JSON list"),
        (GOOD + '{"role":"user","role":"tool"}', "line 2: the key 'role' stands twice"),
        (GOOD + '{"role":"user","x":NaN}', "line 2: NaN is no number"),
        (GOOD + '{"role":"user","x":1e999}', "line 2: 1e999 is no number"),
        (GOOD + '{"v":1,"kind":"noted","source":"x","data":{"n":1e999}}', "line 2: 1e999 is no number"),
        (GOOD + '{"v":1,"kind":"noted","source":"x","data":{"n":NaN,"n":1}}', "line 2: the key 'n' stands"),
        (GOOD + '{"v":1,"kind":"noted","source":"x","time":NaN}', "line 2: NaN is no number"),
        (GOOD + '{"v":1,"kind":"described","ttl_seconds":Infinity}', "line 2: Infinity is no number"),
        (GOOD + '{"v":1,"kind":"described","ttl_seconds":-5}', "line 2: ttl_seconds must be"),
        (GOOD + '{"v":1,"kind":"described","owner":"' + "x" * 201 + '"}', "line 2: bad owner"),
        (GOOD + '{"role":"boss"}', "line 2: 'boss' is no role"),
        ('[{"role":"user"} , {"role":"user","x":{"a":1,"a":2}}]', "item 2: the key 'a' stands twice"),
        ('[{"role":"user","x":-Infinity}]', "item 1: -Infinity is no number"),
        ('[{"role":"user"}, {"role":"robot"}]', "item 2: 'robot' is no role"),
        ('[{"role":"user"}, 5]', "item 2: a message must be"),
        ("[[]]", "item 1: a message must be"),
        (f"[{GOOD}, {FORWARD}]", "item 2: this is an event: write events as JSON Lines, one a line"),
    ],
)
def test_what_cannot_be_imported_names_the_place(text: str, says: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^{'nothing imported: ' if 'to import' not in says else ''}{says}[^\n]*$"
    ):
        parse(text, count=length)


def test_deep_nesting_is_one_clear_line() -> None:
    deep = '{"role":"user","x":' + "[" * 900 + "]" * 900 + "}"
    with pytest.raises(UsageError, match="line 1: "):
        parse(deep, count=length)


@pytest.mark.parametrize("fields", [{"time": 10**400}, {"tokens": 10**400}, {"tokens": -(10**9)}])
def test_a_number_that_no_run_could_count_with_names_the_line(fields: dict[str, int]) -> None:
    said = {"v": 1, "kind": "message_added", "message": {"role": "user", "content": "hi"}, "tokens": 1}
    (name,) = fields
    with pytest.raises(UsageError, match=f"^nothing imported: line 2: .*'{name}' must be a [^\n]*$"):
        parse(GOOD + json.dumps(said | fields), count=length)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (MessageRecord(message=TASK, tokens=MOST_TOKENS + 1), "tokens"),
        (Cleared(items=(ClearedItem(seq=1, message=TASK, tokens=MOST_TOKENS + 1),)), "tokens"),
        (Compacted(covers=((1, 1),), replacement="", at=1, tokens=MOST_TOKENS + 1), "tokens"),
        (
            Compacted(covers=(), replacement="", at=1, tokens=1, answer_tokens=MOST_TOKENS + 1),
            "answer_tokens",
        ),
        (ModelCalled(purpose="agent", model="m", counted=MOST_TOKENS + 1), "counted"),
    ],
)
def test_a_length_that_nothing_has_names_the_line(event: Event, name: str) -> None:
    with pytest.raises(
        UsageError, match=f"line 2: {name} must be a whole number from 0 to {MOST_TOKENS}, not"
    ):
        parse(GOOD + encode(event), count=length)


async def test_a_run_lives_with_the_largest_numbers_that_are_taken() -> None:
    talk = [Message(role=role, content="x" * 400) for _ in range(15) for role in ("user", "assistant")]
    said = [MessageRecord(message=message, tokens=MOST_TOKENS, time=1e308) for message in talk]
    store = InMemoryStore()
    await store.append("s", parse("\n".join(map(encode, said)), count=length), expect=0)
    model = ScriptedModel(["done"], window=8_000, summary="They talked.")
    runner = Runner(Agent(model), store=store, transcripts=None)
    result = await runner.run("Go on", session_id="s")
    assert (result.status, [each.status for each in result.compactions]) == ("answered", ["done"])
    assert max(each.tokens_before for each in result.compactions) > 30 * MOST_TOKENS


@pytest.mark.parametrize("place", ["in front", "behind"])
@pytest.mark.parametrize("position", ["0", "-3", "true", "1.5", '"7"', "null", "3"])
def test_positions_must_ascend(position: str, place: str) -> None:
    def at(said: str) -> str:
        text = encode(Noted(source="x"))
        return (
            f'{{"position":{said},{text[1:]}' if place == "in front" else f'{text[:-1]},"position":{said}}}'
        )

    third, bad = at("3"), at(position)
    with pytest.raises(UsageError, match="line 2: 'position' must be a whole number of at least 4, not"):
        parse(f"{third}\n{bad}", count=length)
