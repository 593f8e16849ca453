"""Results as text: any value, any length, any name."""

import collections
import datetime
import decimal
import enum
import io
import json
import os
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentloop._plumbing.to_text import as_text, error_text
from agentloop.tools import spill


class Colour(enum.Enum):
    RED = "red"
    BOTH = ("red", "blue")


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Node:
    name: str
    next: "Node | None" = None


@dataclass(slots=True)
class Unset:
    value: int = field(init=False)


class Pair(NamedTuple):
    left: int
    right: object


class Model(BaseModel):
    name: str
    when: datetime.date = datetime.date(2025, 1, 2)
    more: Any = None


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)

    def __str__(self) -> str:
        raise LookupError

    __repr__ = __hash__ = __str__  # type: ignore[assignment]


class NoText:
    def __repr__(self) -> str:
        raise ValueError("no repr")


class WrongText:
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class LoudText(str):
    def __str__(self) -> str:
        raise ValueError


class LoudNumber(float):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


class Bag(collections.UserList[int]):
    pass


def failing() -> Iterator[int]:
    yield 1
    raise ValueError("half way")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\ud800\0 b", "a\ud800\0 b"),
        ("", ""),
        (LoudText("loud"), "loud"),
        (None, "(no result)"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (LoudNumber(1.5), "1.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (2 + 1j, "(2+1j)"),
        (decimal.Decimal("1.10"), "1.10"),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"x"), "x"),
        (memoryview(b"x"), "x"),
        (b"\xff\x00", "[2 bytes that are no text; base64: /wA=]"),
        (b"\xff" * 1000, "[1,000 bytes that are no text; base64 of the first 256: //////"),
        ({"ä": [1, None, "é"]}, '{"ä": [1, null, "é"]}'),
        ((1, 2), "[1, 2]"),
        ({3, 1, 2}, "[1, 2, 3]"),
        (frozenset({"b", "a"}), '["a", "b"]'),
        (range(3), "[0, 1, 2]"),
        (collections.deque([1]), "[1]"),
        (Bag([1]), "[1]"),
        ({1: 2}.values(), "[2]"),
        ({1: 2}.keys(), "[1]"),
        ({1: 2}.items(), "[[1, 2]]"),
        ({1: "a", None: "b", 2.5: "c"}, '{"1": "a", "null": "b", "2.5": "c"}'),
        ({(1, 2): "c"}, '{"[1, 2]": "c"}'),
        (iter([{datetime.date(2025, 1, 2): Pair(1, 2)}]), '[{"2025-01-02": {"left": 1, "right": 2}}]'),
        ([{Colour.RED: uuid.UUID(int=1)}], '[{"red": "00000000-0000-0000-0000-000000000001"}]'),
        (
            Model(name="x", more={Colour.RED: [Pair(1, {2})]}),
            '{"name": "x", "when": "2025-01-02", "more": {"red"',
        ),
        (collections.Counter("aab"), '{"a": 2, "b": 1}'),
        (Node("a", Node("b")), '{"name": "a", "next": {"name": "b", "next": null}}'),
        (Pair(1, {2}), '{"left": 1, "right": [2]}'),
        (Model(name="x"), '{"name": "x", "when": "2025-01-02", "more": null}'),
        (Model(name="x", more=NoText()), '{"name": "x", "when": "2025-01-02", "more": "[NoText that cannot'),
        ([Model(name="x", more=Colour.RED)], '[{"name": "x", "when": "2025-01-02", "more": "red"}]'),
        (datetime.datetime(2025, 1, 2, 3, 4, tzinfo=datetime.UTC), "2025-01-02T03:04:00+00:00"),
        ({"d": datetime.date(2025, 1, 2), "t": datetime.time(3, 4)}, '{"d": "2025-01-02", "t": "03:04:00"}'),
        (datetime.timedelta(hours=1), "1:00:00"),
        (PurePosixPath("a/b"), "a/b"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Colour.BOTH, "BOTH"),
        (Level.HIGH, "3"),
        (Colour, "<enum 'Colour'>"),
        (Node, f"<class '{__name__}.Node'>"),
        (ValueError("bad"), "ValueError: bad"),
        ([ValueError()], '["ValueError (without a text)"]'),
        ((n * n for n in range(3)), "[0, 1, 4]"),
        (failing(), '[1, "[the rest failed: ValueError: half way]"]'),
        (io.StringIO("a\nb\n"), '["a\\n", "b\\n"]'),
        (NoText(), "[NoText that cannot be shown: ValueError: no repr]"),
        ([1, NoText()], '[1, "[NoText that cannot be shown: ValueError: no repr]"]'),
        (WrongText(), "[WrongText that cannot be shown: TypeError: __str__ returned non-string (type int)]"),
        (Hostile(), "[Hostile that cannot be shown: LookupError: __class__]"),
        (Unset(), "[Unset that cannot be shown: AttributeError: "),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_is_a_text(value: object, text: str) -> None:
    assert as_text(value).startswith(text)
    assert type(as_text(value)) is str


