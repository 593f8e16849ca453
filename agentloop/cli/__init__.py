"""The command line: `python -m agentloop` and the console script `agentloop` are this program."""

import os
import sys


def leave_folder_alone() -> None:
    """From now on nothing is imported from the folder of the call, as under `python -P`.

    Whoever asks for a chat in a folder has not asked to run its code.
    """
    try:
        here = {"", os.getcwd()}  # noqa: PTH109 — pathlib would be looked for in that folder
    except FileNotFoundError:
        here = {""}
    sys.path[:] = [folder for folder in sys.path if folder not in here]
