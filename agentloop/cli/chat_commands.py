"""The commands of the chat."""

import re
from dataclasses import dataclass

HELP = """\
/compact [FOCUS]  make the context smaller now; FOCUS is what the summary must keep above all
/preview          what /compact would do
/undo             take the newest compaction back
/status           how full the window is
/help             this list
/quit, /exit      end the chat, as Ctrl-D does; the session is kept
Ctrl-C ends an answer and not the chat."""

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command and what stands behind it."""

    name: str
    rest: str = ""


def command_in(message: str) -> Command | None:
    """The command that the message is, else None; a path such as /etc/hosts is none."""
    found = _COMMAND.fullmatch(message)
    return Command(name=found[1], rest=(found[2] or "").strip()) if found else None
