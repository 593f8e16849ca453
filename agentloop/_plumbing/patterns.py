"""Regular expressions that are compiled when they are first used, so that an import compiles none."""

import re
from typing import Any, cast


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern of a module, to be used by its methods alone: functions of `re` do not take it.

    Example:
        >>> pattern("[0-9]+").findall("1 of 20")
        ['1', '20']
    """
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    """Has a method of the compiled pattern from the first time on that it is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value
