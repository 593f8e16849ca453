"""A conversation and its log: opened, written by one run at a time, exported and imported."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.sessions.session import Conversation, Session, Sessions, new_session_id, title_of
from agentloop.sessions.checkpoint import checkpoint_of
from agentloop.sessions.conflicts import MovedOnError, Rebase, append_rebased, has_begun
from agentloop.sessions.conflicts import rebase_any, rebase_beside, rebase_same_run
from agentloop.sessions.lease import LEASE_SECONDS, Claim, Holder, Leases, WhenBusy
from agentloop.sessions.lease import describe, is_dead, new_lease, part_of, working_for
from agentloop.sessions.media import SessionMedia
from agentloop.sessions.undo import rewind_turns, undo_newest
from agentloop.sessions.value_log import ValueLog
from agentloop.stores.base import branch_id, branch_in

if TYPE_CHECKING:
    from agentloop.sessions.deletion import History
    from agentloop.sessions.export import to_blocks, to_openai
    from agentloop.sessions.pages import PAGE_RECORDS, in_sight, page_reader, read_pages, say_nothing
    from agentloop.sessions.stored_sessions import ExportFormat, StoredSessions
    from agentloop.sessions.transcripts import grow, transcripts_in, load, save
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "deletion": "History",
            "export": "to_blocks to_openai",
            "pages": "PAGE_RECORDS in_sight page_reader read_pages say_nothing",
            "stored_sessions": "ExportFormat StoredSessions",
            "transcripts": "grow transcripts_in load save",
        },
    )
