"""The hint how to go on with a session, as a command that can be typed as it stands."""

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from agentloop.cli.settings import Settings, read_when_busy
from agentloop.redaction import Secrets, secrets_in_address

_VARIABLES = {"--store": "AGENTLOOP_STORE", "--base-url": "OPENAI_BASE_URL"}
"""The addresses, and what they are called in the environment."""
_BARE_USER = re.compile(r"postgres(?:ql)?://[^:@/?]*:?@[^@]*")


def resume_hint(session_id: str, settings: Settings) -> str:
    """The line that says how to go on with a session, its options repeated.

    An address with a secret in it is named in words alone, and so is each header. To take a session over is
    decided each time.
    """
    given = [option for option in settings.given if not _takes_over(option)]
    hidden = [option[0] for option in given if _holds_secret(*option)]
    words = [word for option in given if option[0] not in hidden for word in option]
    line = f"go on with: {program_name()} {shlex.join([*words, '-r', session_id])}"
    same = [f" and the same {name} ({_VARIABLES[name]}), which holds a secret" for name in hidden]
    same += [f" and the same --header {name}, which is not kept" for name in settings.headers]
    return line + "".join(same)


def program_name() -> str:
    """How this program was called, for a hint that can be typed as it stands."""
    called = sys.argv[0] if sys.argv else ""
    if Path(called).name in ("__main__.py", "-m", "-c", ""):
        return f"{_found_by(sys.executable, 'python')} -m agentloop"
    return _found_by(called, Path(called).name)


def _takes_over(option: Sequence[str]) -> bool:
    return option[0] == "--when-busy" and read_when_busy(option[-1]) == "take_over"


def _holds_secret(name: str, value: str = "") -> bool:
    """Whether an address may hold one; the name alone of a user of a database is none."""
    if name not in _VARIABLES:
        return False
    if secrets_in_address(value) or Secrets()(value) != value:
        return True
    bare_user = name == "--store" and _BARE_USER.fullmatch(value)
    return "passw" in value.lower() or ("@" in value and not bare_user)


def _found_by(path: str, name: str) -> str:
    """The name, where a shell finds that program by it, else its path."""
    found = shutil.which(name)
    is_found = path == name or (found and Path(found).absolute() == Path(path).absolute())
    return name if is_found else shlex.quote(path)
