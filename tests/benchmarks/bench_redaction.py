"""Seconds of the processor a megabyte that a redaction takes for ordinary and for nasty texts.

python -m tests.benchmarks.bench_redaction [characters of each text [number of drawn texts [seed]]]

The drawn ones are made of what patterns begin with, what parts words and what hides letters. The slowest
twenty of them are printed.
"""

import sys
from random import Random
from time import process_time

from agentloop import Secrets
from agentloop.redaction import KNOWN_SHAPES
from tests.benchmarks.nasty_texts import ATOMS, NASTY

SECRETS = Secrets(["correct horse battery", "ab1, "])


def main(chars: int = 1_000_000, drawn: int = 0, seed: int = 1) -> None:
    """Print a line for each text."""
    for name, piece in NASTY.items():
        print(_line(name, seconds_a_megabyte(piece, chars)))
    random = Random(seed)
    begun = [hint for shape in KNOWN_SHAPES for hint in shape.hints]
    pieces = ["".join(_atoms(random, begun)) for _ in range(drawn)]
    found = sorted(((seconds_a_megabyte(piece, chars), piece) for piece in pieces), reverse=True)
    for seconds, piece in found[:20]:
        print(_line(ascii(piece)[1:-1][:120], seconds))


def seconds_a_megabyte(piece: str, chars: int) -> float:
    """What a text of that piece over and over takes."""
    text = piece * (chars // len(piece))
    SECRETS(text[:2_000])
    start = process_time()
    SECRETS(text)
    return (process_time() - start) * 1_000_000 / len(text)


def _atoms(random: Random, begun: list[str]) -> list[str]:
    """One to five of them; some many times over."""
    atoms = [random.choice(random.choice((begun, ATOMS, ATOMS))) for _ in range(random.randint(1, 5))]
    return [atom * random.choice((1, 1, 1, 3, 40)) for atom in atoms]


def _line(name: str, seconds: float) -> str:
    return f"{name:>24} {seconds:6.2f} s/MB {1 / seconds:8.1f} MB/s"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
