"""A task board: each task is claimed by one alone, whatever dies, and what is wrong is told in one line."""

import asyncio
import fcntl
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Compaction, SyncRunner, Task, TaskBoard, stores
from agentloop._plumbing.processes import this_process
from agentloop.errors import DamagedError, StoreError, UsageError
from agentloop.events import Noted
from agentloop.models import ModelRequest
from agentloop.prompts import KEPT_IN_SIGHT
from agentloop.stores import InMemoryStore, SQLiteStore
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel, calls
from agentloop.toolsets import task_board
from tests.cli_kit import program

ROOT = Path(__file__).parent.parent
PLACES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda path: path / "board",
    "memory": lambda path: InMemoryStore(),
    "sqlite": lambda path: SQLiteStore(path / "board.db"),
}


@pytest.fixture(params=PLACES)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> TaskBoard:
    """A board of each kind."""
    return TaskBoard(PLACES[request.param](tmp_path), owner="ada")


def results(request: ModelRequest) -> list[str]:
    """The results in a request."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


def process(text: str, *arguments: object, cwd: Path) -> AbstractContextManager[Any]:
    """Another process that runs this text."""
    return program(text, *arguments, cwd=cwd, stdin=subprocess.PIPE)


async def test_a_task_is_free_once_what_comes_first_is_done(board: TaskBoard) -> None:
    dig = await board.add("Dig", description="By the wall.")
    plant = await board.add("Plant", blocked_by=[dig.id])
    water = await board.add("Water", blocked_by=[dig.id, plant.id])
    assert [task.id for task in (dig, plant, water)] == [1, 2, 3]
    bob = board.of("bob")
    assert (await board.claim() or dig).subject == "Dig"
    assert await bob.claim() is None
    with pytest.raises(UsageError, match=r"^task 3 is blocked by 1, 2: that comes first$"):
        await bob.claim(3)
    await board.complete(1, "deep enough")
    assert (await bob.claim() or dig).subject == "Plant"
    assert await board.claim() is None
    await bob.complete(2)
    assert (await board.claim() or dig).subject == "Water"
    seen = [(task.status, task.owner, task.result) for task in await board.tasks()]
    assert seen == [
        ("completed", "ada", "deep enough"),
        ("completed", "bob", ""),
        ("in_progress", "ada", ""),
    ]


async def test_a_claim_stands_until_it_is_given_back_and_one_is_enough(board: TaskBoard) -> None:
    for subject in ("Dig", "Plant"):
        await board.add(subject)
    first = await board.claim()
    assert first
    assert await board.claim() == first == await board.claim(1)
    for refused, words in (
        (board.claim(2), "ada has task 1 already: complete it or give it back first"),
        (board.of("bob").claim(1), "task 1 is ada's, and in_progress"),
        (board.of("bob").give_back(1), "task 1 is not bob's: it is ada's"),
        (board.of("bob").complete(1), "task 1 is not bob's: it is ada's"),
        (board.complete(2), "task 2 is not ada's: claim it first"),
        (board.block(1, [2]), "task 1 is in_progress: only what nobody has begun can be made to wait"),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(words)}$"):
            await refused
    assert await board.give_back_left() == ()
    assert (await board.give_back(1)).owner is None
    assert (await board.give_back(1)).status == "pending"
    assert (await board.of("bob").claim() or first).owner == "bob"
    done = await board.of("bob").complete(1, "well")
    assert await board.of("bob").complete(1, "badly") == done
    with pytest.raises(UsageError, match="is completed: add another one"):
        await board.of("bob").give_back(1)


async def test_circles_and_what_is_not_there_are_refused_in_one_line(board: TaskBoard) -> None:
    for refused, words in (
        (board.claim(1), "there is no task 1: the board is empty"),
        (board.add("Dig", blocked_by=[1]), "tasks would wait for each other in a circle: 1 for 1"),
        (board.add("Dig", blocked_by=[7]), "task 1 is blocked by 7, and there is no such task"),
        (board.add(" "), "subject must be one line of 1 to 300 characters, not ' '"),
        (board.add("a\nb"), "subject must be one line"),
        (board.add("x" * 301), "subject must be one line"),
        (board.add("\ud800"), "subject must be a text"),
        (board.add("Dig", description="x" * 10_001), "description must be a text of 0 to 10,000"),
        (board.add("Dig", blocked_by="12"), "blocked_by must be a list of ids of tasks, not '12'"),  # type: ignore[arg-type]
        (board.add("Dig", blocked_by=[True]), "blocked_by must be ids of tasks"),
        (board.add("Dig", blocked_by=[[1]]), "blocked_by must be ids of tasks"),  # type: ignore[list-item]
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(words)}"):
            await refused
    for subject, by in (("Dig", ()), ("Plant", (1,)), ("Water", (2,))):
        await board.add(subject, blocked_by=by)
    with pytest.raises(UsageError, match=r"^tasks would wait for each other in a circle: .*1 for 3"):
        await board.block(1, [3])
    for bad in (0, 4):
        with pytest.raises(UsageError, match=r"^there is no task .*: there are 1 to 3$"):
            await board.complete(bad)
    for bad in (True, "1", None):
        with pytest.raises(UsageError, match=r"^a task is named by its number, such as 1, not by "):
            await board.complete(bad)  # type: ignore[arg-type]
    assert [task.blocked_by for task in await board.tasks()] == [(), (1,), (2,)]
    assert (await board.block(3, [1])).blocked_by == (2, 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"place": 5, "owner": "ada"}, "place must be a folder or a store of sessions, not 5"),
        ({"place": "", "owner": "ada"}, "place must be a folder or a store of sessions, not ''"),
        ({"place": SQLiteStore, "owner": "ada"}, "place must be a folder or a store"),
        (
            {"place": "sqlite:///x.db", "owner": "ada"},
            "place 'sqlite:///x.db' is a URL: give open_store(URL)",
        ),
        ({"place": __file__, "owner": "ada"}, "is no folder: name one"),
        ({"place": "board", "owner": ""}, "owner must be a name of 1 to 64"),
        ({"place": "board", "owner": None}, "owner must be a name"),
        ({"place": "board", "owner": "a b"}, "owner must be a name"),
        ({"place": "board", "owner": "ada", "name": "../x"}, "name must be a name"),
    ],
)
def test_a_board_that_is_none_is_refused_at_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        TaskBoard(**given)


def test_a_board_without_an_owner_says_so() -> None:
    with pytest.raises(TypeError, match="'owner'"):
        TaskBoard("board")  # type: ignore[call-arg]


async def test_a_task_is_a_private_file_that_people_read(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "deep" / "board", owner="ada")
    assert await board.tasks() == ()
    await board.add("Dig for Zoë")
    await board.claim()
    await TaskBoard(tmp_path / "deep" / "board", owner="ada", name="house").add("Sweep")
    path = tmp_path / "deep" / "board" / "task_1.json"
    data = json.loads(path.read_text("utf-8"))
    assert "Dig for Zoë" in path.read_text("utf-8")
    assert (data["status"], data["owner"], data["process"]["pid"]) == ("in_progress", "ada", os.getpid())
    assert [task.subject for task in await board.tasks()] == ["Dig for Zoë"]
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == [".house.lock", ".task.lock", "house_1.json", "task_1.json"]
    assert {(path.parent / name).stat().st_mode & 0o777 for name in names} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ('{"id": 1, "subject": "Dig', "Unterminated string"),
        ("[]", "is no dict"),
        ("{}", "'id' is missing"),
        ('{"id": 2, "subject": "Dig"}', "its id is 2"),
        ('{"id": 1, "subject": "Dig", "status": "lost"}', "none of pending"),
        ('{"id": 1, "subject": "Dig", "status": "completed"}', "must have an owner"),
        ('{"id": 1, "subject": "Dig", "process": {"place": 1, "pid": 1, "started": ""}}', "is no str"),
        ('{"id": 1, "subject": "Dig", "blocked_by": [9]}', "there is no such task"),
        ('{"id": 1, "subject": "Dig", "blocked_by": [1]}', "in a circle: 1 for 1"),
        (" " * 200_000, "longer than"),
    ],
)
async def test_a_file_that_is_no_task_is_named_and_left(tmp_path: Path, text: str, words: str) -> None:
    board = TaskBoard(tmp_path, owner="ada")
    await board.add("Dig")
    (tmp_path / "task_1.json").write_text(text)
    for refused in (board.tasks(), board.claim(), board.add("Plant")):
        with pytest.raises(DamagedError, match=re.escape(words)) as caught:
            await refused
        assert "\n" not in str(caught.value)
        assert str(tmp_path) in str(caught.value)
    assert (tmp_path / "task_1.json").read_text() == text


async def test_a_file_of_a_newer_version_is_read_and_no_link_is_followed(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "board", owner="ada")
    await board.add("Dig")
    path = tmp_path / "board" / "task_1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}))
    assert [task.subject for task in await board.tasks()] == ["Dig"]
    path.replace(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(DamagedError, match="it is no file"):
        await board.claim()
    (tmp_path / "link").symlink_to(tmp_path / "board")
    with pytest.raises(StoreError, match="symbolic link"):
        await TaskBoard(tmp_path / "link", owner="ada").add("Dig")


async def test_who_reads_while_others_add_sees_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = TaskBoard(tmp_path, owner="ada")
    await board.add("Dig")
    listed = Path.iterdir

    async def other() -> None:
        await board.block(1, [(await board.add("Measure")).id])

    def iterdir(folder: Path) -> Iterator[Path]:
        found = [*listed(folder)]
        monkeypatch.undo()
        asyncio.run(other())
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert [task.blocked_by for task in await board.tasks()] == [(2,), ()]


MANY = """
import asyncio, sys
from agentloop import TaskBoard
from agentloop.stores import open_store

