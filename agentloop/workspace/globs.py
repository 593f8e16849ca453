"""Glob patterns over POSIX paths: `*`, `?`, `[…]` inside a name, `**` for any folders, `{a,b}` for either.

Matching takes time proportional to pattern times path, whatever the pattern.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator
from itertools import islice

from agentloop.workspace.folder import WorkspaceError

_MOST_ALTERNATIVES = 64
_MOST_CHARS = 1_000


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path matches the pattern as a whole.

    Raises:
        WorkspaceError: the pattern has more than 1,000 characters.
    """
    if len(pattern) > _MOST_CHARS:
        raise WorkspaceError(f"the pattern has {len(pattern):,} characters: use at most {_MOST_CHARS:,}")
    alternatives = [_compiled(each) for each in islice(_expanded(pattern), _MOST_ALTERNATIVES)]
    return lambda path: any(_matches(path.split("/"), names) for names in alternatives)


def _compiled(pattern: str) -> list[re.Pattern[str] | None]:
    """One expression a name, None for `**`."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _matches(path: list[str], names: list[re.Pattern[str] | None]) -> bool:
    places = _beyond_stars({0}, names)
    for part in path:
        places = _beyond_stars(set(_stepped(part, places, names)), names)
    return len(names) in places


def _stepped(part: str, places: set[int], names: list[re.Pattern[str] | None]) -> Iterator[int]:
    for place in places:
        if place == len(names):
            continue
        name = names[place]
        if name is None:
            yield place
        elif name.match(part):
            yield place + 1


def _beyond_stars(places: set[int], names: list[re.Pattern[str] | None]) -> set[int]:
    """Also the places behind each `**`, which may stand for no folder at all."""
    reached = set(places)
    for place in range(len(names)):
        if place in reached and names[place] is None:
            reached.add(place + 1)
    return reached


def _expanded(pattern: str) -> Iterator[str]:
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if not found:
        yield pattern
        return
    for choice in found[1].split(","):
        yield from _expanded(pattern[: found.start()] + choice + pattern[found.end() :])
