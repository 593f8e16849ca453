"""What a call is to use, put together from layers: a flag beats the environment, which beats the default."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs

from agentloop.cli.layers import Choice, Layers, read
from agentloop.cli.redacting import redaction_for, without_credentials
from agentloop.errors import UsageError
from agentloop.leases import WhenBusy
from agentloop.limits import Limits
from agentloop.redaction import Redact
from agentloop.sizes import amount_of, seconds_of, tokens_of
from agentloop.stores.base import checked_owner

ENVIRONMENT: Mapping[str, str] = {
    "model": "AGENTLOOP_MODEL",
    "base_url": "OPENAI_BASE_URL",
    "api": "AGENTLOOP_API",
    "api_key": "OPENAI_API_KEY",
    "summary_model": "AGENTLOOP_SUMMARY_MODEL",
    "store": "AGENTLOOP_STORE",
    "home": "AGENTLOOP_HOME",
    "window": "AGENTLOOP_WINDOW",
    "compact_at": "AGENTLOOP_COMPACT_AT",
    "transcripts": "AGENTLOOP_TRANSCRIPTS",
    "redact": "AGENTLOOP_REDACT",
    "owner": "AGENTLOOP_OWNER",
    "ttl": "AGENTLOOP_TTL",
    "when_busy": "AGENTLOOP_WHEN_BUSY",
}
DEFAULT_MODEL = "gpt-5-mini"
OFFLINE = "offline"
DEFAULT_FRACTION = 0.8
DEFAULT_STEPS = 200
_APIS = ("chat", "responses")
_ALLOWED = ("write", "shell")
_WHEN_BUSY: Mapping[str, WhenBusy] = {"refuse": "refuse", "wait": "wait", "take-over": "take_over"}
_SHOWN_CHARS = 200


_REPEATED = (
    *("model", "base_url", "api", "summary_model", "store", "workdir", "allow", "window", "compact_at"),
    *("transcripts", "max_steps", "max_tokens", "max_cost", "max_seconds", "no_stream", "system"),
    *("system_file", "tools", "callbacks", "redact", "owner", "when_busy"),
)
"""What a run is repeated with when it goes on."""


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
    workdir = _workdir(layers.choice("workdir"))
    home = home_folder(layers)
    model = layers.value("model")
    reachable = layers.choice("api_key") is not None or layers.choice("base_url") is not None
    return Settings(
        model=model or (DEFAULT_MODEL if reachable else OFFLINE),
        model_is_fallback=model is None and not reachable,
        base_url=_base_url(layers.choice("base_url")),
        api=_api(layers.choice("api")),
        api_key=layers.value("api_key"),
        summary_model=layers.value("summary_model"),
        store=layers.value("store", default_store(home)),
        home=home,
        workdir=workdir,
        allow=_allowed(layers.value("allow", ())),
        window=read(layers.choice("window"), tokens_of),
        compact_at=_fraction(layers.choice("compact_at")),
        transcripts=Path(layers.value("transcripts", ".transcripts")),
        max_steps=int(layers.value("max_steps", DEFAULT_STEPS)),
        limits=_limits(layers),
        streaming=not layers.value("no_stream", False),
        system=_system(layers),
        tools=tuple(layers.value("tools", ())),
        callbacks=tuple(layers.value("callbacks", ())),
        given=tuple(_given(layers)),
        redact=redaction_for(layers, environment),
        owner=read(layers.choice("owner"), checked_owner),
        ttl_seconds=read(layers.choice("ttl"), seconds_of),
        when_busy=read(layers.choice("when_busy"), _when_busy) or "refuse",
    )


def home_folder(layers: Layers) -> Path:
    """Where sessions lie by default: `AGENTLOOP_HOME`, else the user's data folder.

    Raises:
        UsageError: it begins with the home of a user who is not known.
    """
    own = layers.choice("home")
    if own is None:
        return platformdirs.user_data_path("agentloop", appauthor=False)
    try:
        return Path(own.value).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{own.source}: {own.value!r}: there is no such user: write the path") from error


def default_store(home: Path) -> str:
    """The URL of the database in that folder."""
    return f"sqlite:///{home.absolute() / 'sessions.db'}"


def _given(layers: Layers) -> Iterator[tuple[str, ...]]:
    """The options of a run that stood on the command line, each as its words."""
    for name in _REPEATED:
        choice = layers.choice(name)
        if choice is None or not choice.source.startswith("--"):
            continue
        option = "--" + name.replace("_", "-")
        values = choice.value if isinstance(choice.value, tuple | list) else (choice.value,)
        yield from ((option,) if value is True else (option, str(value)) for value in values if value)


def _base_url(choice: Choice | None) -> str | None:
    if choice is None:
        return None
    if not str(choice.value).lower().startswith(("http://", "https://")):
        shown = without_credentials(str(choice.value))
        raise UsageError(f"{choice.source}: {shown!r} is no server: begin it with http:// or https://")
    return str(choice.value)


def _api(choice: Choice | None) -> str:
    if choice is None:
        return _APIS[0]
    if choice.value not in _APIS:
        raise UsageError(f"{choice.source}: {choice.value!r} is no API: use {' or '.join(_APIS)}")
    return str(choice.value)


def _when_busy(text: str) -> WhenBusy:
    if text not in _WHEN_BUSY:
        raise UsageError(f"{text!r} is no rule: use refuse, wait or take-over")
    return _WHEN_BUSY[text]


def _workdir(choice: Choice | None) -> Path:
    named = str(choice.value) if choice else "."
    try:
        folder = Path(named).expanduser()
        if folder.is_dir():
            return folder.resolve(strict=True)
        fault = "is a file, not a folder" if folder.exists() else "is not there"
    except RuntimeError:
        fault = "is the home of no user"
    except (OSError, ValueError) as error:
        fault = "cannot be used, " + (getattr(error, "strerror", None) or str(error))
    shown = named if len(named) <= _SHOWN_CHARS else named[:_SHOWN_CHARS] + "…"
    raise UsageError(f"--workdir: {shown!r} {fault}: name a folder that exists")


def _allowed(names: Sequence[str]) -> frozenset[str]:
    for name in names:
        if name not in _ALLOWED:
            raise UsageError(f"--allow: {name!r} is nothing to allow: use write or shell")
    return frozenset(names)


def _limits(layers: Layers) -> Limits:
    """All but that on steps, which is the agent's."""
    return Limits(
        tokens=read(layers.choice("max_tokens"), tokens_of),
        cost=read(layers.choice("max_cost"), partial(amount_of, unit="US dollars")),
        seconds=read(layers.choice("max_seconds"), partial(amount_of, unit="seconds")),
    )


def _fraction(choice: Choice | None) -> float | None:
    if choice is None:
        return DEFAULT_FRACTION
    text = str(choice.value).strip().lower()
    if text == "off":
        return None
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise UsageError(f"{choice.source}: {choice.value!r} is no fraction: use e.g. 0.8, or off")
    return fraction


def _system(layers: Layers) -> str | None:
    text, path = layers.value("system"), layers.value("system_file")
    if text is not None and path is not None:
        raise UsageError("--system and --system-file: give one of them")
    if path is None:
        return None if text is None else str(text)
    try:
        return Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no UTF-8 text"
        raise UsageError(f"--system-file: {path!r}: {reason}") from error
