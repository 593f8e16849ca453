"""Secrets kept out of all that is written and shown: found by value and by shape, across chunks too."""

from agentloop.redaction.addresses import (
    known_in_address,
    secrets_in_address,
    secrets_in_header,
    without_credentials,
)
from agentloop.redaction.environment import LEAST_CHARS, secrets_in, without_secrets
from agentloop.redaction.redaction import Redaction, checked_redaction
from agentloop.redaction.secrets import Redact, Secrets
from agentloop.redaction.shapes import KNOWN_SHAPES, Shape
from agentloop.redaction.streaming import SLACK_CHARS, Held, head_before, tail_behind
from agentloop.redaction.values import redact_error, redacted, redacted_or_said_why

__all__ = [
    "KNOWN_SHAPES",
    "LEAST_CHARS",
    "Held",
    "Redact",
    "Redaction",
    "Secrets",
    "Shape",
    "checked_redaction",
    "known_in_address",
    "redact_error",
    "redacted",
    "redacted_or_said_why",
    "secrets_in",
    "secrets_in_address",
    "secrets_in_header",
    "without_credentials",
    "without_secrets",
]
