"""How to go on after a run."""

import shlex
import sys
from pathlib import Path

from agentloop.cli.settings import Settings


def program_name() -> str:
    """How this program was called, for a hint that can be typed as it stands."""
    called = Path(sys.argv[0]).name if sys.argv else ""
    return "python -m agentloop" if called in ("__main__.py", "-m", "-c", "") else called


def resume_hint(session_id: str, settings: Settings) -> str:
    """The line that says how to go on with a session; a store's password never stands in it."""
    store = f" --store {shlex.quote(settings.store)}" if settings.store_is_flag else ""
    return f"go on with: {program_name()}{'' if '@' in store else store} -r {shlex.quote(session_id)}"
