"""Sessions written to files and read back: whole or not at all, in pieces, whatever the files are like."""

import json
import math
import os
import resource
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agentloop.cli.files import whole_file
from agentloop.cli.sessions.command import Opened
from agentloop.cli.sessions.transfer import check_there
from agentloop.cli.settings import settings_for
from agentloop.codec import encode
from agentloop.errors import StoreError, UsageError
from agentloop.events import Described, Event, EventFilter, MessageRecord, Noted, Unknown
from agentloop.messages import Message
from agentloop.sessions import PAGE_RECORDS, read_pages
from agentloop.sessions.importing import parse
from agentloop.stores import SQLiteStore
from tests.cli_kit import agentloop, command, environment, started
from tests.store_kit import CountingStore

HI, HELLO = '{"role":"user","content":"hi"}', '{"role":"assistant","content":"hello"}'


def said(text: str, **extra: object) -> MessageRecord:
    message = Message.from_openai({"role": "user", "content": text, **extra})
    return MessageRecord(message=message, tokens=len(text))


async def store_in(folder: Path, events: Sequence[Event], name: str = "s") -> None:
    """A session in the database that calls from that folder use."""
    store = SQLiteStore(folder / "agentloop" / "sessions.db")
    await store.append(name, events, expect=0)
    await store.close()


def imported(data: bytes, folder: Path) -> list[str] | str:
    """The texts of what was imported, or the complaint; then nothing is stored."""
    (folder / "in").write_bytes(data)
    done = agentloop("sessions", "import", "in", "--session", "s", cwd=folder)
    if done.status:
        assert done.status == 2
        assert agentloop("sessions", "list", "--all", cwd=folder).out == ""
        return done.complaint()
    return [
        message["content"] for message in json.loads(agentloop("sessions", "export", "s", cwd=folder).out)
    ]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "nothing to import"),
        (b"\n\r\n \n", "nothing to import"),
        (b"\0" * 40, "line 1: this is no JSON"),
        (f"{HI}\n{HELLO}\n".encode() + b"\0" * 40, "line 3: this is no JSON"),
        (f"{HI}\n{HELLO}".encode().replace(b"hello", b"hel\0lo"), "line 2: this is no JSON"),
        (f"{HI}\n\x01\x02{HELLO}\n".encode(), "line 2: this is no JSON"),
        (f"{HI}{HELLO}\n".encode(), "line 1: this is no JSON"),
        (f"[{HI},{HELLO}".encode(), "this is no JSON list"),
        (f"{HI}\n{HELLO}\n".encode("utf-16"), "line 1 of 'in' is not in UTF-8"),
        (f"{HI}\n".encode() + HELLO.replace("e", "é").encode("latin-1"), "line 2 of 'in' is not in UTF-8"),
        (f"{HI}\n{HELLO}".encode(), ["hi", "hello"]),
        (f"\ufeff{HI}\r\n\r\n{HELLO}\r\n".encode(), ["hi", "hello"]),
        (f'{HI}\n{{"v":9,"kind":"dreamt","of":[1e999,NaN]}}\n{HELLO}'.encode(), ["hi", "hello"]),
        (f'{HI}\n{{"v":1,"kind":"noted","source":"x","time":NaN}}'.encode(), "line 2: NaN is no number"),
        (f'{HI}\n{{"v":1,"kind":"described","ttl_seconds":-5}}'.encode(), "line 2: ttl_seconds must be"),
        (f'{HI}\n{{"v":1,"kind":"described","ttl_seconds":NaN}}'.encode(), "line 2: NaN is no number"),
        (f'{HI}\n{{"v":1,"kind":"described","owner":"a\\nb"}}'.encode(), "line 2: bad owner"),
    ],
)
def test_an_import_is_whole_or_names_the_line(data: bytes, wanted: list[str] | str, tmp_path: Path) -> None:
    got = imported(data, tmp_path)
    if isinstance(wanted, str):
        assert isinstance(got, str)
        assert wanted in got
    else:
        assert got == wanted


def test_messages_without_content_are_named(tmp_path: Path) -> None:
    result = '{"role":"tool","tool_call_id":"1","content":""}'
    (tmp_path / "in").write_text(f'{HI}\n{{"role":"assistant"}}\n{{"role":"user","content":""}}\n{result}')
    done = agentloop("sessions", "import", "in", "--session", "s", cwd=tmp_path)
    assert done.out == "s\n"
    assert "without any content: position 2, position 3" in done.err


def test_a_last_line_cut_at_any_byte_is_refused_or_is_whole() -> None:
    whole = f'{HI}\n{{"role":"assistant","content":"é文😀"}}\n'.encode()
    for end in range(len(HI) + 1, len(whole) + 1):
        data = whole[:end]
        try:
            events = parse(data.decode(), count=lambda message: 1)
        except UnicodeDecodeError:
            continue  # the command refuses it before anything is parsed
        except UsageError as error:
            assert str(error).startswith("nothing imported: line 2: this is no JSON")  # noqa: PT017
        else:
            assert len(events) == (1 if end == len(HI) + 1 else 2)
            assert end in (len(HI) + 1, len(whole) - 1, len(whole))


