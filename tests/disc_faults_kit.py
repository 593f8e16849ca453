"""The scripted session of the kill tests on a disc that fails from a drawn byte on; see `disc_faults.c`.

`python -m tests.disc_faults_kit` is the warm process. It forks one worker with the faults armed, which runs
to whatever end, and one without, which goes on.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agentloop.cli.main import main
from tests.cli_kit import load_program
from tests.kill_kit import HANGS, Worker, serve
from tests.kill_world import ID, Json, World, hooked

SOURCE = Path(__file__).with_name("disc_faults.c")

QUESTION = "Read every Python file in this folder and say what each one does."


def built(folder: Path) -> Path:
    """The library to preload, compiled by the system's C compiler."""
    library = folder / "disc_faults.so"
    options = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *options, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def armed(fault: Json) -> Callable[[World], None]:
    """What makes the disc of a world fail as drawn, in the process that calls it."""

    def arm(world: World) -> None:
        (world.folder / "disc").mkdir(mode=0o700, exist_ok=True)
        ctypes.CDLL(None).disc_faults_arm(
            os.fsencode((world.folder / "disc").resolve()),
            fault.get("only", "").encode(),
            ctypes.c_long(fault.get("byte", 0)),
            ctypes.c_long(fault.get("sync", 0)),
            fault.get("error", 0),
            ctypes.c_long(fault.get("failing", -1)),
        )

    return arm


def seen() -> Json:
    """What this process wrote so far, and how often it was refused."""
    shim = ctypes.CDLL(None)
    names = ("bytes", "syncs", "failed")
    return {name: getattr(shim, f"disc_faults_{name}")() for name in names}


def trial(asked: Json) -> Json:
    """A run with the fault and one that goes on without it: what each of them came to."""
    world = World(Path(asked["folder"]))
    if "command" in asked:
        return _commands(world, asked)
    return {"faulty": _ended(world, asked["fault"]), "after": _ended(world, {})}


def _ended(world: World, fault: Json) -> Json:
    def prepare(world: World) -> None:
        hooked(world)
        armed(fault)(world)

    worker = Worker(world, prepare, last_words=seen)
    said = worker.next() or HANGS
    while "ended" not in said:
        said = worker.next() or HANGS
    worker.kill()
    return said


def _commands(world: World, asked: Json) -> Json:
    """The same by the command line: the exit status of each call, and what it said."""
    found = {}
    for name, fault in (("faulty", asked["fault"]), ("after", {})):
        worker = Worker(world, partial(_command, fault=fault, workdir=asked["command"]))
        found[name] = {"status": worker.status(), "error": (world.folder / "stderr").read_text()}
    return found


def _command(world: World, fault: Json, workdir: str) -> None:
    """Become the program; it leaves this process itself."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(world.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
    hooked(world)
    armed(fault)(world)
    places = ["--store", f"sqlite:///{world.database}", "--transcripts", str(world.transcripts)]
    options = ["--workdir", workdir, "--session", ID, "--window", "4k"]
    main(["-m", "offline", "-p", QUESTION, *places, *options])


if __name__ == "__main__":
    load_program()
    serve(trial)
