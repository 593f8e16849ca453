"""A store that is used on both sides of a fork: each process has its own file and connections."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parent.parent
LONGEST_SECONDS = 60

BEGINNING = """
import asyncio, gc, os, signal, sys, threading, warnings
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.stores import PostgresStore, SQLiteStore

warnings.simplefilter("ignore")
signal.alarm(20)
where = sys.argv[1]
store = PostgresStore(where, retry_seconds=0) if "://" in where else SQLiteStore(where)

def said(text):
    return MessageRecord(message=Message.user(text), tokens=1, id=text, time=1.0)

def append(session_id, *texts):
    there = len(asyncio.run(store.read(session_id)))
    return asyncio.run(store.append(session_id, [said(text) for text in texts], expect=there))

def texts(session_id):
    return [record.event.message.content for record in asyncio.run(store.read(session_id))]

def forked(child):
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    sys.stdout.flush()
    return 0

def ended(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
"""

BOTH_GO_ON = """
append("s", "before")
def child():
    assert [info.id for info in asyncio.run(store.list())] == ["s"]
    append("s", "from the child")
    append("childs", "other")
pid = forked(child)
if pid == 0:
    sys.exit()
ended(pid)
append("s", "from the parent")
assert texts("s") == ["before", "from the child", "from the parent"], texts("s")
assert texts("childs") == ["other"]
"""

THE_CHILD_LETS_GO = """
append("s", "before")
def child():
    global store
    store = None
    gc.collect()
for _ in range(3):
    pid = forked(child)
    if pid == 0:
        sys.exit()
    ended(pid)
    assert texts("s")[0] == "before"
    append("s", "after")
def closing():
    asyncio.run(store.close())
pid = forked(closing)
if pid == 0:
    sys.exit()
ended(pid)
append("s", "last")
assert texts("s") == ["before", "after", "after", "after", "last"]
"""

THE_PARENT_CLOSES_FIRST = """
append("s", "before")
told, tell = os.pipe()
opened, open_now = os.pipe()
def child():
    append("s", "child 1")
    os.write(open_now, b"x")
    os.read(told, 1)
    append("s", "child 2")
pid = forked(child)
if pid == 0:
    os._exit(0)
os.read(opened, 1)
append("s", "parent")
asyncio.run(store.close())
os.write(tell, b"x")
ended(pid)
assert texts("s") == ["before", "child 1", "parent", "child 2"], texts("s")
"""

IN_THE_MIDST_OF_WORK = """
append("s", "before")
go_on = True
def busy():
    number = 0
    while go_on:
        append("busy", f"text {number}")
        number += 1
thread = threading.Thread(target=busy)
thread.start()
pids = []
for number in range(8):
    pid = forked(lambda: append(f"child {number}".replace(" ", "-"), "one"))
    if pid == 0:
        os._exit(0)
    pids.append(pid)
for pid in pids:
    ended(pid)
go_on = False
thread.join()
assert len(texts("busy")) > 0
assert len(asyncio.run(store.list())) == 10
assert list(asyncio.run(store.check())) == []
"""

IN_A_RUNNING_LOOP = """
async def main():
    await store.append("s", [said("before")], expect=0)
    pid = os.fork()
    if pid == 0:
        asyncio.run(store.append("s", [said("from the child")], expect=1))
        asyncio.run(store.close())
        os._exit(0)
    ended(pid)
    assert len(await store.read("s")) == 2
    pid = os.fork()
    if pid == 0:
        globals()["store"] = None
        gc.collect()
        os._exit(0)
    ended(pid)
    await store.append("s", [said("from the parent")], expect=2)
    await store.close()
asyncio.run(main())
"""

SCRIPTS = {
    "both go on": BOTH_GO_ON,
    "the child lets go": THE_CHILD_LETS_GO,
    "the parent closes first": THE_PARENT_CLOSES_FIRST,
    "in the midst of work": IN_THE_MIDST_OF_WORK,
    "in a running loop": IN_A_RUNNING_LOOP,
}

A_BUSY_FILE = """
import queue, subprocess
asyncio.run(store.append("s", [said("before")], expect=0))
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
HOLDS = (
    "import sqlite3, sys; busy = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "busy.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.readline()"
)
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
busy = subprocess.Popen([sys.executable, "-c", HOLDS, where], **pipes)
busy.stdout.readline()
waits = asyncio.run_coroutine_threadsafe(store.append("s", [said("waits")], expect=1), loop)
asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # it has begun
forks, is_free = threading.Event(), False
os.register_at_fork(before=forks.set)
def in_the_fork():
    global is_free
    forks.wait()
    meanwhile()
    is_free = True
    busy.communicate(b"\\n")
"""

A_STORE_THAT_IS_OPENED_MEANWHILE = (
    A_BUSY_FILE
    + """
made, opened = threading.Event(), threading.Event()
def open_it():
    global other
    other = SQLiteStore(where + "2")
    made.set()
    asyncio.run(other.append("o", [said("one")], expect=0))
    opened.set()
def meanwhile():
    threading.Thread(target=open_it).start()
    made.wait()
    opened.wait(0.3)
thread = threading.Thread(target=in_the_fork)
thread.start()
def child():
    assert not asyncio.run(other.read("child"))
    asyncio.run(other.append("child", [said("two")], expect=0))
    append("s", "from the child")
pid = forked(child)
if pid == 0:
    os._exit(0)
ended(pid)
thread.join()
assert waits.result() == 2 and opened.wait(10)
assert texts("s") == ["before", "waits", "from the child"], texts("s")
assert {info.id for info in asyncio.run(other.list())} == {"o", "child"}
"""
)

INTERRUPTED_WHILE_IT_WAITS = (
    A_BUSY_FILE
    + """
told = queue.SimpleQueue()
def interrupted(*_):
    told.put(None)
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupted)
raised = []
sys.unraisablehook = lambda what: raised.append(what.exc_type)
def meanwhile():
    for seconds in (0.2, 0.05, 0.05):
        threading.Event().wait(seconds)  # as long as it takes to wait, or to go on where it should not
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        told.get()
    threading.Event().wait(0.05)
