"""The line that stands for a session in the list, kept from what is appended."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from agentloop.events import Described, Event
from agentloop.stores.base import SessionInfo

T = TypeVar("T")


def described(info: SessionInfo | None, session_id: str, events: Sequence[Event]) -> SessionInfo:
    """The session's line with these events appended; `info` is None for a log that begins with them."""
    if info is None:
        first = events[0].time
        info = SessionInfo(id=session_id, title=None, folder=None, created=first, updated=first, length=0)
    for event in events:
        if isinstance(event, Described):
            info = replace(
                info,
                title=_newer(event.title, info.title),
                folder=_newer(event.folder, info.folder),
                owner=_newer(event.owner, info.owner),
                ttl_seconds=_ttl(_newer(event.ttl_seconds, info.ttl_seconds)),
            )
    return replace(info, updated=events[-1].time, length=info.length + len(events))


def _newer(said: T | None, before: T | None) -> T | None:
    return before if said is None else said


def _ttl(seconds: float | None) -> float | None:
    """The time to live; None where it was taken off, or is none."""
    return float(seconds) if seconds is not None and 0 < seconds <= sys.float_info.max else None
