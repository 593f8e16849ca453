"""Whole conversations drawn from seeds, run through the front door, and judged by what others saw of them.

`python -m tests.fuzz --seed 123` runs one, `--first 0 --count 1000 --jobs 2` many.
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import ssl
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.fuzz_checks import problems
from tests.fuzz_plan import Plan
from tests.fuzz_world import told

A_JOB = 50
"""Seeds that one process takes at a time."""


def faults_of(seeds: Iterable[int]) -> list[str]:
    """What was found wrong in the conversations of these seeds, each with how to run it alone."""
    with _folder() as folder, _few_certificates(folder):
        return asyncio.run(_faults_of(seeds, folder))


async def _faults_of(seeds: Iterable[int], folder: Path) -> list[str]:
    found = []
    for seed in seeds:
        plan = Plan.of(seed)
        own = folder / f"{seed:08d}"
        own.mkdir()
        if wrong := await _wrong(plan, own):
            lines = "\n  ".join(wrong[:10])
            found.append(
                f"seed {seed}:\n  {lines}\n  plan: {plan}\n  alone: python -m tests.fuzz --seed {seed}"
            )
    return found


async def _wrong(plan: Plan, folder: Path) -> list[str]:
    try:
        return problems(await told(plan, folder))
    except Exception:  # noqa: BLE001 — one broken conversation is a finding, and the others are still to run
        return [traceback.format_exc()]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder of this process whose name has always as many tokens: requests name files in it."""
    folder = Path(tempfile.gettempdir()) / f"fuzzed_{os.getpid():08d}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _few_certificates(folder: Path) -> Iterator[None]:
    """Each client loads all certificates, which takes longer than all the rest; here it needs none."""
    path = folder / "certificates.pem"
    for each in ssl.create_default_context().get_ca_certs(binary_form=True)[:1]:
        path.write_text(ssl.DER_cert_to_PEM_cert(each))
    if not path.exists():
        yield
        return
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(path)
    try:
        yield
    finally:
        del os.environ["SSL_CERT_FILE"]
        if before is not None:
            os.environ["SSL_CERT_FILE"] = before


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Run whole conversations drawn from seeds and print what was found wrong. "
        "The exit status is 1 where anything was.",
    )
    parser.add_argument("--seed", type=_whole(0), help="run the conversation of this seed alone")
    parser.add_argument("--first", type=_whole(0), default=0, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--count", type=_whole(1), default=20, help="how many seeds from there on (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=_whole(1), default=1, help="how many processes share them (default: %(default)s)"
    )
    return parser


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number


def main() -> None:
    """Run the conversations asked for and print what was found wrong."""
    given = _parser().parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.count)
    began, found = time.monotonic(), 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for faults in pool.map(faults_of, [seeds[at : at + A_JOB] for at in range(0, len(seeds), A_JOB)]):
            found += len(faults)
            for fault in faults:
                print(fault, flush=True)
    seconds = time.monotonic() - began
    print(f"{len(seeds)} conversations, {found} with faults, {len(seeds) / seconds:.1f} a second")
    raise SystemExit(min(found, 1))


if __name__ == "__main__":
    main()
