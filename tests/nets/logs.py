"""Golden logs: what an earlier version wrote, and what is read of it.

Stores, exports, a transcript and records lie in `data/logs`. `python -m tests.nets.logs` makes them anew,
which is for a new kind of file alone: what reads the old ones is what is held here.
"""

import asyncio
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentloop import Agent, Compaction, MicroCompact, Runner
from agentloop.codec import decode, encode
from agentloop.events import Event, Record
from agentloop.stores import SQLiteStore, open_store
from agentloop.stores.base import Checkpoint, KeepsCheckpoints
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import Reply, ScriptedModel, calls
from agentloop.triggers import TokenCount
from tests.nets.frozen import DATA, write
from tests.warm_kit import ROOT

LOGS = DATA / "logs"
READ = "read.json"
STORES = ("store.db", "long.db")
SESSIONS = ("job", "folded", "plain", "stopped")
FORMATS = {"events": "job.events.jsonl", "openai": "job.openai.json", "markdown": "job.md"}
LONG = 1_010
"""Records of the long log: a checkpoint is kept beside it."""


class Looking(SQLiteStore):
    """A store that notes from where logs are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read_after: list[int] = []

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        self.read_after.append(after)
        return await super().read(session_id, after=after, most=most)


def unpacked(name: str, folder: Path) -> Path:
    """A store file of old, ready to be opened."""
    path = folder / name
    path.write_bytes(gzip.decompress((LOGS / f"{name}.gz").read_bytes()))
    return path


def look(path: str) -> str:
    """Look at a file."""
    return f"{path}: FACT-{len(path):06d} " + "a line of it " * 60


def agent_of(model: ScriptedModel) -> Agent:
    """Who made these logs, and goes on with them."""
    policy = Compaction(
        micro=MicroCompact(keep_messages=2, min_gain_tokens=0),
        trigger=TokenCount(1_500),
        strategy=KeepRecentTurns(1),
    )
    return Agent(model, tools=[look], instructions="You look at files.", compaction=policy)


async def sent_next(path: Path, session_id: str, *, undo: bool = False) -> list[Any]:
    """What a model is sent when the session goes on, and what is in the log behind it."""
    model = ScriptedModel(["Gone on."], window=100_000)
    agent = replace(agent_of(model), compaction=None)
    async with Runner(agent, store=f"sqlite:///{path}", transcripts=None) as runner:
        if undo:
            assert await runner.undo(session_id) is not None
        result = await runner.run("And now?", session_id=session_id)
        assert result.output == "Gone on."
        return [dict(message) for message in model.requests[0].messages]


def records() -> list[str]:
    """Records of every kind and version as they lie in files, a line each."""
    return (LOGS / "records.jsonl").read_text("ascii").splitlines()


def rewritten(lines: Sequence[str]) -> list[str]:
    """What these records are written as today."""
    return [encode(decode(line)) for line in lines]


async def read() -> dict[str, Any]:
    """All that is read of these files."""
    found: dict[str, Any] = {"records": rewritten(records()), "sent": {}, "undone": {}, "shown": {}}
    with TemporaryDirectory() as folder:
        for session in SESSIONS:
            found["sent"][session] = await sent_next(unpacked("store.db", Path(folder)), session)
        for session in ("job", "folded"):
            path = unpacked("store.db", Path(folder))
            found["undone"][session] = await sent_next(path, session, undo=True)
        found["sent"]["long"] = await sent_next(unpacked("long.db", Path(folder)), "long")
        found["listed"] = await listed(unpacked("store.db", Path(folder)))
    return found


async def listed(path: Path) -> list[str]:
    """The store's list, and what is found in it."""
    store = open_store(f"sqlite:///{path}")
    assert isinstance(store, SQLiteStore)
    try:
        lines = [repr(each) for each in await store.list()]
        hits = [f"{each.session_id} {each.record.seq}" for each in await store.search("FACT 000005")]
        assert await store.check() == ()
        return [*lines, *hits]
    finally:
        await store.close()


