"""What a call is to use, put together from layers: a flag beats the environment, which beats the default."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs

from agentloop._plumbing.checks import amount_of, seconds_of, tokens_of
from agentloop.cli import readings
from agentloop.cli.layers import Choice, Layers, read
from agentloop.cli.options import KNOWN, REPEATED
from agentloop.cli.redacting import redaction_for
from agentloop.errors import UsageError
from agentloop.redaction import Redact
from agentloop.run import MOST_STEPS, Limits
from agentloop.sessions import WhenBusy
from agentloop.stores.base import checked_owner

ENVIRONMENT: Mapping[str, str] = {
    **{each.name: each.variable for each in KNOWN if each.variable},
    "api_key": "OPENAI_API_KEY",
    "home": "AGENTLOOP_HOME",
}
DEFAULT_MODEL = "gpt-5-mini"
OFFLINE = "offline"
DEFAULT_FRACTION = 0.8


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the settings that one option or variable sets, of its own name if `of` names no other.

    `reads` says what its text stands for; where no layer has one, it is `otherwise`.
    """

    name: str
    reads: Callable[[Any], Any] = str
    otherwise: Any = None
    of: str | None = None

    def value(self, layers: Layers) -> Any:
        """What the strongest layer says, read."""
        choice = layers.choice(self.of or self.name)
        return self.otherwise if choice is None else read(choice, self.reads)


_FIELDS: Sequence[_Field] = (
    _Field("base_url", readings.server),
    _Field("api", readings.api, readings.APIS[0]),
    _Field("api_key"),
    _Field("summary_model"),
    _Field("allow", readings.allowed, frozenset[str]()),
    _Field("window", tokens_of),
    _Field("compact_at", readings.fraction, DEFAULT_FRACTION),
    _Field("transcripts", readings.path, Path(".transcripts")),
    _Field("max_steps", int, MOST_STEPS),
    _Field("tools", tuple, ()),
    _Field("callbacks", tuple, ()),
    _Field("owner", checked_owner),
    _Field("ttl_seconds", seconds_of, of="ttl"),
    _Field("when_busy", readings.when_busy, "refuse"),
)
"""The others are put together from several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one call uses. `compact_at` is None where automatic compaction is off, `window` in tokens.

    `given` are the options that stood on the command line, each as its words. `redact` takes secrets out of
    what is stored and shown; None where that is off. `owner` is whose sessions are seen, None for all; new
    ones are theirs and expire after `ttl_seconds` without a new record, None for never.
    """

    model: str
    model_is_fallback: bool
    base_url: str | None = field(repr=False)
    api: str
    api_key: str | None = field(repr=False)
    summary_model: str | None
    store: str
    home: Path
    workdir: Path
    allow: frozenset[str]
    window: int | None
    compact_at: float | None
    transcripts: Path
    max_steps: int
    limits: Limits
    streaming: bool
    system: str | None
    tools: tuple[str, ...]
    callbacks: tuple[str, ...]
    given: tuple[tuple[str, ...], ...] = field(repr=False)
    redact: Redact | None
    owner: str | None = None
    ttl_seconds: float | None = None
    when_busy: WhenBusy = "refuse"


def settings_for(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Everything a call needs to know, checked.

    Raises:
        UsageError: a value is none; the text names the flag or the variable that it came from.
    """
    environment = os.environ if environment is None else environment
    layers = Layers(flags, environment, ENVIRONMENT)
    home = home_folder(layers)
    model = layers.value("model")
    reachable = layers.choice("api_key") is not None or layers.choice("base_url") is not None
    return Settings(
        model=model or (DEFAULT_MODEL if reachable else OFFLINE),
        model_is_fallback=model is None and not reachable,
        store=layers.value("store", default_store(home)),
        home=home,
        workdir=_workdir(layers),
        limits=_limits(layers),
        streaming=not layers.value("no_stream", False),
        system=_system(layers),
        given=tuple(_given(layers)),
        redact=redaction_for(layers, environment),
        **{each.name: each.value(layers) for each in _FIELDS},
    )


def home_folder(layers: Layers) -> Path:
    """Where sessions lie by default: `AGENTLOOP_HOME`, else the user's data folder.

    Raises:
        UsageError: it begins with the home of a user who is not known.
    """
    own = read(layers.choice("home"), readings.path)
    return own or platformdirs.user_data_path("agentloop", appauthor=False)


def default_store(home: Path) -> str:
    """The URL of the database in that folder."""
    return f"sqlite:///{home.absolute() / 'sessions.db'}"


def _given(layers: Layers) -> Iterator[tuple[str, ...]]:
    """The options of a run that stood on the command line, each as its words."""
    for each in REPEATED:
        choice = layers.choice(each.name)
        if choice is None or not choice.source.startswith("--"):
            continue
        values = choice.value if isinstance(choice.value, tuple | list) else (choice.value,)
        words = (
            (choice.source,) if value is True else (choice.source, str(value)) for value in values if value
        )
        yield from words


def _workdir(layers: Layers) -> Path:
    choice = layers.choice("workdir") or Choice(value=".", source="--workdir")
    found = read(choice, readings.folder)
    assert found is not None
    return found


def _limits(layers: Layers) -> Limits:
    """All but that on steps, which is the agent's."""
    return Limits(
        tokens=read(layers.choice("max_tokens"), tokens_of),
        cost=read(layers.choice("max_cost"), partial(amount_of, unit="US dollars")),
        seconds=read(layers.choice("max_seconds"), partial(amount_of, unit="seconds")),
    )


def _system(layers: Layers) -> str | None:
    text, file = layers.value("system"), layers.choice("system_file")
    if text is not None and file is not None:
        raise UsageError("--system and --system-file: give one of them")
    if file is not None:
        return read(file, readings.text_of_file)
    return None if text is None else str(text)
