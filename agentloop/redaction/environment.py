"""Which variables of an environment hold a secret: told by their names, and by passwords in addresses."""

import re
from collections.abc import Collection, Mapping

from agentloop.redaction.addresses import known_in_address

LEAST_CHARS = 8
"""A shorter value of the environment is as good as a word of its own."""
_NAMES = r"(?:^|_)(?:API|ACCESS)?KEYS?(?:_|$)|APIKEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL"
_NO_SECRET = (
    r"[0-9.,:-]+|true|false|enabled|disabled|required|optional|(?:[~.]*|[A-Za-z]:)[/\\].*|[a-z+]+://[^@]*"
)
"""Numbers, switches, paths and addresses."""


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names say key, token, secret or password, as far as their values can be one."""
    return {name: value for name, value in environment.items() if _says_secret(name, value.strip())}


def without_secrets(environment: Mapping[str, str], *, but: Collection[str] = ()) -> dict[str, str]:
    """The environment without them, and without addresses that hold a password; `but` names what stays."""
    secrets = secrets_in(environment)
    return {
        name: value
        for name, value in environment.items()
        if name in but or not (name in secrets or ("://" in value and known_in_address(value)))
    }


def _says_secret(name: str, value: str) -> bool:
    if len(value) < LEAST_CHARS or not re.search(_NAMES, name.upper()):
        return False
    return not re.fullmatch(_NO_SECRET, value, re.IGNORECASE | re.DOTALL)
