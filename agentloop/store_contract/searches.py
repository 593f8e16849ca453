"""Checks of a store whose logs can be searched."""

from collections.abc import Sequence
from typing import Any, Protocol

from agentloop.errors import UsageError
from agentloop.events import Compacted, Described, Event, MessageAdded, ModelCalled, Noted, kind_name
from agentloop.messages import Message, ToolCall
from agentloop.store_contract.asserting import new_id, said, same
from agentloop.stores.base import FindsWords, Found, SessionStore

WORDLESS = ("", " ", '""', "*", "?!", '"', "\0", "\ud800", "🙂")


class _Finds(SessionStore, FindsWords, Protocol):
    """A store that can be searched."""


async def finds_words_and_phrases(store: _Finds) -> None:
    """All words must occur, in any order and case; what stands in double quotes as it stands."""
    name, word = new_id(), new_id()
    said_so = ("Alpha beta GAMMA", "gamma beta", "alpha, beta!", "alphabet")
    await store.append(name, [said(f"{word} {text}") for text in said_so], expect=0)
    for query, seqs in (
        ("", [4, 3, 2, 1]),
        ("beta ALPHA", [3, 1]),
        ('"alpha beta"', [3, 1]),
        ('"beta gamma"', [1]),
        ('gamma "beta', [2, 1]),
        ('"gamma alpha"', []),
        ("alph", []),
        ("alpha beta gamma delta", []),
    ):
        same(await _found(store, f"{word} {query}"), [(name, seq) for seq in seqs], f"found by {query!r}")


async def finds_what_records_say(store: _Finds) -> None:
    """Results, calls with their arguments, summaries, titles and notes are found, hidden or not."""
    name, word = new_id(), new_id()
    call = ToolCall(id="c", name="read_file", arguments=f'{{"path": "a\\n{word}/b.py"}}')
    events: list[Event] = [
        said(f"the task {word}"),
        MessageAdded(message=Message.assistant(None, [call]), tokens=1),
        MessageAdded(message=Message.tool("c", f"{word} result"), tokens=1),
        Compacted(covers=((2, 3),), replacement=f"summary {word}", at=4, tokens=1, answer="understood"),
        Described(title=f"Title {word}"),
        Noted(source="p", data={"k": [f"noted {word}"]}),
        ModelCalled(purpose="agent", model=word),
    ]
    await store.append(name, events, expect=0)
    found = await store.search(word)
    kinds = ["noted", "described", "compacted", *["message_added"] * 3]
    same([kind_name(type(each.record.event)) for each in found], kinds, "the kinds of what is found")
    wanted = [Found(session_id=name, record=each) for each in reversed(await store.read(name, most=6))]
    same(list(found), wanted, "found, each with its whole record")
    same(await _found(store, f"{word} result"), [(name, 3)], "found of what a compaction hides")
    same(await _found(store, f"read_file {word}"), [(name, 2)], "found of a call")


async def finds_newest_first_in_bounds(store: _Finds) -> None:
    """The newest sessions first, in each the newest record; at most so many; of one owner."""
    word, owner, old, new, others = (new_id() for _ in range(5))
    await store.append(new, [Described(owner=owner, time=1.0), said(word, time=9.0)], expect=0)
    await store.append(
        old, [Described(owner=owner, time=2.0), said(word, time=3.0), said(word, time=4.0)], expect=0
    )
    await store.append(others, [Described(owner=f"{owner}2", time=6.0), said(word, time=6.0)], expect=0)
    every = [(new, 2), (others, 2), (old, 3), (old, 2)]
    same(await _found(store, word), every, "found in all sessions")
    for most in (1, 3, 2**70):
        same(_places(await store.search(word, most=most)), every[:most], f"found, at most {most}")
    mine = _places(await store.search(word, owner=owner))
    same(mine, [(new, 2), (old, 3), (old, 2)], "found in an owner's sessions")


async def finds_only_where_all_bounds_hold(store: _Finds) -> None:
    """Session, folder and owner bound a search together: who names another's session finds nothing in it."""
    word, owner, folder, mine, others = (new_id() for _ in range(5))
    ours = Described(owner=owner, folder=folder)
    theirs = Described(owner=f"{owner}2", folder=f"{folder}/\udcff")
    await store.append(mine, [ours, said(word)], expect=0)
    await store.append(others, [theirs, said(word)], expect=0)
    for session_id, of_folder, of, names in (
        (mine, None, None, [mine]),
        (mine, folder, owner, [mine]),
        (mine, theirs.folder, owner, []),
        (mine, folder, theirs.owner, []),
        (others, None, owner, []),
        (others, theirs.folder, owner, []),
        (None, folder, None, [mine]),
        (None, theirs.folder, None, [others]),
        (None, theirs.folder, owner, []),
        (None, "", None, []),
        (new_id(), None, None, []),
    ):
        found = await store.search(word, session_id=session_id, folder=of_folder, owner=of)
        asked = f"session {session_id}, folder {of_folder!r}, owner {of}"
        same([each.session_id for each in found], names, f"found with {asked}")


