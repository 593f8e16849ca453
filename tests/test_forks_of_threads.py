"""A process that forks while a thread is at work: the child does the same work, and waits for nobody."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PROGRAM = """
import os, signal, threading, warnings
from agentloop.context import tokens

warnings.simplefilter("ignore")
begun, go_on = threading.Event(), threading.Event()

def wait():
    begun.set()
    go_on.wait()

{work}

os.register_at_fork(before=go_on.set)
thread = threading.Thread(target=work)
thread.start()
begun.wait()
pid = os.fork()
if not pid:
    signal.alarm(20)
    work()
    os._exit(0)
thread.join()
assert os.waitpid(pid, 0)[1] == 0, "the child hangs"
"""

A_VOCABULARY_IS_LOADED = """
load = tokens._load

def loaded(name):
    wait()
    return load(name)

tokens._load = loaded

def work():
    tokens.counter_for("gpt-4o")("How are you?")
"""

A_LOG_IS_COMPARED = """
from agentloop.compaction.digest import digest
from agentloop.context import Entry
from agentloop.messages import Message

class Waiting(Message):
    def __eq__(self, other):
        wait()
        return True

def work():
    said = Waiting(role="user", content="Never push to main.")
    digest([Entry(seq=1, at=1, message=said, original=said, tokens=5)], max_tokens=100, counter=len)

work()
"""


A_STORE_IS_READ = """
import asyncio
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.stores import InMemoryStore

class Waiting(Message):
    def __getattribute__(self, name):
        if name == "content" and threading.current_thread() is not threading.main_thread():
            wait()
        return super().__getattribute__(name)

store, said = InMemoryStore(), Waiting(role="user", content="Never push to main.")
asyncio.run(store.append("s", [MessageRecord(message=said, tokens=5)], expect=0))

def work():
    asyncio.run(store.read("s"))
"""

WORKS = {"vocabulary": A_VOCABULARY_IS_LOADED, "log": A_LOG_IS_COMPARED, "store": A_STORE_IS_READ}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_a_child_never_waits_for_a_thread_of_its_parent(work: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(work=work)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
