"""A digest of a log that has grown costs what is new, and is the same as one made from scratch."""

import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.compaction.digest import Findings, digest
from agentloop.compaction.digest.fold import MOST_KEPT_CHARS, Folds
from agentloop.context import Entry
from agentloop.messages import Message, ToolCall
from tests.kit import COUNTER, context_of, histories

U, A = Message.user, Message.assistant

SENTENCES = [
    "The port is 8080.",
    "the PORT is 8080.",
    "Actually, the port is now 9090.",
    "Change the port from 9090 to 8080.",
    "Use tabs in src/app.py.",
    "Use spaces instead of tabs.",
    "We lowered the limit of uploads to 30 MB.",
    "The limit of uploads is 50 MB.",
    "The limit of uploads is 60 MB, the limit of uploads is 70 MB.",
    "Ann Quist owns the release branch rel-4.",
    "Never push to main.",
    "Go on.",
    "What is the limit?",
    "```\nport = 8080\n```",
    "Ticket: ABC-123",
]
RESULTS = ["port = 8080\nlimit = 30 MB in src/app.py", "12 lines, CODE-77", "KeyError: 'port'", "ok", ""]

texts = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=3).map(" ".join)
calls = st.builds(
    ToolCall,
    id=st.sampled_from(["a", "b", "c"]),
    name=st.sampled_from(["read_file", "run"]),
    arguments=st.sampled_from(['{"path": "src/app.py"}', '{"command": "pytest tests"}', "{}", "{"]),
)
messages = st.one_of(
    st.builds(U, texts),
    st.builds(A, texts),
    st.builds(A, texts, st.lists(calls, min_size=1, max_size=2)),
    st.builds(Message.tool, st.sampled_from(["a", "b", "c"]), st.sampled_from(RESULTS)),
)
logs = st.lists(messages, min_size=1, max_size=12) | histories


@pytest.mark.many(400)
@given(st.data())
def test_a_digest_made_in_pieces_is_the_one_made_from_scratch(data: st.DataObject) -> None:
    kept = Folds()
    log: list[Message] = []
    for _ in range(data.draw(st.integers(1, 5), label="digests")):
        log = log[: data.draw(st.integers(0, len(log)) | st.just(len(log)), label="taken up at")]
        log = log + data.draw(logs, label="what is new")
        entries = kept_results(context_of(log).said)
        covered = data.draw(st.integers(0, len(entries)), label="covered")
        parts = entries[:covered], entries[data.draw(st.integers(0, len(entries)), label="in sight from") :]
        most = data.draw(st.sampled_from([60, 200, 1_000]), label="tokens")
        again = Findings.of(*parts, folds=kept).record(most, COUNTER)
        assert again == Findings.of(*parts, folds=Folds()).record(most, COUNTER)


def kept_results(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, some of which are to be kept whatever comes."""
    return [replace(entry, keep="CODE-77" in entry.original.text) for entry in entries]


class Looked(str):
    """A text that tells when it is taken apart, and lives no longer than what holds it."""

    times = 0

    def splitlines(self, keepends: bool = False) -> list[str]:
        Looked.times += 1
        return super().splitlines(keepends)


def looked_at(count: int) -> list[Entry]:
    """So many messages of a user."""
    said = [Message(role="user", content=Looked(f"Part {at} is called P-{at:04}.")) for at in range(count)]
    return list(context_of(said).said)


def test_l14_a_digest_with_more_takes_apart_what_is_new_alone() -> None:
    entries = looked_at(400)
    folds = Folds()
    Findings.of(entries[:390], (), folds)
    Looked.times = 0
    Findings.of(entries, (), folds)
    assert Looked.times == 10


def test_threads_that_ask_for_the_same_log_at_once_get_the_same() -> None:
    entries = looked_at(60)
    folds = Folds()

    def record_of(count: int) -> str:
        return Findings.of(entries[:count], entries[count:], folds).record(400, COUNTER)

    counts = [20, 40, 60] * 6
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(record_of, counts))
    assert found == [
        Findings.of(entries[:count], entries[count:], Folds()).record(400, COUNTER) for count in counts
    ]


def test_of_many_logs_the_last_ones_are_kept() -> None:
    folds = Folds()
    seen = []
    for number in range(3):
        long = Looked(f"Log {number}. " + " " * (MOST_KEPT_CHARS // 2))
        entries = list(context_of([Message(role="user", content="x")]).said)
        entries = [replace(entries[0], original=Message(role="user", content=long))]
        Findings.of(entries, (), folds)
        seen.append(weakref.ref(long))
        del long, entries
    gc.collect()
    assert [one() is None for one in seen] == [True, True, False]


def test_what_was_said_again_in_sight_stands_where_it_was_said_before() -> None:
    entries = list(context_of([U("Never push to main."), A("Noted."), U("Never push to main.")]).said)
    assert "Never push to main." in digest(entries[:2], max_tokens=200, counter=COUNTER, kept=entries[2:])
