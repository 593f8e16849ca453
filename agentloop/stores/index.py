"""The line that stands for a session in the list, kept from what is appended."""

from collections.abc import Sequence
from dataclasses import replace

from agentloop.events import Described, Event
from agentloop.stores.base import SessionInfo


def described(info: SessionInfo | None, session_id: str, events: Sequence[Event]) -> SessionInfo:
    """The session's line with these events appended; `info` is None for a log that begins with them."""
    if info is None:
        first = events[0].time
        info = SessionInfo(id=session_id, title=None, folder=None, created=first, updated=first, length=0)
    for event in events:
        if isinstance(event, Described):
            title = info.title if event.title is None else event.title
            folder = info.folder if event.folder is None else event.folder
            info = replace(info, title=title, folder=folder)
    return replace(info, updated=events[-1].time, length=info.length + len(events))