def freeze() -> None:
    """Write anew what is read of them."""
    write(READ, asyncio.run(read()))


async def _make() -> None:
    steps: list[Reply] = [
        calls(look={"path": "a.txt"}),
        calls(("look", {"path": "bb.txt"}), ("look", {"path": "c"})),
        calls(look={"path": "a.txt"}),
        "All of them hold facts.",
        "Yes, FACT-000005.",
        "Nothing else.",
    ]
    model = ScriptedModel(steps, window=4_000)
    asked = ("Look at all files.", "Are you sure?", "What else?")
    async with Runner(agent_of(model), store="sqlite:///store.db", folder="/work", owner="ann") as runner:
        for prompt in asked:
            await runner.run(prompt, session_id="job")
        assert await runner.compact("job", focus="the facts") is not None
    chat = ScriptedModel([f"Answer {at}: " + "words " * 80 for at in range(6)], window=4_000)
    quiet = Agent(chat, compaction=Compaction(trigger=None, strategy=KeepRecentTurns(1)))
    async with Runner(quiet, store="sqlite:///store.db", ttl_seconds=86_400.0 * 36_500) as runner:
        for at in range(3):
            await runner.run(f"Question {at} FACT-{at:06d}", session_id="folded")
        assert await runner.compact("folded") is not None
        assert await runner.undo("folded") is not None
        assert await runner.compact("folded", focus="numbers") is not None
        await runner.run("Once more 🙂 \x00", session_id="plain")
    store = open_store("sqlite:///store.db")
    await store.append("stopped", [decode(line) for line in _stopped()], expect=0)
    await store.close()


