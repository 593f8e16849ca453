"""How long do monsters take, and how much memory? One text of 5 MB in each script, place and end.

    python -m tests.benchmarks.bench_monsters [PLACE [SCRIPT [END]]]

Each is a run of its own in a child process with its sessions on disc, against a strict provider in this one
with a window of 16,000 tokens. Prints the child's seconds, its processor seconds, the peak of its resident
memory, how many requests it sent, and what came of it.
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.monsters_kit import ENDS, PLACES, SCRIPTS, meet, monster, serving

SIZE = 5_000_000
MOST_MB = 1_000


def child(url: str, place: str, script: str, end: str, size: int) -> dict[str, Any]:
    """Meet the monster in this process, and say what that took."""
    text = monster(script, size)
    began, used = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/sessions.db"
        met = asyncio.run(meet(url, place, text, Path(folder), end=end, store=store))
    took = {"seconds": time.perf_counter() - began, "processor": time.process_time() - used}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return asdict(met) | took | {"mb": peak, "first": _word(met.first), "after": _word(met.after)}


def _word(output: str | None) -> str:
    return "too large" if output is None else "answered"


def measured(place: str, script: str, end: str = ENDS[0], size: int = SIZE) -> dict[str, Any]:
    """What a child process says, and what the provider saw."""
    with serving(place, monster(script, size), end) as server:
        program = [sys.executable, "-m", "tests.benchmarks.bench_monsters", server.url]
        ran = subprocess.run(
            [*program, place, script, end, str(size)], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr[-2_000:]
        return dict(json.loads(ran.stdout)) | {"requests": len(server.requests), "refused": server.refusals}


def line(place: str, script: str, end: str) -> str:
    """The same as one line."""
    try:
        seen = measured(place, script, end)
    except AssertionError as error:
        return f"FAILED: {str(error).strip().splitlines()[-1]}"
    over = f"   OVER {MOST_MB} MB" if seen["mb"] > MOST_MB else ""
    over += f"   refused: {seen['refused']}" if seen["refused"] else ""
    return (
        f"{seen['seconds']:6.1f} s {seen['processor']:6.1f} s {seen['mb']:6.0f} MB {seen['requests']:3} "
        f"requests  {seen['first']}, then {seen['after']}; kept {seen['kept']}, {seen['compaction']}{over}"
    )


def main(places: list[str], scripts: list[str], ends: list[str]) -> None:
    print(f"{'':54}{'all':>8}{'here':>9}{'peak':>10}")
    for place in places:
        for end in ends:
            for script in scripts:
                print(f"{f'{place}, {script}, {end}':54}{line(place, script, end)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("http"):
        given = sys.argv[1:5]
        print(json.dumps(child(given[0], given[1], given[2], given[3], int(sys.argv[5]))))
    else:
        main(sys.argv[1:2] or list(PLACES), sys.argv[2:3] or list(SCRIPTS), sys.argv[3:4] or list(ENDS))
