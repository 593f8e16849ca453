"""`python -m tests.nets.freeze [PART …]`: write the data of the nets anew, or of those named.

The logs are what was once written, so they stay: only what is read of them is written anew.
"""

import sys
from collections.abc import Callable, Mapping

from tests.forks import fork_server
from tests.nets import commands, frozen, logs, requests, surface

PARTS: Mapping[str, Callable[[], None]] = {
    "surface": lambda: frozen.write(surface.FILE, surface.surface()),
    "logs": logs.freeze,
    "requests": requests.freeze,
    "commands": commands.freeze,
}


def main() -> None:
    """Write what is asked for."""
    with fork_server():
        for part in sys.argv[1:] or PARTS:
            PARTS[part]()


if __name__ == "__main__":
    main()
