"""What must hold of a session whose processes were killed, by what is on disc and what its tools did."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from agentloop.context import Context
from agentloop.events import Compacted, MessageRecord, Record
from agentloop.messages import Message
from agentloop.prompts import INTERRUPTED
from agentloop.sessions import Session, load, transcripts_in
from agentloop.stores import SessionStore
from agentloop.stores.base import FindsWords, KeepsCheckpoints
from agentloop.stores.words import searchable, words_of
from tests.kill_world import BATCHES, ID, PROMPT, World

WHOLE = re.compile(r"FACT-\w{6} done \d+ (word )+FACT-\w{6}")


async def faults(world: World, store: SessionStore) -> list[str]:
    """Everything that does not hold once a last process has gone on to the end."""
    records = await store.read(ID)
    checks = (
        *_whole_appends(world, records),
        *_results(world, records),
        *_effects(world, records),
        *_transcripts(world, records),
        *_spilled(records),
        *(f"a request was not valid: {line}" for line in world.noted("problems")),
        *[fault async for fault in _beside(store, records)],
    )
    return list(checks)


def _whole_appends(world: World, records: Sequence[Record]) -> Iterator[str]:
    """L3, L7: each append stands whole or not at all, and in any case where it had returned."""
    there = [record.event.id for record in records]
    places = {event_id: place for place, event_id in enumerate(there)}
    lines = world.noted("journal")
    returned = [line["ids"] for line in lines if line["does"] == "appended"]
    wrote: set[str] = set()
    for ids in (line["ids"] for line in lines if line["does"] == "append"):
        first = places.get(ids[0])
        if first is not None and there[first : first + len(ids)] == ids:
            wrote.update(ids)
        elif ids in returned:
            yield f"L3 an append of {len(ids)} had returned and is not there"
        elif not places.keys().isdisjoint(ids):
            yield f"L7 an append of {len(ids)} is there by half"
    if len(wrote) != len(there):
        yield f"{len(there)} records stand in the log, and {len(wrote)} were appended"


def _results(world: World, records: Sequence[Record]) -> Iterator[str]:
    """Each call is asked for once and has one result; what a tool returned is not replaced by less."""
    said = _said(records)
    if not said or said[0].content != PROMPT or [each.role for each in said].count("user") != 1:
        yield "the prompt does not stand once, first"
    asked = [call for message in said for call in message.tool_calls]
    numbers = [(call.decoded() or {}).get("number") for call in asked]
    if numbers != list(range(sum(map(len, BATCHES)))):
        yield f"the calls are not those that the model planned: {numbers}"
    answered = Counter(message.tool_call_id for message in said if message.role == "tool")
    if answered != Counter(call.id for call in asked):
        yield f"not each call has one result: {answered}"
    if said[-1].text != "all done":
        yield "the last message is not the answer"


def _effects(world: World, records: Sequence[Record]) -> Iterator[str]:
    """L7: no completed tool runs again, and one that is not idempotent never does."""
    results = {
        record.event.message.tool_call_id: record
        for record in records
        if isinstance(record.event, MessageRecord) and record.event.message.role == "tool"
    }
    began = {line["pid"]: line["length"] for line in world.noted("journal") if line["does"] == "start"}
    did = Counter(line["call"] for line in world.noted("effects"))
    for line in world.noted("effects"):
        record = results.get(line["call"])
        if record and record.seq <= began[line["pid"]]:
            yield f"L7 {line['call']} was completed and ran again"
        if line["tool"] == "once" and did[line["call"]] != 1:
            yield f"L7 {line['call']} took effect {did[line['call']]} times"
    for call_id, record in results.items():
        text = record.event.message.text if isinstance(record.event, MessageRecord) else ""
        if text != INTERRUPTED and "done" not in text:
            yield f"the result of {call_id} is neither the tool's nor interrupted: {text[:80]}"
        if text != INTERRUPTED and not did[call_id or ""]:
            yield f"{call_id} has a result and took no effect"
        if text == INTERRUPTED and not any(0 < length < record.seq for length in began.values()):
            yield f"{call_id} is called interrupted before anything was"


def _transcripts(world: World, records: Sequence[Record]) -> Iterator[str]:
    """L5: the history from before each compaction is on disc, whole; a file is torn at its end at most."""
    for record in records:
        if not isinstance(record.event, Compacted):
            continue
        path = world.transcripts / str(record.event.transcript)
        if not path.exists():
            yield f"L5 the transcript of the compaction at {record.seq} is missing"
            continue
        said = _said(records[: record.seq - 1])
        if list(load(path).messages[: len(said)]) != said:
            yield f"L5 the transcript of the compaction at {record.seq} is not the history"
    for path in transcripts_in(world.transcripts):
        held = load(path)
        if (
            held.damaged > 1
            or not held.messages
            or list(held.messages) != _said(records)[: len(held.messages)]
        ):
            yield f"L5 {path.name} is damaged"


def _spilled(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        if isinstance(record.event, MessageRecord) and record.event.spilled:
            path = Path(record.event.spilled)
            if not path.exists() or not WHOLE.fullmatch(path.read_text()):
                yield f"the file of the long result at {record.seq} is not whole"


async def _beside(store: SessionStore, records: Sequence[Record]) -> AsyncIterator[str]:
    """What is kept beside the log agrees with it: the list, the checkpoint, the words to be found."""
    [info] = await store.list()
    if (info.length, info.title) != (len(records), PROMPT) or info != await store.info(ID):
        yield f"the list says {info}"
    opened, folded = (await Session.open(ID, store)).context, Context.of(records)
    if (opened.length, opened.tokens, list(opened.messages)) != (
        folded.length,
        folded.tokens,
        list(folded.messages),
    ):
        yield "L13 the session opened is not the one folded from scratch"
    assert isinstance(store, KeepsCheckpoints)
    checkpoint = await store.checkpoint(ID)
    if checkpoint is None or records[checkpoint.seq - 1].event.id != checkpoint.event_id:
        yield f"the checkpoint is none of this log: {checkpoint}"
    assert isinstance(store, FindsWords)
    found = {each.record.seq for each in await store.search("done", session_id=ID, most=1_000)}
    wanted = {record.seq for record in records if "done" in words_of(searchable(record.event))}
    if found != wanted:
        yield f"searching finds {found}, and the words stand at {wanted}"


def _said(records: Sequence[Record]) -> list[Message]:
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]
