"""Records survive the way through text: same values, same bytes, old and new versions."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._plumbing.checks import MOST_KEPT
from agentloop.codec import SCHEMA_VERSION, decode, encode
from agentloop.errors import StoreError, UsageError
from agentloop.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    MediaRecord,
    MessageRecord,
    ModelCalled,
    NotCompacted,
    Noted,
    Restored,
    RunEndRecord,
    RunStartRecord,
    Unknown,
)
from agentloop.messages import Message, ToolCall, Usage


def _has_no_split_character(text: str) -> bool:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


texts = st.text(st.characters(exclude_categories=()), max_size=12).filter(_has_no_split_character)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
functions = st.fixed_dictionaries(
    {}, optional={"name": texts | json_values, "arguments": texts | json_values, "strict": json_values}
)
wire_calls = st.fixed_dictionaries(
    {},
    optional={
        "id": texts | json_values,
        "type": st.just("function") | json_values,
        "function": functions | json_values,
        "index": json_values,
    },
)
parts = st.fixed_dictionaries(
    {"type": texts}, optional={"text": texts | json_values, "image_url": json_values}
)
wire_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]) | texts},
    optional={
        "content": texts | st.none() | st.lists(parts, max_size=3) | json_values,
        "tool_calls": st.none() | st.lists(wire_calls | json_values, max_size=3) | json_values,
        "tool_call_id": texts | json_values,
        "name": texts | json_values,
        "function_call": st.none() | json_values,
        "refusal": st.none() | texts,
        "reasoning_content": texts,
        "omits": json_values,
        "extra": json_values,
    },
).flatmap(
    lambda known: st.dictionaries(texts, json_values, max_size=2).map(lambda unknown: {**unknown, **known})
)
messages = wire_messages.map(Message.from_openai) | st.builds(
    Message,
    role=texts,
    content=st.none() | texts,
    tool_calls=st.lists(st.builds(ToolCall, id=texts, name=texts, arguments=texts), max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
)
counts = st.integers(0, 10**9)
seconds = st.floats(0, 1e12)
usages = st.builds(Usage, input_tokens=counts, output_tokens=counts, cached_tokens=counts)
ranges = st.lists(st.tuples(counts, counts), max_size=3).map(tuple)
own = {"id": texts, "time": seconds}
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(MessageRecord, message=messages, tokens=counts, branch=st.none() | texts, run_id=texts,
              keep=st.booleans(), spilled=st.none() | texts, finish=st.none() | texts, **own),
    st.builds(Cleared, items=st.lists(st.builds(ClearedItem, seq=counts, message=messages, tokens=counts),
                                      max_size=2).map(tuple), **own),
    st.builds(Compacted, covers=ranges, replacement=texts, at=counts, tokens=counts, why=texts, tier=counts,
              transcript=st.none() | texts, lost=st.lists(texts, max_size=2).map(tuple), **own),
    st.builds(Restored, seq=counts, **own),
    st.builds(ModelCalled, purpose=texts, model=texts, counted=counts, usage=st.none() | usages,
              seconds=seconds, cost=st.none() | seconds, **own),
    st.builds(RunStartRecord, run_id=texts, model=texts, **own),
    st.builds(RunEndRecord, run_id=texts, status=texts, usage=usages, **own),
    st.builds(ApprovalAsked, run_id=texts, call_id=texts, tool=texts, arguments=texts, **own),
    st.builds(ApprovalAnswered, run_id=texts, call_id=texts, text=texts, by=texts,
              verdict=st.sampled_from(["approved", "rejected", "responded"]), **own),
    st.builds(Described, title=st.none() | texts, folder=st.none() | texts, **own),
    st.builds(Noted, source=texts, data=st.dictionaries(texts, json_values, max_size=3), **own),
)  # fmt: skip


@given(events)
def test_every_event_comes_back_equal_with_id_and_time(event: Event) -> None:
    text = encode(event)
    read = decode(text)
    assert (read, read.id, read.time) == (event, event.id, event.time)
    assert type(read) is type(event)
    assert encode(read) == text


@given(events)
def test_a_record_is_one_line_of_ascii_that_names_version_and_kind(event: Event) -> None:
    text = encode(event)
    assert text.isascii()
    assert text.isprintable()
    assert text.startswith(f'{{"v":{SCHEMA_VERSION},"kind":"')


@given(wire_messages)
def test_a_message_loses_nothing_of_its_chat_completions_form(data: dict[str, Any]) -> None:
    given_as = json.dumps(data, sort_keys=True)
    back = Message.from_openai(data).to_openai()
    assert back == data
    assert back.keys() == data.keys()
    assert json.dumps(back, sort_keys=True) == given_as


@given(messages)
def test_a_message_comes_back_from_its_chat_completions_form(message: Message) -> None:
    assert Message.from_openai(message.to_openai()) == message


def test_nul_and_lone_surrogates_come_back() -> None:
    for text in ("\0", "a\ud800b", "\udfff", "\u2028\x85"):
        event = decode(encode(MessageRecord(message=Message.user(text), tokens=1)))
        assert isinstance(event, MessageRecord)
        assert event.message.text == text


def test_two_halves_of_a_character_come_back_as_the_character() -> None:
    event = decode(encode(Described(title="\ud83d" + "\ude00")))
    assert event == Described(title="\N{GRINNING FACE}")


def test_the_form_on_disc() -> None:
    call = ToolCall(id="c1", name="add", arguments='{"a": 2}')
    said = MessageRecord(message=Message.assistant(None, [call]), tokens=9, run_id="r", id="e1", time=2.5)
    assert encode(said) == (
        '{"v":1,"kind":"message_added","id":"e1","time":2.5,"message":{"role":"assistant","content":null,'
        '"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\\"a\\": 2}"}}]},'
        '"tokens":9,"run_id":"r","branch":null,"keep":false,"spilled":null,"finish":null}'
    )
    folded = Compacted(
        covers=((1, 4), (6, 6)), replacement="…", at=1, tokens=3, lost=("x",), id="e2", time=0.0
    )
    assert '"covers":[[1,4],[6,6]],"replacement":"\\u2026"' in encode(folded)


def test_fields_absent_in_old_records_take_their_defaults() -> None:
    text = (
        '{"v":1,"kind":"message_added","id":"e","time":1,"message":{"role":"user","content":"hi"},"tokens":2}'
    )
    event = decode(text)
    assert event == MessageRecord(message=Message.user("hi"), tokens=2)
    assert (event.id, event.time) == ("e", 1)
    assert decode('{"v":1,"kind":"run_ended","run_id":"r","status":"answered","usage":{}}') == RunEndRecord(
        run_id="r", status="answered"
    )


@pytest.mark.parametrize("version", [1, 7])
def test_fields_of_newer_versions_are_passed_over(version: int) -> None:
    text = f'{{"v":{version},"kind":"restored","id":"e","time":1.5,"seq":3,"mood":{{"a":[1]}}}}'
    assert decode(text) == Restored(seq=3)


@pytest.mark.parametrize(
    "text",
    [
        '{"v":2,"kind":"dreamt","id":"d","time":4.5,"of":"sheep"}',
        ' { "kind" : "dreamt", "v":1, "id":"d", "time":4.5, "x": "\u00e9\\u00e9 1.0e3" }',
    ],
)
def test_an_unknown_kind_is_kept_to_the_byte(text: str) -> None:
    event = decode(text)
    assert event == Unknown(kind="dreamt", body=text)
    assert (event.id, event.time) == ("d", 4.5)
    assert encode(event) == text


def test_an_unknown_kind_without_id_and_time_is_read_the_same_each_time() -> None:
    event = decode('{"v":2,"kind":"dreamt","id":7}')
    assert (event.id, event.time) == ("", 0.0)


WHOLE = encode(
    MessageRecord(
        message=Message.user("h\u00e9"), tokens=1, run_id="r", branch="b", finish="stop", id="e", time=1.5
    )
)


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_record_cut_at_any_byte_is_refused(cut: int) -> None:
    with pytest.raises(StoreError, match=r"^damaged record: [^\n]*$"):
        decode(WHOLE[:cut])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\0\0",
        "[]",
        "null",
        "{}",
        '{"kind":"restored","seq":1}',
        '{"v":1,"seq":1}',
        '{"v":1,"kind":3}',
        '{"v":1,"kind":"restored"}',
        '{"v":1,"kind":"restored","seq":"one"}',
        '{"v":1,"kind":"restored","seq":null}',
        '{"v":1,"kind":"message_added","tokens":1,"message":{"content":"no role"}}',
        '{"v":1,"kind":"message_added","tokens":1,"message":"text"}',
        '{"v":1,"kind":"compacted","covers":[[1]],"replacement":"","at":1,"tokens":1}',
        '{"v":1,"kind":"compacted","covers":5,"replacement":"","at":1,"tokens":1}',
        '{"v":1,"kind":"cleared","items":[{"seq":1}]}',
        '{"v":1,"kind":"run_ended","run_id":"r","status":"x","usage":[]}',
        '{"v":1,"kind":"noted","source":"s","data":[]}',
        '{"v":1,"kind":"restored","seq":' + "9" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_damaged_records_are_refused_with_one_line(text: str) -> None:
    with pytest.raises(StoreError, match=r"^damaged record[^\n]*$") as caught:
        decode(text)
    assert len(str(caught.value)) < 250


def test_a_known_kind_that_a_newer_version_changed_says_so() -> None:
    with pytest.raises(StoreError, match="newer version wrote it: update agentloop"):
        decode('{"v":9,"kind":"restored","seq":{"from":1}}')


ITEM = ClearedItem(seq=1, message=Message.user("h"), tokens=1)
EVERY_NUMBER: tuple[Event, ...] = (
    MessageRecord(message=Message.user("hi"), tokens=1),
    Cleared(items=(ITEM,)),
    Compacted(
        covers=((1, 2),), replacement="", at=1, tokens=1, cleared=(ITEM,), lost_count=1, pinned_tokens=1
    ),
    NotCompacted(status="failed"),
    Restored(seq=1),
    ModelCalled(purpose="agent", model="m", usage=Usage(), cost=0.5),
    RunStartRecord(run_id="r"),
    RunEndRecord(run_id="r", status="answered"),
    ApprovalAsked(run_id="r", call_id="c", tool="t", arguments="{}"),
    ApprovalAnswered(run_id="r", call_id="c", verdict="approved"),
    Described(ttl_seconds=5.0),
    Noted(source="s"),
    MediaRecord(url="data:image/png;base64,"),
)


KINDS = [ClearedItem, Usage, *(kind for kind in get_args(AnyEvent) if kind is not Unknown)]


def holds_a_number(hint: Any) -> bool:
    return hint in (int, float) or bool({int, float} & set(get_args(hint)))


def numbers_in(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Where each number of a record stands, and that number as the last item."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key != "v":
                yield from numbers_in(inner, *path, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield *path, value


def with_number(text: str, path: Sequence[Any], number: Any) -> str:
    data = json.loads(text)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = number
    return json.dumps(data)


@pytest.mark.parametrize("event", EVERY_NUMBER, ids=lambda event: type(event).__name__)
def test_every_number_of_every_kind_is_held_to_one_rule(event: Event) -> None:
    text = encode(event)
    for *path, stands in numbers_in(json.loads(text)):
        is_whole = isinstance(stands, int)
        for good in (0, MOST_KEPT) if is_whole else (0, -2.5, 1e308):
            again = encode(decode(with_number(text, path, good)))
            assert json.loads(again) == json.loads(with_number(text, path, good))
        bad = (-1, MOST_KEPT + 1, 1.0) if is_whole else (math.inf, -(10**309))
        for number in (*bad, math.nan, 10**400, True, "1"):
            with pytest.raises(StoreError, match=r"^damaged record of kind '\w+': '\w+' must be a [^\n]*$"):
                decode(with_number(text, path, number))


def test_the_rule_is_tried_on_every_number_that_a_record_has() -> None:
    tried = {path[-2] for event in EVERY_NUMBER for path in numbers_in(json.loads(encode(event)))}
    named = {field for kind in KINDS for field, hint in get_type_hints(kind).items() if holds_a_number(hint)}
    assert named - {"covers"} <= tried
    assert {kind for kind in KINDS if kind not in (ClearedItem, Usage)} == set(map(type, EVERY_NUMBER))


class Homemade(Event):
    """An event that is none of the log's."""


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Homemade(), "Homemade is no event of the log"),
        (Event(), "Event is no event of the log"),
        (Noted(source="s", data={"x": object()}), "'noted'.*object is not JSON serializable"),
        (Noted(source="s", data={"x": 10**5000}), "'noted'"),
        (Described(title=b"bytes"), "'described'.*no str"),  # type: ignore[arg-type]
        (Restored(seq=None), "'restored'.*whole number"),  # type: ignore[arg-type]
        (
            MessageRecord(message=Message.user("hi"), tokens=-1),
            "'tokens' must be a whole number from 0 to 9007",
        ),
        (Restored(seq=10**5000), "'seq' must be a whole number .* not a number of 16610 bits"),
        (Described(ttl_seconds=math.nan), "'ttl_seconds' must be a finite number, not nan"),
        (MessageRecord(message="hello", tokens=1), "'message_added'"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_read_again_is_not_written(event: Event, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        encode(event)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(UsageError, match="'noted' cannot be stored"):
        encode(Noted(source="s", data=loop))
