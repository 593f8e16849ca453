"""Words, queries and excerpts; the full-text index of a SQLite file, which searches keep up to date."""

import asyncio
import sqlite3
import unicodedata
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.errors import UsageError
from agentloop.events import Cleared, Event, ModelCalled, Noted, Restored, Unknown
from agentloop.messages import Message, ToolCall
from agentloop.stores import InMemoryStore, SQLiteStore
from agentloop.stores.sqlite.search import MOST_ASKED, MOST_ROWS
from agentloop.stores.words import MOST_WORD_CHARS, Query, excerpt, searchable, words_of
from tests.kit import added, texts
from tests.store_kit import said

odd = texts | st.text(st.sampled_from('ab \n"*日本e\u0301\u0327\ud800ไ한-_'), max_size=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("Read max_tokens=5!", ["read", "max", "tokens", "5"]),
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("Straße ΣΑΣ ﬁn", ["strasse", "σασ", "fin"]),
        ("東京 ﾃｽﾄ 𠮷", ["東", "京", "テ", "ス", "ト", "𠮷"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("회의록", ["회", "의", "록"]),
        ("a\0b\ud800c🙂d", ["a", "b", "c", "d"]),
        ("x" * 450, ["x" * 200, "x" * 200, "x" * 50]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(odd)
def test_words_of_words_are_the_same(text: str) -> None:
    words = words_of(text)
    assert words_of(" ".join(words)) == words
    assert all(0 < len(word) <= MOST_WORD_CHARS * 20 and word == word.casefold() for word in words)
    assert words == words_of(unicodedata.normalize("NFD", text))


@given(odd, st.data())
def test_a_text_matches_what_stands_in_it(text: str, data: st.DataObject) -> None:
    words = words_of(text)
    start = data.draw(st.integers(0, len(words)))
    part = words[start : data.draw(st.integers(start, len(words)))]
    if not part:
        return
    for query in (" ".join(part), f'"{" ".join(part)}"', " ".join(reversed(part)).upper()):
        assert Query.of(query).matches(words)
    assert not Query.of(" ".join([*part, "absent"])).matches(words)


@given(odd, odd, st.integers(3, 40))
def test_an_excerpt_is_a_part_of_the_text_on_one_line(text: str, other: str, chars: int) -> None:
    whole = f"{other} needle {text}"
    shown = excerpt(whole, Query.of("needle"), chars=chars)
    assert len(shown) <= chars + 2
    assert shown.strip("…") in " ".join(whole.split())
    if chars >= 20:
        assert "needle" in shown.casefold()


def test_what_can_be_found() -> None:
    broken = ToolCall(id="c", name="run", arguments='{"cmd": "ls')
    call = ToolCall(id="d", name="write", arguments='{"text": "a\\nb", "n": [1, true, null], "k": {}}')
    assert searchable(added(Message.assistant("I see", [broken, call]))) == (
        'I see\nrun\n{"cmd": "ls\nwrite\ntext\na\nb\nn\n1\nk'
    )
    nested: list[object] = []
    for _ in range(3_000):
        nested = [nested, "deep"]
    assert searchable(Noted(source="p", data={"k": nested})).count("deep") == 3_000
    silent: list[Event] = [Cleared(items=()), Restored(seq=1), ModelCalled(purpose="p", model="m")]
    assert {searchable(event) for event in [*silent, Unknown(kind="k", body='{"a": "b"}')]} == {""}


@pytest.mark.parametrize("text", ["", "?", None, 5])
def test_a_query_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^(nothing to search for|text must be)"):
        Query.of(text)


@pytest.mark.parametrize("store", [InMemoryStore, lambda: SQLiteStore("never.db")])
async def test_bad_arguments_are_refused(store: Callable[[], InMemoryStore | SQLiteStore]) -> None:
    opened = store()
    for call in (
        opened.search("word", most=0),
        opened.search("word", owner=""),
        opened.search("word", session_id=".."),
        opened.list(owner="a\n"),
        opened.read("s", most=-1),
    ):
        with pytest.raises(UsageError):
            await call
    await opened.close()


async def test_an_append_leaves_the_index_to_the_search(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", [said("one")], expect=0)
    with closing(sqlite3.connect(path)) as other:
        count = "SELECT count(*) FROM words_content"
        assert other.execute(count).fetchone() == (0,)
        assert len(await store.search("one")) == 1
        assert other.execute(count).fetchone() == (1,)
        await store.append("t", [said("two")], expect=0)
        await store.append("u", [said("two")], expect=0)
        assert len(await store.search("two", session_id="t")) == 1
        assert other.execute(count).fetchone() == (2,), "the session searched alone"
    await store.close()


async def test_writers_come_between_the_batches_of_a_search(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("long", [said(f"word {number}") for number in range(4 * MOST_ROWS)], expect=0)
    searching = asyncio.create_task(store.search("word", most=5_000))
    length = 0
    while not searching.done():
        length = await store.append("other", [said("a word")], expect=length)
    assert length >= 4, "appends while the index was brought up to date"
    found = await searching
    assert [each.record.seq for each in found if each.session_id == "long"] == list(
        range(4 * MOST_ROWS, 0, -1)
    )
    await store.close()


async def test_others_go_on_while_the_logs_in_memory_are_searched() -> None:
    store = InMemoryStore()
    await store.append("long", [said(f"word {number}") for number in range(1_000)], expect=0)
    searching = asyncio.create_task(store.search("word", most=5_000))
    length = 0
    while not searching.done():
        length = await store.append("other", [said("a word")], expect=length)
        await asyncio.sleep(0)
    assert length >= 2, "appends while the logs were read"
    assert [each.record.seq for each in await searching if each.session_id == "long"] == [
        *range(1_000, 0, -1)
    ]


@pytest.mark.deep
async def test_searches_of_several_stores_index_each_record_once(path: Path) -> None:
    stores = [SQLiteStore(path) for _ in range(4)]
    for name in ("a", "b", "c"):
        await stores[0].append(name, [said(f"word {number}") for number in range(300)], expect=0)
    found = await asyncio.gather(*(store.search("word", most=1_000) for store in stores))
    assert [len(each) for each in found] == [900] * 4
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM words_content").fetchone() == (900,)
    for store in stores:
        await store.close()


@pytest.mark.deep
async def test_a_record_of_megabytes_is_found_by_its_last_words(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", [said("hay " * 1_300_000 + "the needle"), said("needle")], expect=0)
    found = await store.search('"the needle"')
    shown = [
        (each.record.seq, excerpt(searchable(each.record.event), Query.of('"the needle"'))) for each in found
    ]
    assert shown == [(1, "…" + "hay " * 13 + "the needle")]
    await store.close()


async def test_a_deleted_session_leaves_no_words(path: Path) -> None:
    store = SQLiteStore(path)
    for name in ("a", "b"):
        await store.append(name, [said("secret"), said("more secret")], expect=0)
    await store.search("secret")
    await store.delete("b")
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM words_content").fetchone() == (2,)
        assert other.execute("SELECT count(*) FROM words WHERE words MATCH 'secret'").fetchone() == (2,)
    assert [each.session_id for each in await store.search("secret")] == ["a", "a"]
    await store.close()


async def test_a_query_of_many_words_is_one_query(path: Path) -> None:
    store = SQLiteStore(path)
    many = " ".join(f"w{number}" for number in range(3 * MOST_ASKED))
    await store.append("s", [said(many), said(many.replace(" w149", ""))], expect=0)
    for query in (many, f'"{many}"'):
        assert [each.record.seq for each in await store.search(query)] == [1]
    await store.close()


@given(st.lists(odd, min_size=1, max_size=6), odd)
async def test_both_stores_find_the_same(said_so: list[str], query: str) -> None:
    store, memory = SQLiteStore(DRAWN.path), InMemoryStore()
    await store.delete("s")
    events = [said(text) for text in said_so]
    for each in (store, memory):
        await each.append("s", events, expect=0)
    for text in (query, said_so[0]):
        if words_of(text):
            assert await store.search(text) == await memory.search(text)
    await store.close()


class DRAWN:
    """Where the examples of a property keep their file."""

    path = Path("unset")


@pytest.fixture(autouse=True)
def _a_file_for_drawn_examples(tmp_path: Path) -> None:
    DRAWN.path = tmp_path / "drawn.db"
