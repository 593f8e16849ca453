"""Where settings come from: layers, each a mapping from a setting's name to its text.

The first layer that names a setting wins: a flag beats the environment, which beats the default. More
layers, such as configuration files, stand behind these two.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from agentloop.errors import UsageError

T = TypeVar("T")
Names: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting's value as it was written, and where: `--window` or `AGENTLOOP_WINDOW`."""

    value: Any
    source: str


class Layers:
    """The layers of one call, strongest first; each has a name for where a setting stands in it.

    `names` are the variables of the environment for the settings that have one.
    """

    def __init__(self, flags: Mapping[str, Any], environment: Mapping[str, str], names: Names) -> None:
        self._layers: Sequence[Mapping[str, Choice]] = (
            _from_flags(flags),
            _from_environment(environment, names),
        )

    def choice(self, name: str) -> Choice | None:
        """The strongest layer's word on this setting, None where none has one."""
        return next((layer[name] for layer in self._layers if name in layer), None)

    def value(self, name: str, default: Any = None) -> Any:
        """The chosen value as it was written, else the default."""
        found = self.choice(name)
        return default if found is None else found.value


def read(choice: Choice | None, of: Callable[[str], T]) -> T | None:
    """What a setting's text stands for, None where no layer names it.

    Raises:
        UsageError: it stands for nothing; the text names the flag or the variable that it came from.
    """
    if choice is None:
        return None
    try:
        return of(choice.value)
    except UsageError as error:
        raise UsageError(f"{choice.source}: {error}") from error


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Choice]:
    given = {name: value for name, value in flags.items() if value not in (None, (), False)}
    return {name: Choice(value=value, source=f"--{name.replace('_', '-')}") for name, value in given.items()}


def _from_environment(environment: Mapping[str, str], names: Names) -> dict[str, Choice]:
    given = {name: environment.get(variable, "").strip() for name, variable in names.items()}
    return {name: Choice(value=value, source=names[name]) for name, value in given.items() if value}