thread = threading.Thread(target=in_the_fork)
thread.start()
pid = forked(lambda: append("childs", "one"))
if pid == 0:
    os._exit(0 if is_free else 1)
ended(pid)
thread.join()
assert set(raised) == {KeyboardInterrupt}, raised
assert waits.result() == 2
assert texts("s") == ["before", "waits"] and texts("childs") == ["one"]
"""
)

FORGOTTEN_IN_THE_MIDST_OF_A_FORK = """
def calls_made(let_go_at):
    left, number = [SQLiteStore(where)], 0
    asyncio.run(left[0].list())
    def count(_, what, __):
        nonlocal number
        number += what == "call"
        if number == let_go_at:
            left.clear()
    sys.setprofile(count)
    pid = os.fork()
    sys.setprofile(None)
    if pid == 0:
        os._exit(0)
    ended(pid)
    return number
for position in range(1, calls_made(0) + 1):
    signal.alarm(20)
    calls_made(position)
"""

OF_A_FILE = {
    "a store that is opened meanwhile": A_STORE_THAT_IS_OPENED_MEANWHILE,
    "interrupted while it waits": INTERRUPTED_WHILE_IT_WAITS,
    "forgotten in the midst of a fork": FORGOTTEN_IN_THE_MIDST_OF_A_FORK,
}


def run(script: str, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + script, url],
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("script", [*SCRIPTS.values(), *OF_A_FILE.values()], ids=[*SCRIPTS, *OF_A_FILE])
def test_a_sqlite_store_works_on_both_sides_of_a_fork(script: str, tmp_path: Path) -> None:
    run(script, str(tmp_path / "sessions.db"))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_postgres_store_works_on_both_sides_of_a_fork(script: str, database: str) -> None:
    run(script, database)


MANY_FORKS = """
warnings.simplefilter("always")
for number in range(20):
    append("s", "before")
    pid = forked(lambda: None)
    if pid == 0:
        os._exit(0)
    ended(pid)
"""


def test_no_fork_is_warned_of_beside_a_sqlite_store(tmp_path: Path) -> None:
    run(MANY_FORKS, str(tmp_path / "sessions.db"))