async def finds_nothing_in_what_was_given_away(store: _Finds) -> None:
    """Who had a session before finds nothing in it any more, what stood in it then included."""
    name, word, before, now = (new_id() for _ in range(4))
    await store.append(name, [Described(owner=before), said(word)], expect=0)
    same(_places(await store.search(word, session_id=name, owner=before)), [(name, 2)], "found before")
    await store.append(name, [Described(owner=now)], expect=2)
    for session_id in (name, None):
        same(_places(await store.search(word, session_id=session_id, owner=before)), [], "found by the old")
        same(_places(await store.search(word, session_id=session_id, owner=now)), [(name, 2)], "by the new")


async def finds_what_was_appended_since(store: _Finds) -> None:
    """What is appended after a search is found by the next; a new owner's search finds what was there."""
    name, word, owner = new_id(), new_id(), new_id()
    await store.append(name, [said(word)], expect=0)
    same(await _found(store, word), [(name, 1)], "found at first")
    await store.append(name, [said(f"{word} again"), Described(owner=owner)], expect=1)
    same(await _found(store, word), [(name, 2), (name, 1)], "found after a later append")
    mine = _places(await store.search(word, owner=owner))
    same(mine, [(name, 2), (name, 1)], "found by the owner it was given to")


async def finds_nothing_that_is_gone(store: _Finds) -> None:
    """What was deleted or swept is found no more, also where the id is used again."""
    name, swept, word = new_id(), new_id(), new_id()
    await store.append(name, [said(word), said(word)], expect=0)
    await store.append(swept, [Described(ttl_seconds=1.0, time=2.0), said(word, time=2.0)], expect=0)
    same(len(await store.search(word)), 3, "found before")
    await store.delete(name)
    await store.sweep(now=4.0)
    same(await _found(store, word), [], "found once they are gone")
    await store.append(name, [said("nothing like it"), said(f"anew {word}")], expect=0)
    same(await _found(store, word), [(name, 2)], "found in the session begun anew")


async def finds_odd_texts(store: _Finds) -> None:
    """No sign means anything but double quotes; any script is found; odd characters part words."""
    name, word, long = new_id(), new_id(), "x" * 1_000_000
    texts = (
        "AND OR NOT NEAR",
        "東京都に行く",
        "a\0b\ud800c",
        "naïve İstanbul ΣΑΣ",
        "f(x) = {y*: 'z'}",
        long,
        "회의록을",
    )
    await store.append(name, [said(f"{word} {text}") for text in texts], expect=0)
    for query, seqs in (
        ("AND NOT", [1]),
        ("NEAR(and not)", []),
        ('"京都"', [2]),
        ("東京", [2]),
        ("a\0b c", [3]),
        ("NAI\u0308VE σας", [4]),
        ("f* -x ^y text:z", []),
        ("f* -x ^y :z'; --", [5]),
        (long, [6]),
        (long[:-1], []),
        ("회의록", [7]),
    ):
        shown = f"found by {query[:20]!r}"
        same(await _found(store, f"{word} {query}"), [(name, seq) for seq in seqs], shown)


async def refuses_a_search_for_nothing(store: _Finds) -> None:
    """A text without a word raises UsageError."""
    for text in WORDLESS:
        try:
            await store.search(text)
        except UsageError:
            continue
        raise AssertionError(f"a search for {text!r} must raise UsageError")


async def refuses_a_search_out_of_bounds(store: _Finds) -> None:
    """A number of records below 1, and an owner or a session that is none, raise UsageError."""
    word = new_id()
    for asked in ({"most": 0}, {"most": -1}, {"owner": ""}, {"owner": "a\n"}, {"session_id": ".."}):
        bad: dict[str, Any] = dict(asked)
        try:
            await store.search(word, **bad)
        except UsageError:
            continue
        raise AssertionError(f"a search with {asked} must raise UsageError")


async def _found(store: _Finds, text: str) -> list[tuple[str, int]]:
    return _places(await store.search(text))


def _places(found: Sequence[Found]) -> list[tuple[str, int]]:
    return [(each.session_id, each.record.seq) for each in found]


CHECKS = (
    finds_words_and_phrases,
    finds_what_records_say,
    finds_newest_first_in_bounds,
    finds_only_where_all_bounds_hold,
    finds_nothing_in_what_was_given_away,
    finds_what_was_appended_since,
    finds_nothing_that_is_gone,
    finds_odd_texts,
    refuses_a_search_for_nothing,
    refuses_a_search_out_of_bounds,
)
