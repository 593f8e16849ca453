"""Identifiers, and the index of what must be kept exact beside the prose of a summary."""

import base64
import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._plumbing.truncate import ends
from agentloop.compaction.digest.index import LABELS
from agentloop.context import Entry, identifier_kinds, named_values
from agentloop.context.identifier_kinds import MOST_CHARS, MOST_URL_CHARS, identifiers, kinds, missing
from agentloop.messages import Message, ToolCall
from agentloop.prompts import summary_message
from tests.index_kit import index_of
from tests.kit import COUNTER, context_of, histories, orderly

PROSE = "Nothing that stands here has to be kept just as it is written down, not one word of it. "


def entries_of(*messages: Message) -> Sequence[Entry]:
    return context_of(messages).visible


def read_of(number: int, text: str, path: str = "notes") -> tuple[Message, Message]:
    call = ToolCall(id=f"c{number}", name="read", arguments=f'{{"path": "{path}", "page": {number}}}')
    return Message.assistant(None, [call]), Message.tool(call.id, text)


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("path", "See src/app/main.py:12:5.", ["src/app/main.py:12:5"]),
        ("path", "/etc/hosts, ~/.config/x and ./run.sh", ["/etc/hosts", "~/.config/x", "./run.sh"]),
        ("path", r"at C:\Users\ada\a.txt:7, \\srv\c\a.b", [r"C:\Users\ada\a.txt:7", r"\\srv\c\a.b"]),
        ("path", r"(app\views\main.cs) src/app/core", [r"app\views\main.cs", "src/app/core"]),
        ("path", "README.md, .env and main.rs:3", ["README.md", ".env", "main.rs:3"]),
        ("name", "snake_case, __init__ or KeyStore", ["snake_case", "__init__", "KeyStore"]),
        ("name", "a.b.record (io::Error) --max-steps", ["a.b.record", "io::Error", "--max-steps"]),
        ("name", "4f0b02a; 0xdeadbeef", ["4f0b02a", "0xdeadbeef"]),
        ("name", "550e8400-e29b-41d4-a716-446655440000", ["550e8400-e29b-41d4-a716-446655440000"]),
        ("name", "ABC-123, ORA-00942, #42 gpt-5-mini", ["ABC-123", "ORA-00942", "#42", "gpt-5-mini"]),
        (
            "name",
            "v1.2.3, ^18.2.0; 2.0.0-rc.1 10.0.0.1:80",
            ["v1.2.3", "^18.2.0", "2.0.0-rc.1", "10.0.0.1:80"],
        ),
        ("url", "(https://example.org/a?b=c,d#e)", ["https://example.org/a?b=c,d#e"]),
        ("url", "db://u@h:5/x, a.l@example.co.uk.", ["db://u@h:5/x", "a.l@example.co.uk"]),
        ("error", "[E0308]: KeyError: 'x'; a.BError", ["E0308", "KeyError", "a.BError"]),
        ("error", "HTTP 503, exit status 137; ENOENT", ["HTTP 503", "exit status 137", "ENOENT"]),
        ("error", "exit code 2; errno 13 (SIGKILL)", ["exit code 2", "errno 13", "SIGKILL"]),
        ("number", "20 MB, 250ms, 3.5 GB and 40 %", ["20 MB", "250ms", "3.5 GB", "40 %"]),
        ("number", "$12.50, 10:30, 3 March 2026", ["$12.50", "10:30", "3 March 2026"]),
        ("number", "2026-01-05 and 2026-01-05T10:30:00Z", ["2026-01-05", "2026-01-05T10:30:00Z"]),
        ("number", "81,204 tokens, -5 °C (8443)", ["81,204 tokens", "-5 °C", "8443"]),
    ],
)
def test_what_is_an_identifier(kind: str, text: str, found: list[str]) -> None:
    assert kinds(text) == dict.fromkeys(found, kind)


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "Is that so? It's well-known, e.g. here; and/or there... (TCP/IP) 12 of 30, 24/7!",
        "",
        "—–… “quoted” ‘words’ 日本語 naïve **bold** --- === ~~~",
        "a" * (MOST_CHARS + 1),
        "x_" * MOST_CHARS,
        "AAAA" * 30 + "1",
        "https://example.org/" + "a" * MOST_URL_CHARS,
        base64.b64encode(random.Random(1).randbytes(3_000)).decode(),
        base64.encodebytes(random.Random(2).randbytes(3_000)).decode(),
    ],
)
def test_what_is_none(text: str) -> None:
    assert identifiers(text) == []