async def main():
    place, owner = sys.argv[1:]
    board = TaskBoard(open_store(place) if "://" in place else place, owner=owner)
    sys.stdin.readline()
    while task := await board.claim():
        print(task.id, flush=True)
        await board.complete(task.id, owner)

asyncio.run(main())
"""


async def race(place: str, board: TaskBoard, folder: Path) -> None:
    """Two processes take all tasks, each of them once."""
    for number in range(12):
        await board.add(f"Step {number}")
    with process(MANY, place, "bob", cwd=folder) as bob, process(MANY, place, "eve", cwd=folder) as eve:
        for each in (bob, eve):
            each.stdin.write("\n")
            each.stdin.flush()
        told = [each.communicate()[0].split() for each in (bob, eve)]
        assert [bob.returncode, eve.returncode] == [0, 0]
    assert sorted(map(int, told[0] + told[1])) == list(range(1, 13))
    by = {task.id: task.result for task in await board.tasks()}
    assert [[by[int(each)] for each in ids] for ids in told] == [
        ["bob"] * len(told[0]),
        ["eve"] * len(told[1]),
    ]


@pytest.mark.deep
async def test_two_processes_never_take_one_task_of_a_folder(tmp_path: Path) -> None:
    await race(str(tmp_path), TaskBoard(tmp_path, owner="ada"), tmp_path)


async def test_two_processes_never_take_one_task_of_an_sqlite_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "board.db")
    await race(f"sqlite:///{tmp_path}/board.db", TaskBoard(store, owner="ada"), tmp_path)
    assert await store.check() == ()
    assert await store.list() == ()


@pytest.mark.deep
async def test_two_processes_never_take_one_task_of_a_postgres(database: str, tmp_path: Path) -> None:
    store = stores.open_store(database)
    await race(database, TaskBoard(store, owner="ada"), tmp_path)
    await store.close()


HANGS = """
import asyncio, os, sys
from agentloop import TaskBoard

