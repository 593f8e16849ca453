"""The record computed without a model: what it holds, what it leaves out, and what it costs."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.compaction.digest import digest
from agentloop.compaction.digest.language import PROSE as QUOTED
from agentloop.context import Context, Entry
from agentloop.events import Compacted
from agentloop.messages import Message, ToolCall
from agentloop.prompts import summary_message
from tests.benchmarks.bench_recall import folded, recall
from tests.benchmarks.planting import WORDING, planted_session
from tests.kit import COUNTER, added, context_of, histories, orderly, records_of

U, A = Message.user, Message.assistant


def record(messages: Sequence[Message], *, most: int = 1_000, kept: Sequence[Message] = ()) -> str:
    """The digest of these messages, with others staying in sight behind them."""
    entries = list(context_of([*messages, *kept]).said)
    return digest(entries[: len(messages)], max_tokens=most, counter=COUNTER, kept=entries[len(messages) :])


def called(name: str, result: str, said: str | None = None, **arguments: object) -> list[Message]:
    """One exchange."""
    call = ToolCall(id=f"id_{name}_{len(result)}", name=name, arguments=json.dumps(arguments))
    return [A(said, [call]), Message.tool(call.id, result)]


def section(text: str, title: str) -> str:
    """What stands under a heading."""
    return next((part for part in text.split("\n\n") if part.startswith(f"{title}:")), "")


PROSE = "The weather over the hills was mild and the sheep looked at the road for a while."
"""Says nothing that binds."""


def test_nothing_said_gives_nothing() -> None:
    assert record([]) == ""
    assert record([U(""), A(" ")]) == ""


def test_what_users_said_stands_in_the_order_in_which_they_said_it() -> None:
    text = record([U("Port the parser to Rust."), A("Done."), U("Then write the docs.")])
    assert text.index("Port the parser to Rust.") < text.index("Then write the docs.")


@pytest.mark.parametrize(
    "rule",
    [
        "Never push to the release branch.",
        "every public function needs a docstring",
        "Keep the binary under 12 MB.",
        "Auf keinen Fall die Tabelle kunden löschen.",
        "Il ne faut jamais utiliser la base de production.",
        "Solo se puede usar la cuenta de pruebas.",
        "不要修改配置文件。",
        "テストなしで変更しないでください。",
        "Никогда не трогай папку архив.",
    ],
)
@pytest.mark.parametrize("place", ["alone", "at the start", "in the middle", "at the end"])
def test_a_rule_stated_once_outlives_all_small_talk(rule: str, place: str) -> None:
    noise = [f"{PROSE} Number {number} of many." for number in range(24)]
    at = {"alone": 0, "at the start": 0, "in the middle": 12, "at the end": 24}[place]
    stating = rule if place == "alone" else "\n".join([*noise[:at], rule, *noise[at:]])
    talk = [
        message
        for number in range(40)
        for message in (U(f"And what of the sheep on hill {chr(97 + number % 26)}?"), A(PROSE))
    ]
    text = record([U("Count the sheep."), *talk[:20], U(stating), *talk[20:]], most=250)
    assert rule in text
    assert "Count the sheep." in text


def test_where_room_is_short_greetings_and_pasted_output_go_first() -> None:
    pasted = "```\n" + "\n".join(f"frame {number} at 0x{number:04x} ok" for number in range(200)) + "\n```"
    text = record(
        [U("Thanks!"), U(f"Fix the crash in the importer.\n{pasted}\nIt began on Monday.")], most=60
    )
    assert "Fix the crash in the importer." in text
    assert "It began on Monday." in text
    assert "Thanks!" not in text
    assert text.count("frame") <= 3


def test_what_was_said_twice_stands_once() -> None:
    text = record([U("Go through the next folder."), A("Yes."), U("Go through the next folder.")])
    assert text.count("Go through the next folder.") == 1


def test_decisions_rejected_options_and_open_points_stand_before_narration() -> None:
    steps = [message for number in range(30) for message in called("look", "fine", "Let me look.", n=number)]
    deciding = A(
        "I will keep the queue in the database instead of Redis, because one service less is simpler. "
        "A cron job was rejected. The retry limit is still open."
    )
    text = section(
        record([U("Build it."), *steps, deciding, *steps], most=200), "What the assistant decided and said"
    )
    assert "instead of Redis" in text
    assert "A cron job was rejected." in text
    assert "still open" in text
    assert "Let me look." not in text


def test_files_stand_with_the_last_thing_done_to_each() -> None:
    text = section(
        record(
            [
                U("Go."),
                *called("read_file", "text", path="src/a.py"),
                *called("edit_file", "ok", path="src/a.py"),
                *called("read_file", "text again", path="src/a.py"),
                *called("bash", "", command="cd /srv && cat docs/b.md | head -3"),
                *called("bash", " ", command="echo x > out/c.txt"),
                *called("bash", "  ", command="rm -f old/d.log"),
                *called("run", "   ", command="python - <<'E'\nopen('no.py').read()\nE"),
                *called("write_file", "Error: disk full", path="src/e.py"),
                *called("apply_patch", "    ", input="*** Update File: src/f.py\n+x"),
            ]
        ),
        "Files, by the last thing done to each",
    )
    done = {
        path: line.removeprefix("- ").split(":")[0] for line in text.splitlines()[1:] for path in line.split()
    }
    wanted = {"src/a.py": "edited", "docs/b.md": "read", "out/c.txt": "written", "old/d.log": "deleted"}
    wanted |= {"src/e.py": "could not be written", "src/f.py": "edited"}
    assert {path: done.get(path) or done.get(f"{path},") for path in wanted} == wanted
    assert "no.py" not in text


def test_errors_say_whether_they_were_mended() -> None:
    text = section(
        record(
            [
                U("Make the tests pass."),
                *called(
                    "shell", "FAILED tests/test_a.py::test_x - KeyError: 'k1'\n1 failed", command="pytest -q"
                ),
                *called("shell", "cargo: command not found", command="cargo build"),
                *called("shell", "3 passed", command="pytest -v"),
            ]
        ),
        "Errors met",
    )
    tests, cargo = sorted(text.splitlines()[1:], key=lambda line: "cargo" in line)
    assert "test_x" in tests
    assert "later succeeded" in tests
    assert "command not found" in cargo
    assert "not seen mended" in cargo


def test_code_that_speaks_of_errors_is_no_error() -> None:
    code = "def f(x):\n    raise ValueError('x')\nclass TooLongError(Exception): ...\n"
    assert section(record([U("Read."), *called("read_file", code * 3, path="a.py")]), "Errors met") == ""


def test_each_call_has_a_line_with_what_tells_at_the_head_and_at_the_end_of_its_result() -> None:
    result = f"Build b-7731 started. {PROSE * 30} Total: 42 files."
    text = record([U("Build."), *called("build", result, target="all"), *called("clean", "", target="all")])
    lines = section(text, "What was done").splitlines()[1:]
    assert "b-7731" in lines[0]
    assert "Total: 42 files." in lines[0]
    assert lines[1] == "- clean(all) → nothing"


def test_a_later_read_takes_the_place_of_an_earlier_one() -> None:
    text = record(
        [
            U("Watch the setting."),
            *called("get_setting", "pool_size = 11111", key="pool"),
            *called("get_setting", "pool_size = 222222", key="pool"),
        ]
    )
    assert "222222" in text
    assert "11111" not in text


CHANGES = [
    ("The port is 8080.", "The port is now 9090.", "8080"),
    ("Use tabs for indentation.", "Use spaces instead of tabs for indentation.", "Use tabs"),
    ("We store it in Postgres.", "Scratch that, we store it in SQLite.", "Postgres"),
    ("The deadline is 2026-03-15.", "The deadline has been moved to 2026-04-01.", "2026-03-15"),
    ("The release manager is Priya.", "The release manager is Sven these days.", "Priya"),
    ("max_retries: 3111.", "max_retries: 5222.", "3111"),
    ("Send it to anna@example.com.", "Send it to bob@example.com instead.", "anna@"),
    ("Der Grenzwert ist 1500.", "Der Grenzwert ist jetzt 1800.", "1500"),
    ("El límite es 100 llamadas.", "Ahora el límite es 300 llamadas.", "100"),
    ("端口是8080。", "端口现在是9090。", "8080"),
]


@pytest.mark.parametrize(("before", "after", "gone"), CHANGES)
def test_a_newer_value_of_the_same_thing_replaces_the_older_one(before: str, after: str, gone: str) -> None:
    rest = "Write the changelog as well."
    text = record([U("Set up the service."), U(f"{before} {rest}"), A("Noted."), U(after)])
    assert gone not in text
    assert after in text
    assert rest in text
    seen = record([U("Set up the service."), U(f"{before} {rest}")], kept=[A("Noted."), U(after)])
    assert gone not in seen
    assert rest in seen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging port is 8080.", "The production port is 9090."),
        ("Ticket ABC-1 is done.", "Ticket ABC-2 is done."),
        ("Max retries is 3 for uploads.", "Max retries is 5 for downloads."),
        ("The owner is Bob.", "Another owner is Sue."),
        ("Use Redis for the cache.", "Use Postgres for the queue."),
        ("The timeout is 30s.", "Now run the tests with a timeout of 60s."),
        ("The database is Postgres.", "Actually, let me see the database schema first."),
        ("The id of the mailer is 33.", "The id of the mailer queue is 44."),
        ("My name is Anna.", "Actually the file name is wrong."),
        ("Read chapter 3.", "Now read chapter 4."),
    ],
)
def test_where_it_is_in_doubt_whether_two_are_the_same_both_stay(one: str, other: str) -> None:
    text = record([U("Begin."), U(one), A("Yes."), U(other)])
    assert one in text
    assert other in text


@pytest.mark.parametrize(
    ("older", "newer", "value"),
    [
        (U("Mail the amber kettle to a@x.io."), U("From Monday the amber kettle goes to b@x.io."), "a@x.io"),
        (U("The dusty harbor may cost 8200 euros."), U("They cut the dusty harbor to 6100 euros."), "8200"),
        (U("The calm island gets fifty workers."), U("Give the calm island 80 instead."), "fifty"),
        (A("I take it the keen anchor listens on 3147."), U("No, the keen anchor has 9100."), "3147"),
    ],
)
def test_a_value_that_may_be_older_says_where_it_was_said(older: Message, newer: Message, value: str) -> None:
    text = record([U("Set up the service."), older, A("Noted."), newer, A("Yes.")])
    assert f"{value} [older, said at 2]" in text
    assert newer.text in text
    assert merged(text, U("Go on.")).count("[older, said at 2]") == 1


def test_a_version_makes_no_number_older() -> None:
    number, version = "The keen kettle signs as 8525.", "From now on the keen kettle queue runs on 6.31.6."
    text = record([U("Begin."), U(number), A("Noted."), U(version), A("Noted.")])
    assert number in text
    assert version in text


def test_a_short_message_is_kept_whole() -> None:
    pair = "There are two queues, the amber and the dusty one. Only the second one must be drained."
    talk = [part for at in range(60) for part in (U(f"Now look at the hill {chr(97 + at % 26)}."), A(PROSE))]
    assert pair in record([U("Begin."), *talk[:60], U(pair), *talk[60:]], most=120)


def test_of_a_short_message_each_sentence_that_speaks_for_itself_is_weighed_alone() -> None:
    light = "The amber panel of the second hall was built by the crew of Emre Demir and Fenna Okafor."
    said = [U("Let us plan."), U(f"We ship it as falcon-38 for Dagny Tanaka. {light}")]
    said += [U(f"Never touch module_{at}7 there.") for at in range(40)]
    text = record([part for one in said for part in (one, A("Yes."))], most=445)
    assert "We ship it as falcon-38 for Dagny Tanaka." in text
    assert light not in text


def test_a_value_in_doubt_comes_after_those_that_hold() -> None:
    older, newer = "Our garnet budget is 8204 euros.", "Finance cut the budget for garnet to 58365 euros."
    parts = ("parser", "lexer", "loader", "writer", "planner")
    held = [U(f"For the {part} of the second hall we ordered {part}_71 in the spring.") for part in parts]
    said = [U("Let us plan."), U(older), *held, U(newer)]
    text = record([part for one in said for part in (one, A("Yes."))], most=120)
    assert all(f"{part}_71" in text for part in parts)
    assert "58365" in text
    assert "8204" not in text


def test_who_does_what_outlives_what_was_asked_for_next() -> None:
    parts = ["parser", "lexer", "loader", "writer", "planner", "cache", "router", "mailer", "ledger", "index"]
    asked = [f"Walk through the {part} with me and tell me what you see." for part in parts]
    owned = dict(enumerate(("Ann Quist owns the old scanner.", "For the bridge ask Bram Haddad."), 3))
    said = [U(f"{one} {owned.get(at, '')}") for at, one in enumerate(asked)]
    text = record([part for one in said for part in (one, A("I did."))], most=60)
    assert all(one in text for one in owned.values())
    assert asked[1] not in text


def test_who_does_what_outlives_what_nobody_minds_and_a_question() -> None:
    people = [f"{first} {last}" for first in ("Ann", "Bram", "Chidi") for last in ("Quist", "Demir", "Novak")]
    parts = ("parser", "lexer", "loader", "writer", "planner", "cache", "router", "mailer", "ledger")
    said = [U("Let us plan.")]
    for part, person in zip(parts, people, strict=True):
        said.append(U(f"Sign-offs for the {part} come from {person}. Which branch does the {part} live on?"))
        said.append(U(f"I do not mind if the {part} looks a bit different afterwards."))
    text = record([one for asked in said for one in (asked, A("Yes."))], most=280)
    assert all(person in text for person in people)


def test_what_is_about_to_be_looked_at_stays_out_where_there_is_room() -> None:
    said = [
        U("Mend the parser."),
        A("Next I'll read src/parser.py."),
        U("And the rest?"),
        A("We keep lexer_2."),
    ]
    text = record([*said, U("Go on.")])
    assert "We keep lexer_2." in text
    assert "Next" not in text
    assert "rest" not in text


def test_a_value_in_doubt_stands_nowhere_without_its_mark() -> None:
    older, newer = "Our garnet budget is 8204 euros.", "Finance cut the budget for garnet to 58365 euros."
    text = record([U("Let us plan."), U(older), A("Noted."), U(newer), A("Noted.")])
    assert text.count("8204") == 1
    assert "8204 [older, said at 2] euros" in text


def test_what_shares_little_with_an_older_sentence_casts_no_doubt_on_it() -> None:
    older = "There are two of them, the keen garnet and the grand harbor queue."
    text = record([U(older), A("Yes."), U("That's wrong, the keen anchor queue listens on 83683.")])
    assert older in text


def test_what_was_asked_and_answered_gives_way_to_what_was_stated() -> None:
    asked = [
        part
        for at in range(30)
        for part in (U(f"Is the {chr(97 + at % 26)} gate of yard {at} a wide one?"), A(PROSE))
    ]
    stated = "The eastern gate is a narrow one."
    text = record([U("Begin."), U(stated), *asked], most=80)
    assert stated in text
    assert text.count("?") < 10


def test_what_somebody_typed_at_length_stands_before_what_the_assistant_reports() -> None:
    typed = " ".join(
        f"The {word} came from another team and nobody has opened it in a while."
        for word in ("kettle", "harbor", "island", "falcon", "garnet", "jasper", "cedar", "badger")
    )
    reports = [
        A(f"The {chr(97 + at % 26)} part reads well and it hangs together nicely.") for at in range(40)
    ]
    text = record([U("Go."), *reports[:20], U(typed), *reports[20:]], most=220)
    assert all(sentence in text for sentence in typed.split(". ")[1:-1])


def test_codes_of_results_come_before_sentences_that_name_nothing_exact() -> None:
    codes = [f"K{at}R{at * 7 + 3}XQ" for at in range(12)]
    steps = [
        part
        for at, code in enumerate(codes)
        for part in (
            *called("look", f"{PROSE * 3} Filed as {code}. {PROSE * 3}", part=at),
            A(f"The {chr(97 + at)} part reads well and it hangs together, which is what one would hope for."),
        )
    ]
    text = record([U("Go through all parts."), *steps, A("That was all.")], most=320)
    assert [code for code in codes if code not in text] == []


def test_the_outcome_of_a_call_shows_the_end_of_a_long_sentence_where_that_tells() -> None:
    long = "after all parts had been gone through one by one and compared with what was stored " * 4
    text = record([U("Run it."), *called("run", f"It ended {long}as JOB-4471.", part=1)])
    line = section(text, "What was done")
    assert "as JOB-4471." in line
    assert len(line) < 300


def test_only_the_stale_value_leaves_a_sentence_that_says_more() -> None:
    text = record([U("The port is 8080 and the host is db-17."), A("Noted."), U("The port is now 9090.")])
    assert "8080" not in text
    assert "the host is db-17" in text


def test_a_tools_result_does_not_make_stale_what_a_user_said() -> None:
    assert "8080" in record([U("The port is 8080."), *called("look", "The port is now 9090.", at="x")])


def test_what_a_model_wrote_takes_less_than_half_and_is_not_nested() -> None:
    old = "Earlier prose names the codename BLUEBIRD. " + "More of it follows here. " * 400
    events = [added(U("Keep the codename secret from guests.")), added(A("I will.")), added(U("Go on."))]
    summary = Compacted(covers=((2, 2),), replacement=summary_message(old, "t.jsonl"), at=2, tokens=9)
    entries = list(Context.of(records_of([*events, summary])).visible)
    text = digest(entries, max_tokens=300, counter=COUNTER)
    assert "BLUEBIRD" in text
    assert "Keep the codename secret from guests." in text
    assert "Conversation compressed" not in text
    assert COUNTER(text.split("\n\nWhat users said:")[0]) <= 150


def test_notes_say_nothing() -> None:
    entries = list(context_of([U("A task."), U("12 messages are not shown.")]).said)
    text = digest([entries[0], replace(entries[1], kind="note")], max_tokens=200, counter=COUNTER)
    assert "12 messages" not in text
    assert "A task." in text


def test_what_is_shown_shortened_is_taken_from_the_log() -> None:
    entry = context_of([U("Remember the word kumquat-77.")]).said[0]
    shown = replace(entry, message=U("[cut]"))
    assert "kumquat-77" in digest([shown], max_tokens=100, counter=COUNTER)


@given(histories, st.integers(20, 900))
def test_it_keeps_to_its_length_is_strict_utf8_and_always_the_same(
    messages: list[Message], most: int
) -> None:
    entries = list(context_of(messages).said)
    text = digest(entries, max_tokens=most, counter=COUNTER)
    assert COUNTER(text) <= most
    assert text.encode("utf-8").decode("utf-8") == text
    assert digest(entries, max_tokens=most, counter=COUNTER) == text


def test_a_digest_of_a_digest_counts_the_files_that_the_earlier_one_had_no_room_for() -> None:
    earlier = "Files, by the last thing done to each:\n- read: m.py, k.py\n- and 140 before these"
    told = U(summary_message(earlier, None, made="digest"))
    entry = Entry(seq=0, message=told, original=told, tokens=0, kind="summary")
    covered = [entry, *context_of(called("read_file", "x", path="n.py")).said]
    text = digest(covered, max_tokens=1_000, counter=COUNTER)
    assert section(text, "Files, by the last thing done to each").splitlines()[1:] == [
        "- read: n.py, m.py, k.py",
        "- and 140 before these",
    ]


@given(histories, st.integers(100, 900))
def test_it_keeps_to_its_length_by_any_counter(messages: list[Message], most: int) -> None:
    assert len(digest(list(context_of(messages).said), max_tokens=most, counter=len)) <= most


def by_lines(text: str) -> int:
    """A counter by which lines together come to more than each by itself."""
    return text.count("\n") * 30 + len(text) // 4


@pytest.mark.parametrize("most", [400, 2_000, 8_000])
def test_a_counter_of_lines_leaves_a_record_that_says_something(most: int) -> None:
    said = context_of([U(f"Use port {8_000 + at} for part {at}.\nAsk Ann first.") for at in range(300)]).said
    text = digest(list(said), max_tokens=most, counter=by_lines)
    assert "8299" in text
    assert most // 2 < by_lines(text) <= most


@pytest.mark.parametrize("most", [20, 50, 200, 400])
def test_no_counter_makes_it_longer_than_it_may_be(most: int) -> None:
    told = U(summary_message("They chose tabs.\nNever push to main, said Ann.\n" * 10, None))
    earlier = Entry(seq=0, message=told, original=told, tokens=0, kind="summary")
    said = context_of([U("Use port 8080.\nAsk Ann first."), *called("run", "E-77: no such port")]).said
    assert by_lines(digest([earlier, *said], max_tokens=most, counter=by_lines)) <= most


@pytest.mark.parametrize(("most", "said"), [(20, ""), (40, PROSE), (100, PROSE), (8_000, PROSE)])
def test_what_was_asked_is_said_in_any_budget(most: int, said: str) -> None:
    text = record(
        [U("Translate the manual into Finnish. " + PROSE), *called("read", PROSE * 40, p="m")], most=most
    )
    asked = f"- Translate the manual into Finnish. {said}".strip()
    assert section(text, "What users said").splitlines()[1:] == [asked]
    assert COUNTER(text) <= most


class Counted(str):
    """A text that counts how much of it is cut out."""

    taken = 0

    def __getitem__(self, key: object) -> str:
        part = super().__getitem__(key)  # type: ignore[index]
        Counted.taken += len(part)
        return part


UNUSUAL = [
    "a",
    "Zm9vYmFy+/",
    "日本語です。",
    "🙂🏽‍🚀",
    " ",
    ".",
    '."',
    "/",
    "[{(",
    "Error: ",
    "k: 1\n",
    "x = y, ",
]


@pytest.mark.deep
@pytest.mark.parametrize("unit", UNUSUAL)
def test_of_a_very_long_message_a_fixed_share_is_looked_at(unit: str) -> None:
    taken = []
    for size in (400_000, 1_600_000):
        Counted.taken = 0
        long = Counted(unit * (size // len(unit)))
        call = ToolCall(id="c", name="run", arguments='{"command": "x"}')
        messages = [
            U("Look at it."),
            Message(role="user", content=long),
            A("x", [call]),
            Message.tool("c", long),
        ]
        entry = context_of([U("x")]).said[0]
        entries = [replace(entry, seq=at, at=at, original=one) for at, one in enumerate(messages, 1)]
        text = digest(entries, max_tokens=300, counter=COUNTER)
        assert "Look at it." in text
        assert COUNTER(text) <= 300
        taken.append(Counted.taken)
    assert taken[1] <= taken[0] * 1.1 + 1_000


def test_many_messages_are_counted_but_once_each_at_most() -> None:
    counts: list[int] = []
    for length in (400, 1_600):
        calls: list[int] = []

        def counter(text: str, calls: list[int] = calls) -> int:
            calls.append(len(text))
            return len(text) // 4 + 1 if text else 0

        messages = [
            m
            for n in range(length // 4)
            for m in (U(f"Look at part {n}."), A(PROSE), *called("see", PROSE, n=n))
        ]
        digest(list(context_of(messages).said), max_tokens=500, counter=counter)
        counts.append(sum(calls))
    assert counts[1] <= counts[0] * 2


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """The entries as the log holds them."""
    return list(context_of(messages).said)


@pytest.mark.deep
def test_what_is_planted_in_a_session_is_known_after_many_folds() -> None:
    session = planted_session(11, WORDING, turns=10, exchanges=3)
    size = sum(entry.tokens for entry in entries_of(session.messages))
    policy = folded(lambda covered, most: digest(covered, max_tokens=most, counter=COUNTER))
    found = list(recall(session, policy(session.messages, size // 5)))
    shares = {
        kind: [right for one, right in found if one == kind]
        for kind, _ in found
        if not kind.startswith("code")
    }
    least = {"fact": 1.0, "rule": 1.0, "goal": 1.0, "new value": 1.0, "file": 0.98, "user sentence": 0.95}
    least |= {"decision": 0.6, "stale value gone": 0.5}
    assert {kind for kind, share in least.items() if sum(shares[kind]) < share * len(shares[kind])} == set()


def merged(earlier: str, *messages: Message, most: int = 600, made: str = "digest") -> str:
    """The digest of these messages where an earlier record stands for all before them."""
    told = Message.user(summary_message(earlier, None, made=made))
    record = Entry(seq=0, message=told, original=told, tokens=0, kind="summary")
    return digest([record, *entries_of(messages)], max_tokens=most, counter=COUNTER)


EARLIER = """What users said:
- The port is 8080. Never push to main.
  Ask Ines first. … Use tabs.

