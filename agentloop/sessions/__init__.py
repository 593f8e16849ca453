"""A conversation and its log: opened, written by one run at a time, exported and imported."""

from agentloop.sessions.checkpoint import checkpoint_of
from agentloop.sessions.conflicts import CatchUp, MovedOnError, appended, has_begun, kept_up, reloaded
from agentloop.sessions.conflicts import undone, written_beside
from agentloop.sessions.export import heading, to_blocks, to_openai
from agentloop.sessions.importing import points_at
from agentloop.sessions.lease import LEASE_SECONDS, Claim, Hold, Leases, WhenBusy, is_dead, new_lease
from agentloop.sessions.lease import part_of, told, working_for
from agentloop.sessions.session import Session, check_free, check_seen, new_session_id
from agentloop.sessions.transcripts import listed, load, save
