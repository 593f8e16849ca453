"""Secrets kept out of all that is written and shown: found by value and by shape, across chunks too."""

from agentloop.redaction.secrets import LEAST_VALUE_CHARS, Redact, Secrets
from agentloop.redaction.shapes import KNOWN_SHAPES, Shape
from agentloop.redaction.streaming import SLACK_CHARS, Held, HoldsBack, Redaction, checked_redaction
from agentloop.redaction.streaming import head_before, tail_behind
from agentloop.redaction.values import known_in_address, redact_error, redacted, redacted_or_said_why
from agentloop.redaction.values import secrets_in_address, without_credentials

__all__ = [
    "KNOWN_SHAPES",
    "LEAST_VALUE_CHARS",
    "Held",
    "HoldsBack",
    "Redact",
    "Redaction",
    "Secrets",
    "Shape",
    "checked_redaction",
    "known_in_address",
    "redact_error",
    "redacted",
    "redacted_or_said_why",
    "secrets_in_address",
    "without_credentials",
]