def test_what_refers_to_itself_is_named_once() -> None:
    values: list[Any] = [1]
    values.append(values)
    assert as_text(values) == "[1, [...]]"
    mapping: dict[str, Any] = {}
    mapping["self"] = [mapping]
    assert as_text(mapping) == "{'self': [{...}]}"
    node = Node("a")
    node.next = node
    assert as_text(node) == "{'name': 'a', 'next': Node(name='a', next=...)}"
    model = Model(name="m")
    model.more = [model]
    assert as_text(model).startswith("{'name': 'm', 'when': datetime.date(2025, 1, 2), 'more': [{'name': 'm'")
    twice = [3]
    assert as_text([twice, twice]) == "[[3], [3]]"


@pytest.mark.deep
def test_what_is_too_deep_or_endless_is_cut() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert as_text(deep).startswith("[list that cannot be shown: RecursionError: ")
    assert as_text(iter(int, 1)).endswith('0, "[more values left out]"]')
    assert as_text(range(10**12)).endswith('499999, "[more values left out]"]')
    while deep:
        deep = deep[0]


def test_large_numbers_are_texts() -> None:
    assert as_text([10**40]) == f"[{10**40}]"
    assert as_text(-(2**20_000)).startswith("[int that cannot be shown: ValueError: ")


def test_errors_are_named() -> None:
    group = ExceptionGroup("all", [ValueError("a"), ExceptionGroup("inner", [KeyError("k")])])
    assert error_text(group) == (
        "ExceptionGroup: all (2 sub-exceptions): ValueError: a; "
        "ExceptionGroup: inner (1 sub-exception): KeyError: 'k'"
    )
    assert error_text(KeyboardInterrupt()) == "KeyboardInterrupt (without a text)"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers()
    | st.builds(NoText)
    | st.builds(Hostile)
    | st.builds(Unset)
    | st.sampled_from([Colour.RED, Level.HIGH, ValueError()])
)
KEYS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(NoText)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(iter)
        | st.builds(Pair, left=st.integers(), right=inner)
        | st.builds(Model, name=st.text(), more=inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_as_text_never_raises(value: object) -> None:
    assert type(as_text(value)) is str


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=4) | st.dictionaries(st.text(), JSON, max_size=4))
def test_json_values_come_back_from_their_text(value: object) -> None:
    assert json.loads(as_text(value)) == value


# Spilling


def test_the_whole_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = spill(tmp_path / "deep" / "folder", "call_1", "one\r\ntwo\n")
    finally:
        os.umask(before)
    assert path == tmp_path / "deep" / "folder" / "result_call_1.txt"
    assert path.read_bytes() == b"one\r\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../../etc/x", "result_______etc_x.txt"),
        ("", "result_unnamed.txt"),
        ("a\0b\nc", "result_a_b_c.txt"),
        ("x" * 300, f"result_{'x' * 200}.txt"),
        ("ü.é", "result____.txt"),
    ],
)
def test_l18_no_name_leads_out_of_the_folder(tmp_path: Path, name: str, file: str) -> None:
    path = spill(tmp_path, name, "x")
    assert path == tmp_path / file
    assert [each.name for each in tmp_path.iterdir()] == [file]


def test_nothing_is_overwritten_and_no_link_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("keep")
    (tmp_path / "result_a-2.txt").symlink_to(secret)
    (tmp_path / "result_a-3.txt").symlink_to(tmp_path / "nowhere")
    paths = [spill(tmp_path, "a", f"text {number}") for number in range(120)]
    assert [path.name for path in paths[:2]] == ["result_a.txt", "result_a-4.txt"]
    assert len(set(paths)) == 120
    assert [path.read_text() for path in paths] == [f"text {number}" for number in range(120)]
    assert secret.read_text() == "keep"
    assert not (tmp_path / "nowhere").exists()


def test_lone_surrogates_are_written_as_escapes(tmp_path: Path) -> None:
    assert spill(tmp_path, "s", "a\ud800é\udcff").read_text("utf-8") == "a\\ud800é\\udcff"


def test_what_could_not_be_written_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        spill(tmp_path, "x", "text")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_none_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        spill(tmp_path / "file", "x", "text")


def test_l18_no_linked_folder_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "linked").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        spill(tmp_path / "linked", "x", "text")
    assert list(outside.iterdir()) == []


@given(name=st.text(), text=st.text(alphabet=st.characters(exclude_categories=()), max_size=50))
def test_any_name_and_any_text(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    folder = tmp_path_factory.mktemp("spill")
    path = spill(folder, name, text)
    assert path.parent == folder
    assert path.read_bytes() == text.encode("utf-8", "backslashreplace")
