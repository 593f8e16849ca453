"""A record of what is covered, computed without a model."""

from agentloop.compaction.digest.digest import Findings, digest
from agentloop.compaction.digest.earlier import first_within, is_digest, parse_records
from agentloop.compaction.digest.language import FILES, MORE_FILES, NAMED
