"""A conversation and its log: opened, written by one run at a time, exported and imported."""

from agentloop.sessions.checkpoint import checkpoint_of
from agentloop.sessions.conflicts import (
    Rebase,
    MovedOnError,
    appended,
    has_begun,
    rebase_same_run,
    rebase_any,
)
from agentloop.sessions.conflicts import undone, rebase_beside
from agentloop.sessions.export import heading, to_blocks, to_openai
from agentloop.sessions.importing import points_at
from agentloop.sessions.lease import LEASE_SECONDS, Claim, Holder, Leases, WhenBusy, is_dead, new_lease
from agentloop.sessions.lease import part_of, describe, working_for
from agentloop.sessions.session import Session, check_free, check_seen, new_session_id
from agentloop.sessions.transcripts import listed, load, save