def _stopped() -> list[str]:
    """A run that was killed while its tools ran."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"path": "a"}'}}
    other = call | {"id": "call_2"}
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call, other], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "call_2", "content": "seen"},
    ]
    start = {"v": 1, "kind": "run_started", "id": "s0", "time": 1.0, "run_id": "r", "model": "m"}
    return [json.dumps(start)] + [
        json.dumps(
            {"v": 1, "kind": "message_added", "id": f"s{at}", "time": 2.0, "tokens": 9, "run_id": "r"}
            | {"message": each}
        )
        for at, each in enumerate(said, 1)
    ]


async def _make_long(path: Path) -> None:
    events: list[Event] = [
        decode(
            json.dumps(
                {
                    "v": 1,
                    "kind": "message_added",
                    "id": f"{at:032x}",
                    "time": 1.0 + at,
                    "tokens": 4,
                    "message": {"role": ("assistant", "user")[at % 2], "content": f"said {at}"},
                }
            )
        )
        for at in range(1, LONG)
    ]
    store = open_store(f"sqlite:///{path}")
    await store.append("long", events, expect=0)
    await store.close()
    model = ScriptedModel(["a summary", "one", "two"], window=100_000)
    agent = Agent(model, compaction=Compaction(trigger=None, strategy=KeepRecentTurns(2)))
    async with Runner(agent, store=f"sqlite:///{path}", transcripts=None) as runner:
        assert await runner.compact("long") is not None
        await runner.run("On", session_id="long")
        kept = await runner.store.checkpoint("long") if isinstance(runner.store, KeepsCheckpoints) else None
        assert isinstance(kept, Checkpoint), "no checkpoint was kept"


def _records() -> list[str]:
    """Every kind, with all its fields and with none but the needed ones; others' versions; unknown kinds."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"path": "a"}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    old_call = {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}}
    usage = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 2}
    user = {"role": "user", "content": "Hi"}
    item = {"seq": 3, "message": {"role": "tool", "tool_call_id": "c1", "content": "x..."}, "tokens": 2}
    needed: dict[str, dict[str, Any]] = {
        "message_added": {"message": user, "tokens": 3},
        "cleared": {"items": [item]},
        "compacted": {"covers": [[1, 4], [6, 6]], "replacement": "They spoke.", "at": 1, "tokens": 5},
        "restored": {"seq": 7},
        "not_compacted": {"status": "failed"},
        "model_called": {"purpose": "agent", "model": "m"},
        "run_started": {"run_id": "r"},
        "run_ended": {"run_id": "r", "status": "answered"},
        "described": {},
        "noted": {"source": "plugin"},
    }
    more: dict[str, dict[str, Any]] = {
        "message_added": {
            "run_id": "r",
            "branch": "scout",
            "keep": True,
            "spilled": "/x/y",
            "finish": "length",
        },
        "cleared": {},
        "compacted": {
            "answer": "Good.",
            "answer_tokens": 2,
            "made": "digest",
            "cleared": [item],
            "group": "g",
            "reason": "threshold",
            "why": "over 80 %",
            "strategy": "S",
            "tier": 2,
            "before": 900,
            "after": 90,
            "transcript": "t.jsonl",
            "lost": ["a", "b"],
            "lost_count": 120,
            "fault": "it was blank",
            "eager": True,
        },
        "restored": {},
        "not_compacted": {
            "reason": "threshold",
            "why": "over 80 %",
            "strategy": "S",
            "error": "the summary was blank",
            "before": 900,
            "group": "g",
        },
        "model_called": {"counted": 12, "request_hash": "ab", "usage": usage, "seconds": 0.5, "cost": 0.01},
        "run_started": {"model": "m", "prompt": user},
        "run_ended": {"usage": usage, "reason": "steps"},
        "described": {"title": "T", "folder": "/f", "owner": "ann", "ttl_seconds": 60.0},
        "noted": {"data": {"a": [1, None, {"b": 2.5}]}},
    }
    said: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call, call | {"id": "c2", "index": 1}]},
        {"role": "assistant", "content": "", "refusal": "No.", "reasoning_content": "because"},
        {"role": "user", "content": [{"type": "text", "text": "See \ud800\x00"}, image], "name": "ann"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "seen"}]},
        {"role": "system", "content": "Be brief."},
        old_call,
        {"role": "critic", "content": 5, "unknown": [None]},
    ]
    head = {"v": 1, "id": "0123", "time": 1_767_225_600.25}
    lines = [head | {"kind": kind} | fields for kind, fields in needed.items()]
    lines += [head | {"kind": kind} | fields | more[kind] for kind, fields in needed.items()]
    lines += [head | {"kind": "message_added", "message": each, "tokens": 1} for each in said]
    lines += [
        head | {"kind": "compacted", "made": made} | needed["compacted"] for made in ("summary", "note")
    ]
    lines += [head | {"v": 2, "kind": "restored", "seq": 4, "by": "a newer field"}]
    lines += [{"v": 1, "kind": "restored", "seq": 4, "id": "no-time", "time": 0.0}]
    lines += [head | {"v": 9, "kind": "dreamt", "of": ["sheep", 1e3]}, {"kind": "dreamt", "v": 1}]
    return [json.dumps(line) for line in lines]


def _export(folder: Path) -> None:
    store = f"sqlite:///{folder / 'store.db'}"
    for form, name in FORMATS.items():
        words = ("sessions", "export", "job", "--format", form, "--store", store, "-o", str(LOGS / name))
        subprocess.run([sys.executable, "-m", "agentloop", *words], check=True, cwd=ROOT)


def main() -> None:
    """Make all files anew, but for what today's version writes in another way."""
    LOGS.mkdir(exist_ok=True)
    (LOGS / "records.jsonl").write_text("\n".join(_records()) + "\n", "ascii")
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        asyncio.run(_make())
        asyncio.run(_make_long(folder / "long.db"))
        for each in STORES:
            assert not list(folder.glob(f"{each}-*")), "the store was not closed"
            (LOGS / f"{each}.gz").write_bytes(gzip.compress((folder / each).read_bytes(), 9, mtime=0))
        _export(folder)
        newest = min((folder / ".transcripts").rglob("transcript_*.jsonl"))
        shutil.copyfile(newest, LOGS / "transcript_1.jsonl")


if __name__ == "__main__":
    main()