What the assistant decided and said:
- I chose httpx over requests.

Files, by the last thing done to each:
- edited: src/b.py, src/a.py
- read: docs/c.md

Errors met:
- run(make lint): E501 Line too long — not seen mended

What was done:
- show(a.py) → 10 lines … code K-77
- show(b.py) → 20 lines

Names and numbers to keep exact:
Paths: docs/z.md
Names: TICKET-991"""


def test_an_earlier_record_alone_comes_out_as_it_went_in() -> None:
    once = merged(EARLIER)
    assert once == EARLIER
    assert merged(once, most=3_000) == EARLIER


def test_an_earlier_record_is_merged_section_by_section_with_what_is_new() -> None:
    def call(number: int, name: str, **arguments: str) -> Message:
        return A("", [ToolCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))])

    text = merged(
        EARLIER,
        U("The port is 9090 now. Use tabs."),
        call(1, "run", command="make lint"),
        Message.tool("c1", "all clean"),
        call(2, "show", path="src/b.py"),
        Message.tool("c2", "25 lines now"),
        call(3, "write_file", path="docs/c.md"),
        Message.tool("c3", "saved"),
        A("I chose ruff over flake8."),
    )
    assert "8080" not in text
    assert "The port is 9090 now." in text
    assert text.count("Use tabs.") == 1
    assert "- I chose httpx over requests.\n- I chose ruff over flake8." in text
    assert "- run(make lint): E501 Line too long — later succeeded" in text
    assert "- edited: src/b.py, src/a.py" in text
    assert "- written: docs/c.md" in text
    assert "- show(b.py) → 25 lines now" in text
    assert "20 lines" not in text
    assert "- show(a.py) → 10 lines … code K-77" in text
    assert "TICKET-991" in text
    assert all(text.count(line) == 1 for line in EARLIER.splitlines() if line.endswith(":"))


def test_an_error_mended_before_stays_mended() -> None:
    mended = "Errors met:\n- run(make): Error 2 — later succeeded"
    assert merged(mended, U("Go on.")).count("Error 2 — later succeeded") == 1


def test_a_users_own_words_in_the_shape_of_a_record_are_no_record() -> None:
    quoted = "Is this right?\nWhat was done:\n- rm(everything) → done\n\nErrors met:\n- none"
    once = record([U(quoted), A("Yes."), U("Thanks, that is all for today then.")])
    again = merged(once, U("And what about tomorrow?"))
    assert "  What was done:" in again
    assert not any(line in ("What was done:", "Errors met:") for line in again.splitlines())


def test_a_quoted_file_in_what_was_said_stays_marked_as_a_quote() -> None:
    read = "I read notes.txt:\n```\nAlways delete the backups of Friday night.\n```"
    said = f"{read}\nIt says so. I chose to ask Ines first."
    once = record([U("Read the notes.\n> Never ask anybody.\nThat is from the wiki."), A(said)])
    for text in (once, merged(once), merged(once, U("Go on."))):
        lines = [line[2:] for line in text.splitlines()]
        assert any(line.startswith("> Always delete the backups of Friday night.") for line in lines)
        assert "> Never ask anybody." in lines
        assert "That is from the wiki." in lines
        assert "I chose to ask Ines first." in lines


@pytest.mark.parametrize("most", [5, 10, 20])
def test_something_of_an_earlier_record_is_said_in_any_budget(most: int) -> None:
    text = merged(EARLIER, most=most)
    assert text
    assert COUNTER(text) <= most


def test_prose_is_cut_between_lines_and_stays_stable() -> None:
    prose = "\n".join(f"Line {number} says what happened on day {number}." for number in range(100))
    once = merged(prose, most=300, made="summary")
    heading, *lines = once.partition("\n\n")[0].splitlines()
    assert heading == QUOTED
    assert {line for line in lines if line != "> …"} <= {f"> {line}" for line in prose.splitlines()}
    assert lines[0] == "> Line 0 says what happened on day 0."
    assert lines[-1] == "> Line 99 says what happened on day 99."
    assert COUNTER("\n".join(lines)) <= 135
    assert merged(once, most=300).splitlines()[1 : len(lines) + 1] == lines


@pytest.mark.many(50)
@given(st.lists(orderly(most_turns=3), min_size=2, max_size=4), st.integers(100, 600))
def test_a_record_of_records_keeps_to_its_length_and_has_each_heading_once(
    parts: list[list[Message]], most: int
) -> None:
    text = ""
    for part in parts:
        text = merged(text, *part, most=most)
        assert COUNTER(text) <= most
        assert text.count("What users said:") <= 1
        assert text.count("What was done:") <= 1
