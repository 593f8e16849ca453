"""How the strict provider reports usage: rightly, or in one of the ways in which servers get it wrong."""

from collections.abc import Callable
from typing import TypeAlias, cast

from tests.strict_bodies import Body

UsageReport: TypeAlias = Callable[[int, int, int], Body | None]
"""What is reported from the prompt's tokens, the answer's, and the request's number from 1."""


def usage_report(name: str) -> UsageReport:
    """The report of that name, among them unasked: in a stream also where nobody asked for it."""
    reports: dict[str, UsageReport] = {
        "right": lambda prompt, answer, _: _report(prompt, answer),
        "unasked": lambda prompt, answer, _: _report(prompt, answer),
        "absent": lambda prompt, answer, _: None,
        "zeros": lambda prompt, answer, _: _report(0, 0),
        "output-only": lambda prompt, answer, _: {"completion_tokens": answer},
        "first-only": lambda prompt, answer, number: _report(prompt, answer) if number == 1 else None,
        "half": lambda prompt, answer, _: _report(prompt // 2, answer // 2),
        "double": lambda prompt, answer, _: _report(prompt * 2, answer * 2),
        "cumulative": _cumulative(),
        "stale": _stale(),
        "standing": _standing(),
        "negative": _each_as(lambda number: -number - 1),
        "huge": _each_as(lambda number: 10**12 + number),
        "strings": _each_as(str),
        "floats": _each_as(float),
        "nulls": _each_as(lambda number: None),
        "true": _each_as(bool),
        "a list": _each_as(lambda number: [number]),
        "no object": lambda prompt, answer, _: cast("Body", [prompt, answer]),
        "overcached": _overcached,
        "uncached": _uncached(),
        "halved": lambda prompt, answer, _: _report(_halved(prompt), answer),
        "trimmed": lambda prompt, answer, _: _report(_trimmed(prompt), answer),
    }
    return reports[name]


def _report(prompt: int, answer: int) -> Body:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": prompt // 2},
    }


def _cumulative() -> UsageReport:
    seen = [0, 0]

    def report(prompt: int, answer: int, _: int) -> Body:
        seen[:] = seen[0] + prompt, seen[1] + answer
        return _report(*seen)

    return report


def _stale() -> UsageReport:
    seen = [(0, 0)]

    def report(prompt: int, answer: int, _: int) -> Body:
        seen.append((prompt, answer))
        return _report(*seen[-2])

    return report


def _standing() -> UsageReport:
    first: list[Body] = []

    def report(prompt: int, answer: int, _: int) -> Body:
        first.append(_report(prompt, answer))
        return first[0]

    return report


def _uncached() -> UsageReport:
    """What is new since the request before; all of it in each fifth, when what was cached is forgotten."""
    before = [0]

    def report(prompt: int, answer: int, number: int) -> Body:
        known = before[0] if number % 5 and before[0] <= prompt else 0
        before[0] = prompt
        return _report(prompt - known, answer)

    return report


CUT_TO = 4_096
"""The window of a server that cuts prompts in silence, as Ollama's is by default."""


def _halved(prompt: int) -> int:
    """What Ollama reports of a last message that is too long: half of the window, and two tokens."""
    return prompt if prompt <= CUT_TO else CUT_TO // 2 + 2


def _trimmed(prompt: int) -> int:
    """What Ollama reports where it drops old messages, of 700 tokens here, until the rest fits."""
    return prompt - 700 * max(0, -(-(prompt - CUT_TO) // 700))


def _each_as(made: Callable[[int], object]) -> UsageReport:
    """The report with each of its numbers made something else."""

    def report(prompt: int, answer: int, _: int) -> Body:
        whole = _report(prompt, answer)
        details = {key: made(value) for key, value in whole.pop("prompt_tokens_details").items()}
        return {key: made(value) for key, value in whole.items()} | {"prompt_tokens_details": details}

    return report


def _overcached(prompt: int, answer: int, _: int) -> Body:
    return _report(prompt, answer) | {"prompt_tokens_details": {"cached_tokens": prompt * 3}}