async def main():
    board = TaskBoard(sys.argv[1], owner="bob")
    await board.claim()
    print("claimed", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


async def test_what_a_dead_process_had_can_be_given_back(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path, owner="ada")
    await board.add("Dig")
    with process(HANGS, tmp_path, cwd=tmp_path) as other:
        assert other.stdout
        assert other.stdout.readline() == "claimed\n"
        assert await board.claim() is None
        assert await board.give_back_left() == ()
        with pytest.raises(UsageError, match=f"^bob has task 1 in process {other.pid} on .*name of its own"):
            await board.of("bob").claim()
        other.kill()
        other.wait()
    assert [task.is_left for task in await board.tasks()] == [True]
    again = await board.of("bob").claim()
    assert again
    assert again.process == this_process()
    await board.of("bob").give_back(1)
    with process(HANGS, tmp_path, cwd=tmp_path) as other:
        assert other.stdout
        assert other.stdout.readline() == "claimed\n"
        other.kill()
        other.wait()
    assert [task.id for task in await board.give_back_left()] == [1]
    assert (await board.claim() or again).owner == "ada"


async def test_who_keeps_a_folder_locked_is_waited_for_and_then_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = TaskBoard(tmp_path, owner="ada")
    await board.add("Dig")
    with (tmp_path / ".task.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        claiming = asyncio.create_task(board.claim())
        await asyncio.sleep(0.05)
        assert not claiming.done()
        fcntl.flock(held, fcntl.LOCK_UN)
        assert (await claiming) is not None
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(task_board, "BUSY_SECONDS", 0.0)
        with pytest.raises(StoreError, match="another process keeps it locked"):
            await board.give_back(1)
    assert [task.status for task in await board.tasks()] == ["in_progress"]


async def test_a_disc_that_refuses_leaves_the_task_as_it_was(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path, owner="ada")
    await board.add("Dig")
    (tmp_path / "task_2.json").mkdir()
    with pytest.raises(DamagedError, match="it is no file"):
        await board.claim()
    (tmp_path / "task_2.json").rmdir()
    (tmp_path / ".task.lock").unlink()
    (tmp_path / ".task.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        await board.claim()
    assert not (tmp_path / "elsewhere").exists()
    assert [task.status for task in await board.tasks()] == ["pending"]


async def test_a_log_that_holds_what_is_no_task_is_named() -> None:
    store = InMemoryStore()
    await store.append("task~board", [Noted(source="x", data={"id": 1})], expect=0)
    with pytest.raises(DamagedError, match="record 1 of 'task~board' is damaged: 'subject' is missing"):
        await TaskBoard(store, owner="ada").tasks()


async def test_a_full_board_takes_no_more(monkeypatch: pytest.MonkeyPatch, board: TaskBoard) -> None:
    monkeypatch.setattr(task_board, "MOST_TASKS", 2)
    for subject in ("Dig", "Plant"):
        await board.add(subject)
    with pytest.raises(UsageError, match="the board is full: it holds 2 tasks"):
        await board.add("Water")


async def test_an_owner_can_go_on_in_another_process_once_its_task_is_given_back(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path, owner="bob")
    await board.add("Dig")
    with process(HANGS, tmp_path, cwd=tmp_path) as other:
        assert other.stdout
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(UsageError, match="which may work on it still"):
            await board.claim()
        await board.give_back(1)
        taken = await board.claim()
        assert taken
        assert taken.process == this_process()
        other.kill()


KILLED = """
import asyncio, os, sys
from pathlib import Path
from agentloop import TaskBoard

at = int(sys.argv[2])
count = 0

def watch(event, arguments):
    global count
    if event in ("open", "os.rename", "os.listdir") and sys.argv[1] in str(arguments[0]):
        count += 1
        if count == at:
            os.kill(os.getpid(), 9)

sys.addaudithook(watch)
asyncio.run(TaskBoard(sys.argv[1], owner="bob").claim())
"""


@pytest.mark.deep
async def test_whoever_is_killed_in_a_claim_leaves_the_task_free_or_taken_and_nothing_locked(
    tmp_path: Path,
) -> None:
    states = set()
    for at in range(1, 40):
        board = TaskBoard(tmp_path / str(at), owner="ada")
        await board.add("Dig")
        with process(KILLED, tmp_path / str(at), at, cwd=tmp_path) as other:
            other.communicate()
        (task,) = await board.tasks()
        states.add((other.returncode, task.status))
        await board.give_back_left()
        assert await board.claim(), f"killed at {at}"
        left = sorted(each.name for each in (tmp_path / str(at)).iterdir())
        assert left == [".task.lock", "task_1.json"]
        if other.returncode == 0:
            break
    assert states >= {(-9, "pending"), (0, "in_progress")}


async def test_a_cancelled_claim_stands_or_does_not_and_comes_again(board: TaskBoard) -> None:
    await board.add("Dig")
    for turns in range(6):
        claiming = asyncio.ensure_future(board.claim())
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        with suppress(asyncio.CancelledError):
            await claiming
        task = await board.claim()
        assert task
        assert task.owner == "ada"
        await board.give_back(1)
    assert len(await board.tasks()) == 1


def test_a_model_works_off_a_board(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "board", owner="ada")
    model = ScriptedModel(
        [
            calls(("task_add", {"subject": "Dig"})),
            calls(("task_add", {"subject": "Plant", "blocked_by": [1]})),
            calls(("task_block", {"task_id": 1, "blocked_by": [2]})),
            calls(("task_claim", {})),
            calls(("task_claim", {"task_id": 2})),
            calls(("task_complete", {"task_id": 1, "result": "Clay below."})),
            calls(("task_claim", {})),
            calls(("task_give_back", {"task_id": 2})),
            calls(("task_list", {})),
            "Done.",
        ]
    )
    with SyncRunner(Agent(model, tools=[board]), transcripts=None) as runner:
        runner.run("Make a garden.")
    told = results(model.requests[-1])
    assert told[:2] == ["1 [ ] Dig", "2 [ ] Plant · after 1"]
    assert "in a circle" in told[2]
    assert told[3] == "[Your task 1] Dig"
    assert "ada has task 1 already" in told[4]
    assert told[5:8] == [
        "[Task 1 is completed] Dig",
        "[Your task 2] Plant\nTask 1, Dig: Clay below.",
        "[Task 2 is given back] Plant",
    ]
    assert told[8].startswith("[Tasks]\n1 [x] Dig · ada: Clay below.\n2 [")


def pinned(request: ModelRequest) -> str:
    """What is pinned in a request."""
    texts = [str(message["content"]) for message in request.messages]
    return next((text for text in texts if text.startswith(KEPT_IN_SIGHT)), "")


def test_the_task_that_is_under_way_stays_in_sight(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "board", owner="ada")
    asyncio.run(board.add("Dig", description="By the wall."))
    long = "The snails came. " * 200
    done = calls(("task_complete", {"task_id": 1}))
    model = ScriptedModel([calls(("task_claim", {})), *[long] * 5, done, *[long] * 6])
    agent = Agent(model, tools=[board], compaction=Compaction(strategy=KeepRecentTurns(1), tool=False))
    with SyncRunner(agent, transcripts=None) as runner:
        for prompt in ("Claim.", "Go on.", "Go on."):
            runner.run(prompt, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("Go on.", session_id="s")
        assert "[Your task 1] Dig\nBy the wall." in pinned(model.requests[-1])
        for prompt in ("Complete.", "Go on.", "Go on."):
            runner.run(prompt, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("Go on.", session_id="s")
        assert pinned(model.requests[-1]) == ""


def test_a_task_checks_itself() -> None:
    for bad in (
        {"id": 0},
        {"id": 1_001},
        {"status": "lost"},
        {"blocked_by": ["1"]},
        {"since": -1.0},
        {"owner": "a"},
    ):
        with pytest.raises(UsageError):
            Task(**{"id": 1, "subject": "Dig", **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["pipe", "link"])
async def test_what_stands_in_the_place_of_the_lock_is_neither_waited_for_nor_followed(
    tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "board" / ".task.lock"
    place.parent.mkdir()
    os.mkfifo(place) if kind == "pipe" else place.symlink_to(tmp_path / "aim")
    with pytest.raises(StoreError, match=f"^{place}: "):
        await TaskBoard(place.parent, owner="ada").add("Dig")
    assert not (tmp_path / "aim").exists()
