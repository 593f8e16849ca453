"""Secrets kept out of all that is written and shown: found by value and by shape, across chunks too."""

from agentloop.redaction.addresses import known_in_address, secrets_in_address, without_credentials
from agentloop.redaction.checked import checked_redaction
from agentloop.redaction.held import Held, HoldsBack
from agentloop.redaction.inside import redact_error, redacted, redacted_or_said_why
from agentloop.redaction.known_shapes import KNOWN_SHAPES
from agentloop.redaction.secrets import LEAST_VALUE_CHARS, Redact, Secrets
from agentloop.redaction.shapes import Shape

__all__ = [
    "KNOWN_SHAPES",
    "LEAST_VALUE_CHARS",
    "Held",
    "HoldsBack",
    "Redact",
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
