"""How to go on after a run."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from agentloop.cli.readings import when_busy
from agentloop.cli.redacting import without_credentials
from agentloop.cli.settings import Settings

_VARIABLES = {"--store": "AGENTLOOP_STORE", "--base-url": "OPENAI_BASE_URL"}
"""The addresses, and what they are called in the environment."""

_BARE_USER = re.compile(r"postgres(?:ql)?://[^:@/?]*@[^@]*")


def program_name() -> str:
    """How this program was called, for a hint that can be typed as it stands."""
    called = Path(sys.argv[0]).name if sys.argv else ""
    return "python -m agentloop" if called in ("__main__.py", "-m", "-c", "") else called


def resume_hint(session_id: str, settings: Settings) -> str:
    """The line that says how to go on with a session, its options repeated.

    An address with a password in it is named in words alone. To take a session over is decided each time.
    """
    given = [option for option in settings.given if not _takes_over(option)]
    hidden = [option[0] for option in given if _holds_password(*option)]
    words = [word for option in given if option[0] not in hidden for word in option]
    line = f"go on with: {program_name()} {shlex.join([*words, '-r', session_id])}"
    same = (f" and the same {name} ({_VARIABLES[name]}), which holds a password" for name in hidden)
    return line + "".join(same)


def _takes_over(option: Sequence[str]) -> bool:
    return option[0] == "--when-busy" and when_busy(option[-1]) == "take_over"


def _holds_password(name: str, value: str = "") -> bool:
    """Whether an address may hold one; the name alone of a user of a database is none."""
    if name not in _VARIABLES:
        return False
    bare_user = name == "--store" and _BARE_USER.fullmatch(value)
    return "passw" in value.lower() or not (bare_user or without_credentials(value) == value)