@pytest.mark.deep
@pytest.mark.parametrize("letter", [b"\xe9", b"\xc3", b"\xed\xa0\x80"], ids=["latin", "cut", "surrogate"])
def test_standard_input_that_is_not_in_utf8_is_refused_with_its_line(letter: bytes, tmp_path: Path) -> None:
    done = subprocess.run(
        command("sessions", "import", "-", "--session", "s"),
        input=f"{HI}\n".encode() + HELLO.encode().replace(b"e", letter),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"line 2 of standard input is not in UTF-8" in done.stderr
    assert agentloop("sessions", "list", "--all", cwd=tmp_path).out == ""


def odd_events() -> list[Event]:
    """What a log may hold that JSON may not, and what only a newer version knows."""
    return [
        Described(title="Mine", folder="/elsewhere", owner="ann", ttl_seconds=1e9),
        said("hi \ud800\0", score=math.nan, best=[math.inf, {"worst": -math.inf}]),
        Noted(source="x", data={"n": math.nan}),
        Unknown(kind="dreamt", body='{"v":2, "kind":"dreamt", "a":1, "a":2, "b":1e999, "é":NaN}'),
    ]


@pytest.mark.deep
async def test_events_come_back_byte_for_byte_with_their_title_and_owner(tmp_path: Path) -> None:
    await store_in(tmp_path, odd_events())
    text = agentloop("sessions", "export", "s", "--format", "events", "-o", "log", cwd=tmp_path)
    assert text.status == 0, text.err
    assert agentloop("sessions", "import", "log", "--session", "t", cwd=tmp_path).status == 0
    again = agentloop("sessions", "export", "t", "--format", "events", cwd=tmp_path).out.splitlines()
    assert again[:-1] == (tmp_path / "log").read_text().splitlines()
    assert again[:-1] == [encode(event) for event in odd_events_of(again)]
    (info,) = [
        each
        for each in json.loads(agentloop("sessions", "list", "--json", cwd=tmp_path).out)
        if each["id"] == "t"
    ]
    assert (info["title"], info["owner"], info["folder"]) == ("Mine", "ann", str(tmp_path))
    assert info["expires"] == info["updated"] + 1e9


def odd_events_of(lines: Sequence[str]) -> list[Event]:
    return parse("\n".join(lines[:-1]), count=lambda message: 1)


@pytest.mark.deep
async def test_a_list_of_messages_is_strict_json_and_comes_back(tmp_path: Path) -> None:
    await store_in(tmp_path, odd_events())
    text = agentloop("sessions", "export", "s", cwd=tmp_path).out

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    messages = json.loads(text, parse_constant=refuse)
    assert messages == [
        {"role": "user", "content": "hi \ud800\0", "score": None, "best": [None, {"worst": None}]}
    ]
    assert text == json.dumps(messages, indent=2) + "\n"
    (tmp_path / "list.json").write_text(text)
    assert agentloop("sessions", "import", "list.json", "--session", "t", cwd=tmp_path).status == 0
    assert agentloop("sessions", "export", "t", cwd=tmp_path).out == text


def records_read(store: CountingStore) -> list[int]:
    return [count for verb, count in store.moved if verb == "read"]


async def opened_on(count: int, tmp_path: Path) -> tuple[Opened, CountingStore]:
    store = CountingStore()
    await store.append("s", [said(f"number {n}") for n in range(count)], expect=0)
    return Opened(store=store, settings=settings_for({}, {"AGENTLOOP_HOME": str(tmp_path)})), store


@pytest.mark.parametrize("shape", ["events", "markdown", "openai"])
async def test_a_long_log_is_read_page_by_page_and_written_whole(shape: str, tmp_path: Path) -> None:
    count = 3 * PAGE_RECORDS + 1
    opened, store = await opened_on(count, tmp_path)
    info = await store.info("s")
    assert info
    text = "".join([piece async for piece in opened.sessions.texts(info, shape)])
    assert records_read(store) == [PAGE_RECORDS] * 3 + [1]
    places = [text.index(f"number {n}") for n in range(count)]
    assert places == sorted(places)
    if shape == "openai":
        assert [message["content"] for message in json.loads(text)] == [f"number {n}" for n in range(count)]
        assert text == json.dumps(json.loads(text), indent=2) + "\n"
    if shape == "events":
        assert len(parse(text, count=lambda message: 1)) == count


async def test_records_that_come_meanwhile_do_not_make_an_export_endless(tmp_path: Path) -> None:
    opened, store = await opened_on(PAGE_RECORDS + 1, tmp_path)
    info = await store.info("s")
    assert info
    read = 0
    async for page in read_pages(opened.store, info):
        read += len(page)
        await store.append("s", [said("more")] * 2, expect=info.length + 2 * (len(records_read(store)) - 1))
    assert read == PAGE_RECORDS + 1


async def test_a_session_that_goes_meanwhile_is_no_shorter_one(tmp_path: Path) -> None:
    opened, store = await opened_on(PAGE_RECORDS + 1, tmp_path)
    info = await store.info("s")
    assert info
    read = read_pages(opened.store, info)
    await anext(read)
    await store.delete("s")
    with pytest.raises(StoreError, match=f"'s' ends at record {PAGE_RECORDS} of {PAGE_RECORDS + 1}"):
        await anext(read)


@pytest.mark.deep
@pytest.mark.parametrize("said", [HI, f"[{HI},{HELLO}]"])
def test_imported_messages_are_called_by_their_first_words(said: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(said)
    made = agentloop("sessions", "import", "in", cwd=tmp_path).out.strip()
    events = agentloop("sessions", "export", made, "--format", "events", "-o", "out", cwd=tmp_path)
    assert events.status == 0
    agentloop("sessions", "rename", made, "Mine", cwd=tmp_path)
    agentloop("sessions", "export", made, "--format", "events", "-o", "mine", cwd=tmp_path)
    agentloop("sessions", "import", "mine", "--session", "again", cwd=tmp_path)
    listed = json.loads(agentloop("sessions", "list", "--all", "--json", cwd=tmp_path).out)
    assert {each["id"]: each["title"] for each in listed} == {made: "Mine", "again": "Mine"}
    assert '"title":"hi"' in (tmp_path / "out").read_text()
    assert "name one of them by its id" in agentloop("sessions", "show", "Mine", cwd=tmp_path).complaint()


async def test_what_a_filter_names_is_looked_for_on_every_page(tmp_path: Path) -> None:
    opened, store = await opened_on(PAGE_RECORDS, tmp_path)
    await store.append(
        "s", [MessageRecord(message=Message.user("x"), tokens=1, branch="late")], expect=PAGE_RECORDS
    )
    info = await store.info("s")
    assert info
    read = partial(read_pages, opened.store, info)
    await check_there(EventFilter(branch="late"), read, "events")
    with pytest.raises(UsageError, match=r"--branch: the session has no 'lat'; it has 'late', 'main'$"):
        await check_there(EventFilter(branch="lat"), read, "events")


@pytest.mark.deep
async def test_a_file_whose_export_fails_half_way_is_as_it_was(tmp_path: Path) -> None:
    await store_in(tmp_path, [said(f"number {n}") for n in range(PAGE_RECORDS + 5)])
    with closing(sqlite3.connect(tmp_path / "agentloop" / "sessions.db")) as connection, connection:
        connection.execute("UPDATE events SET body = 'damaged' WHERE seq = ?", (PAGE_RECORDS + 3,))
    (tmp_path / "old").write_text("old")
    for name in ("old", "new"):
        done = agentloop("sessions", "export", "s", "--format", "events", "-o", name, cwd=tmp_path)
        assert done.status == 1
        assert f"record {PAGE_RECORDS + 3}" in done.complaint()
    assert (tmp_path / "old").read_text() == "old"
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".agentloop*"))


