"""Regular expressions that are compiled when they are first used, so that an import compiles none."""

import re
from typing import Any, AnyStr, Generic, cast


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern of a module, to be used by its methods alone: functions of `re` do not take it.

    Example:
        >>> pattern("[0-9]+").findall("1 of 20")
        ['1', '20']
    """
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


class _Pattern(Generic[AnyStr]):
    """Has a method of the compiled pattern from the first time on that it is asked for."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value
