"""Secrets kept out of all that is written and shown: found by value and by shape, across chunks too."""

from agentloop.redaction.values import known_in_address, secrets_in_address, without_credentials
from agentloop.redaction.streaming import checked_redaction
from agentloop.redaction.streaming import Held, HoldsBack, Redaction
from agentloop.redaction.values import redact_error, redacted, redacted_or_said_why
from agentloop.redaction.shapes import KNOWN_SHAPES
from agentloop.redaction.secrets import LEAST_VALUE_CHARS, Redact, Secrets
from agentloop.redaction.shapes import Shape
from agentloop.redaction.streaming import SLACK_CHARS, head_before, tail_behind

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