@pytest.mark.parametrize("error", [StoreError("the network is down"), ValueError("no number"), KeyError("k")])
def test_a_fault_of_who_writes_a_file_is_no_fault_of_the_file(error: Exception, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(type(error)) as caught, whole_file(path) as write:
        write("half")
        raise error
    assert caught.value is error
    assert not path.exists()
    assert not list(tmp_path.glob(".agentloop*"))


@pytest.mark.parametrize("chars", [5, 100_000])
def test_a_file_that_takes_no_more_is_told_by_its_name(chars: int, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        with (
            pytest.raises(UsageError, match=r"out' cannot be written: File too large"),
            whole_file(tmp_path / "out") as write,
        ):
            write("x" * chars)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_where_a_file_cannot_be_put_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none" / "out", tmp_path / "file" / "out", tmp_path):
        with pytest.raises(UsageError, match="cannot be written: "), whole_file(path):
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.deep
@pytest.mark.parametrize("shape", ["events", "markdown", "openai"])
async def test_a_reader_that_has_read_enough_ends_an_export_quietly(shape: str, tmp_path: Path) -> None:
    await store_in(tmp_path, [said("x" * 1_000) for _ in range(2 * PAGE_RECORDS)])
    reading, writing = os.pipe()
    with started("sessions", "export", "s", "--format", shape, cwd=tmp_path, stdout=writing) as process:
        os.close(writing)
        assert os.read(reading, 100)
        os.close(reading)
        assert process.stderr.read() == ""
        assert process.wait(120) == 130
