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
    """The line that says how to go on with a session, its options repeated; passwords never stand in it."""
    words = [word for option in settings.given for word in option if "@" not in option[-1]]
    return f"go on with: {program_name()} {shlex.join([*words, '-r', session_id])}"
