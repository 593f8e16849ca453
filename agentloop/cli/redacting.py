"""What takes secrets out of what the program stores and shows: on unless it is switched off."""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module

from agentloop.cli.layers import Layers
from agentloop.redaction import Redact, Secrets, known_in_address

LEAST_CHARS = 8
"""A shorter value of the environment is as good as a word of its own."""

_NAMES = re.compile(r"(?:^|_)(?:API|ACCESS)?KEYS?(?:_|$)|APIKEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL")
_NO_SECRET = re.compile(
    r"[0-9.,:-]+|true|false|enabled|disabled|required|optional|(?:[~.]*|[A-Za-z]:)[/\\].*|[a-z+]+://[^@]*",
    re.IGNORECASE | re.DOTALL,
)
"""Numbers, switches, paths and addresses."""


def redaction_for(layers: Layers, environment: Mapping[str, str]) -> Redact | None:
    """The redaction asked for, None for `off`; by default known shapes and the environment's secrets.

    Raises:
        UsageError: what is named is no redaction.
    """
    choice = layers.choice("redact")
    if choice is None:
        values = {*secrets_in(environment), str(layers.value("api_key", ""))}
        for address in ("base_url", "store"):
            values.update(known_in_address(str(layers.value(address, ""))))
        return Secrets(sorted(value for value in values if len(value) >= LEAST_CHARS))
    name = str(choice.value).strip()
    if name.lower() == "off":
        return None
    # Loading what users name takes the tools along, which stored sessions do not need.
    redact: Redact = import_module("agentloop.cli.loading").load_redaction(choice.source, name)
    return redact


def secrets_in(environment: Mapping[str, str]) -> Iterator[str]:
    """The values of variables whose names say key, token, secret or password, as far as they can be one."""
    for name, value in environment.items():
        value = value.strip()
        if _NAMES.search(name.upper()) and len(value) >= LEAST_CHARS and not _NO_SECRET.fullmatch(value):
            yield value