def test_line_numbers_and_escapes_are_no_part_of_what_they_stand_beside() -> None:
    numbered = "\n".join(f"{number:>6}\tuse_it" for number in range(9_990, 10_010))
    assert identifiers(numbered) == ["use_it"]
    assert identifiers(r'"one\nsrc/b.py\tKeyError\\nlast_one"') == ["src/b.py", "KeyError", "last_one"]


def test_order_is_kept_and_each_stands_once() -> None:
    assert identifiers("b_2 then a_1, b_2 (a_1) and c_3") == ["b_2", "a_1", "c_3"]


def test_no_repetition_can_try_again_what_it_took() -> None:
    """Whatever looks at a whole text repeats without end only where it gives nothing back."""
    texts = [identifier_kinds._CANDIDATE, identifier_kinds._NAMED, identifier_kinds._COUNTED]
    for pattern in texts:
        bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])+\]", "x", pattern.pattern)
        bounded = re.sub(r"\{[\d,]+\}\+?|\+\+|\*\+", "", bare)
        assert re.findall(r"[*+].{0,9}|\{\d+,\}", bounded) == []


HOSTILE = [
    "a",
    "a.",
    "/",
    "-",
    "a@",
    "1",
    "1,",
    "1.",
    "a:",
    "\\",
    "a\\",
    "a_",
    "://",
    "HTTP ",
    "the a is ",
    "$1",
    "é",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_lines_are_short_work(unit: str) -> None:
    """A word is looked at as a whole once it is short, and only once: what is left does not grow."""
    counts = [len(identifiers(unit * (size // len(unit)))) for size in (100_000, 200_000, 400_000)]
    assert counts[0] == counts[1] == counts[2] <= 2
    assert len(list(named_values(unit * 50_000))) <= 1


def test_missing_is_what_does_not_stand_there_as_a_whole() -> None:
    texts = ["new_one and id_12", "old_one, id_1 and src/a.py:3"]
    assert missing(texts, "id_12 and src/a.py:35", most=9) == ("new_one", "old_one", "id_1", "src/a.py:3")
    assert missing(texts, " ".join(texts), most=9) == ()
    assert missing(texts, "", most=2) == ("new_one", "id_12")
    assert (
        missing(
            texts, index_of(entries_of(*map(Message.user, texts)), max_tokens=99, counter=COUNTER), most=9
        )
        == ()
    )


def test_the_lines_of_the_index() -> None:
    index = index_of(
        entries_of(
            Message.user("Fix E0308 in src/a.py by 10:30, see https://example.org/x."),
            *read_of(1, "ends_here " + PROSE * 400 + " at_the_end", "lib/core"),
            Message.assistant("It is run_all, and 250 ms."),
        ),
        max_tokens=500,
        counter=COUNTER,
    )
    assert index.splitlines() == [
        "Paths: lib/core, src/a.py",
        "URLs: https://example.org/x",
        "Errors: E0308",
        "Numbers: 250 ms, 10:30",
        "Names: run_all, ends_here, at_the_end",
    ]


IT = '{"of": "it"}'


def test_what_is_known_and_what_is_superseded_is_left_out() -> None:
    messages = (
        *(
            Message.assistant(None, [ToolCall(id="a", name="show", arguments=IT)]),
            Message.tool("a", "old_state id_7"),
        ),
        *(
            Message.assistant(None, [ToolCall(id="b", name="show", arguments=IT)]),
            Message.tool("b", "new_state id_7"),
        ),
    )
    assert index_of(entries_of(*messages), max_tokens=99, counter=COUNTER) == "Names: new_state, id_7"
    known = "new_state, id_77"
    assert index_of(entries_of(*messages), max_tokens=99, counter=COUNTER, known=known) == "Names: id_7"
    assert index_of(entries_of(*messages), max_tokens=99, counter=COUNTER, known="id_7 new_state") == ""


@pytest.mark.parametrize(
    ("older", "newer", "kept", "gone"),
    [
        ("The deploy port is 8443.", "Update: the deploy port is now 9443.", "deploy port = 9443", "8443"),
        ("timeout = 30 s", "I raised it: timeout = 45 s", "timeout = 45 s", "30 s"),
        ("Our limit was raised to 20 MB.", "our limit is now 25 MB", "limit = 25 MB", "20 MB"),
        ("The branch is fix_one.", "The branch is now fix_two.", "fix_two", "fix_one"),
    ],
)
def test_a_newer_value_of_the_same_thing_replaces_the_older(
    older: str, newer: str, kept: str, gone: str
) -> None:
    said = entries_of(Message.user(older), *read_of(1, f"as said: {gone}"), Message.user(newer))
    index = index_of(said, max_tokens=200, counter=COUNTER)
    assert kept in index
    assert gone not in index


def test_values_of_different_things_stay_beside_each_other() -> None:
    said = entries_of(Message.user("The deploy port is 8443."), Message.user("The admin port is 9443."))
    index = index_of(said, max_tokens=200, counter=COUNTER)
    assert "deploy port = 8443" in index
    assert "admin port = 9443" in index
    assert list(named_values("The port is not 8443, it went to 12.")) == []


def test_what_was_said_comes_before_what_only_results_hold() -> None:
    said = [Message.user(f"Look at said_{number}.") for number in range(10)]
    bulk = " ".join(f"bulk_{number}" for number in range(400))
    index = index_of(entries_of(*said, *read_of(1, bulk)), max_tokens=100, counter=COUNTER)
    assert all(f"said_{number}" in index for number in range(10))
    assert "bulk_0" in index


@pytest.mark.deep
def test_one_huge_result_leaves_room_for_all_others() -> None:
    codes = [
        pair for number in range(20) for pair in read_of(number, f"code_{number} {PROSE * 5} end_{number}")
    ]
    bulk = " ".join(f"bulk_{number}" for number in range(100_000))
    for messages in ([*codes, *read_of(99, bulk)], [*read_of(99, bulk), *codes]):
        index = index_of(entries_of(*messages), max_tokens=300, counter=COUNTER)
        assert all(f"code_{number}" in index and f"end_{number}" in index for number in range(20))
        assert "bulk_0" in index


def test_how_much_of_a_result_was_left_out_is_no_news() -> None:
    short = ends(f"code_1 {PROSE * 90}", max_chars=300, rest="the whole is in result_1.txt")
    index = index_of(entries_of(*read_of(1, short)), max_tokens=99, counter=COUNTER)
    assert index == "Paths: result_1.txt\nNames: code_1"


def test_of_what_results_count_the_newest_number_stands() -> None:
    read = [part for at in range(9) for part in read_of(at, f"It has {at + 40} lines and {at + 7} rows.")]
    assert index_of(entries_of(*read), max_tokens=200, counter=COUNTER) == "Numbers: 48 lines, 15 rows"


def test_newest_first_where_there_is_not_room_for_all() -> None:
    said = [Message.user(f"Look at said_{number:03}.") for number in range(200)]
    index = index_of(entries_of(*said), max_tokens=60, counter=COUNTER)
    names = index.removeprefix("Names: ").split(", ")
    assert names == sorted(names, reverse=True)
    assert names[0] == "said_199"
    assert len(names) > 8


def test_an_earlier_summary_is_read_as_something_said() -> None:
    text = summary_message("Done.\n\nNumbers: deploy port = 8443, 3 MB\nNames: id_7", "transcript_1.jsonl")
    summary = Entry(seq=1, message=Message.user(text), tokens=9, original=Message.user(text), kind="summary")
    index = index_of(
        [summary, *entries_of(Message.user("the deploy port is 9443"))], max_tokens=99, counter=COUNTER
    )
    assert index == "Numbers: deploy port = 9443, 3 MB\nNames: id_7"


@pytest.mark.many(80)
@given(histories | orderly(), st.integers(-1, 300))
def test_it_never_takes_more_than_it_may(messages: list[Message], max_tokens: int) -> None:
    entries = entries_of(*messages)
    index = index_of(entries, max_tokens=max_tokens, counter=COUNTER)
    assert COUNTER(index) <= max(0, max_tokens)
    assert index == index_of(entries, max_tokens=max_tokens, counter=COUNTER)
    assert all(line.split(":")[0] in LABELS.values() for line in index.splitlines())


@pytest.mark.many(100)
@given(orderly())
def test_whoever_has_the_room_reads_every_fact(messages: list[Message]) -> None:
    index = index_of(entries_of(*messages), max_tokens=10_000, counter=COUNTER)
    facts = {word for message in messages for word in identifiers(message.text) if word.startswith("FACT-")}
    assert facts <= set(identifiers(index))


@pytest.mark.deep
def test_messages_of_any_size_are_looked_at_at_their_ends() -> None:
    text = "first_word " + PROSE * 50_000 + " middle_word " + PROSE * 50_000 + " last_word"
    said = [*read_of(1, text), Message.user(text.replace("_word", "_said"))]
    index = index_of(entries_of(*said), max_tokens=100, counter=COUNTER)
    assert index == "Names: first_said, last_said, first_word, last_word"
