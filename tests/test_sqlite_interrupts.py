"""A Ctrl-C at any moment of a store's work leaves a store that goes on.

CPython raises what a signal's handler raises where a function begins and where a call has returned. So it is
raised here at each of these places in turn, from the first on, until the work is through before.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST_SECONDS = 60

INTERRUPTED = """
import asyncio, signal, sys, threading
from itertools import count
from agentloop.errors import StoreError
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.stores import SQLiteStore

signal.alarm(30)
OURS = ("agentloop/stores/sqlite", "contextlib")
text = "x" * 10
store = SQLiteStore(sys.argv[1])
kept = []

def said(text):
    return MessageRecord(message=Message.user(text), tokens=1, time=1.0)

async def appended(length, text):
    return await store.append("s", [said(text)], expect=length)

def interrupting(number):
    places = count(1)
    def at(frame, event, called):
        is_ours = any(part in frame.f_code.co_filename for part in OURS)
        if event in ("call", "c_return") and is_ours and next(places) == number:
            raise KeyboardInterrupt
    return at

async def interrupted(number, length):
    sys.setprofile(interrupting(number))
    try:
        await appended(length, text)
    except (KeyboardInterrupt, StoreError) as error:
        kept.append(error)  # as whoever tells of it does: with it, what was left in the midst of its work
        return True
    finally:
        sys.setprofile(None)
    return False

async def main():
    await appended(0, "before")
    length = 1
    for number in count(1):
        was = await interrupted(number, length)
        length = (await store.info("s")).length
        length = await appended(length, "quick")
        if number % 3 == 0:
            kept.clear()
        if not was:
            break
    assert number > 20, number
    seqs = [record.seq for record in await store.read("s")]
    assert seqs == list(range(1, length + 1))
    assert await store.check() == ()
    await store.close()

asyncio.run(main())
"""


def test_an_append_that_is_interrupted_anywhere_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "sessions.db")],
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
