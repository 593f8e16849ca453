"""What one call uses: each setting from its flag, else from the environment, else by default.

`_FIELDS` is the table of settings, each with how its text is read and its default; the flags and their
variables are those of `options`. `settings_for` puts them together. The first layer that names a setting
wins; more layers, such as configuration files, would stand behind these two.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import platformdirs

from agentloop._plumbing.amounts import amount_of, seconds_of, tokens_of, whole_of
from agentloop._plumbing.checks import headers_or_none
from agentloop._plumbing.strict_json import STRICT_JSON
from agentloop.cli.options import HEADER, KNOWN, REPEATED
from agentloop.errors import UsageError
from agentloop.redaction import (
    LEAST_CHARS,
    Redact,
    Secrets,
    known_in_address,
    secrets_in,
    secrets_in_header,
    without_credentials,
)
from agentloop.run import MOST_STEPS, Limits
from agentloop.sessions import WhenBusy
from agentloop.stores.base import checked_owner
from agentloop.workspace import PERMISSIONS

T = TypeVar("T")
Names: TypeAlias = Mapping[str, str]
APIS = ("chat", "responses")
_WHEN_BUSY: Mapping[str, WhenBusy] = {"refuse": "refuse", "wait": "wait", "take-over": "take_over"}
_SHOWN_CHARS = 200
ENVIRONMENT: Mapping[str, str] = {
    **{each.name: each.variable for each in KNOWN if each.variable},
    "api_key": "OPENAI_API_KEY",
    "home": "AGENTLOOP_HOME",
}
DEFAULT_MODEL = "gpt-5-mini"
OFFLINE = "offline"
MEMORY = "memory:"
DEFAULT_FRACTION = 0.8


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


def read_server(text: str) -> str:
    """The URL of a server, as it stands.

    Raises:
        UsageError: it does not begin with http:// or https://; a password in it is not repeated.
    """
    if text.lower().startswith(("http://", "https://")):
        return text
    raise UsageError(f"{without_credentials(text)!r} is no server: begin it with http:// or https://")


def read_api(text: str) -> str:
    """The API of that name.

    Raises:
        UsageError: there is none.
    """
    if text in APIS:
        return text
    raise UsageError(f"{text!r} is no API: use {' or '.join(APIS)}")


def read_headers(lines: Sequence[str]) -> Mapping[str, str]:
    """The headers that these lines give, each a name, a colon and a value.

    Raises:
        UsageError: one of them is none; its value is not repeated.
    """
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise UsageError("a header without a colon: write 'NAME: VALUE'")
        if name.lower() in map(str.lower, headers):
            raise UsageError(f"{name} is given twice")
        headers[name] = value
    return headers_or_none("the header", headers) or {}


def read_when_busy(text: str) -> WhenBusy:
    """The rule of that name, which may also be written as in Python: `take_over`.

    Raises:
        UsageError: there is none.
    """
    word = text.strip().lower().replace("_", "-")
    if word in _WHEN_BUSY:
        return _WHEN_BUSY[word]
    raise UsageError(f"{text!r} is no rule: use refuse, wait or take-over")


def read_path(text: str) -> Path:
    """The path, a home at its beginning written out: a shell leaves `--option=~/x` and variables as they are.

    Raises:
        UsageError: it is the home of nobody.
    """
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"{_brief(text)!r} is the home of no user: write the path") from None


def read_folder(text: str) -> Path:
    """The folder, which exists, its links followed.

    Raises:
        UsageError: it does not, or cannot be used.
    """
    named = read_path(text)
    try:
        if named.is_dir():
            return named.resolve(strict=True)
        fault = "is a file, not a folder" if named.exists() else "is not there"
    except (OSError, ValueError) as error:
        fault = "cannot be used, " + (getattr(error, "strerror", None) or str(error))
    raise UsageError(f"{_brief(text)!r} {fault}: name a folder that exists")


def read_text_file(text: str) -> str:
    """What the file of that name holds.

    Raises:
        UsageError: it cannot be read, or is not in UTF-8.
    """
    file = read_path(text)
    try:
        return file.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "is no UTF-8 text" if isinstance(error, UnicodeError) else getattr(error, "strerror", error)
        raise UsageError(f"{_brief(text)!r}: {reason}") from error


def read_variables(names: Sequence[str]) -> tuple[str, ...]:
    """Names of variables of the environment.

    Raises:
        UsageError: one can be none.
    """
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"{_brief(name)!r} is no name of a variable: write e.g. GITHUB_TOKEN")
    return tuple(names)


def read_allowed(names: Sequence[str]) -> frozenset[str]:
    """What is allowed.

    Raises:
        UsageError: one of the names is none of it.
    """
    for name in names:
        if name not in PERMISSIONS:
            raise UsageError(f"{name!r} is nothing to allow: use {' or '.join(PERMISSIONS)}")
    return frozenset(names)


def read_fraction(text: str) -> float | None:
    """The share, above 0 and at most 1; None for `off`.

    Raises:
        UsageError: it is none.
    """
    word = text.strip().lower()
    if word == "off":
        return None
    try:
        share = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(
            f"{_brief(text)!r} is no share above 0 and up to 1: write one such as 0.8 or 80%, or off"
        )
    return share


def read_temperature(text: str) -> float:
    """The number, at least 0.

    Raises:
        UsageError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if 0 <= number < math.inf:
        return number
    raise UsageError(f"{_brief(text)!r} is no number of at least 0: write one such as 0.7")


def read_fields(text: str) -> Mapping[str, Any]:
    """The fields of a JSON object.

    Raises:
        UsageError: it is none.
    """
    try:
        found = STRICT_JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{_brief(text)!r} is no JSON: {error}") from error
    if isinstance(found, dict):
        return found
    raise UsageError(f"{_brief(text)!r} is no JSON object: write e.g. '{{\"top_p\": 0.9}}'")


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


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
    _Field("base_url", read_server),
    _Field("api", read_api, APIS[0]),
    _Field("api_key"),
    _Field("headers", read_headers, MappingProxyType({}), of="header"),
    _Field("summary_model"),
    _Field("allow", read_allowed, frozenset[str]()),
    _Field("window", tokens_of),
    _Field("timeout_seconds", partial(amount_of, unit="seconds"), 300.0, of="timeout"),
    _Field("temperature", read_temperature),
    _Field("extra", read_fields),
    _Field("compact_at", read_fraction, DEFAULT_FRACTION),
    _Field("transcripts", read_path, Path(".transcripts")),
    _Field("max_steps", whole_of, MOST_STEPS),
    _Field("pass_env", read_variables, ()),
    _Field("tools", tuple, ()),
    _Field("callbacks", tuple, ()),
    _Field("owner", checked_owner),
    _Field("ttl_seconds", seconds_of, of="ttl"),
    _Field("when_busy", read_when_busy, "refuse"),
)
"""The others are put together from several."""


def read_setting(name: str, text: str) -> Any:
    """What the text stands for as the setting of that name.

    Raises:
        UsageError: it stands for nothing.
    """
    return next((each.reads for each in _FIELDS if each.name == name), str)(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one call uses. `compact_at` is None where automatic compaction is off, `window` in tokens.

    `given` are the options that stood on the command line, each as its words. `redact` takes secrets out of
    what is stored and shown; None where that is off. `owner` is whose sessions are seen, None for all; new
    ones are theirs and expire after `ttl_seconds` without a new record, None for never. `resumed_with`
    says what is taken up from the session that the call goes on with.
    """

    model: str
    model_is_fallback: bool
    base_url: str | None = field(repr=False)
    api: str
    api_key: str | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    summary_model: str | None
    store: str
    home: Path
    workdir: Path
    allow: frozenset[str]
    pass_env: tuple[str, ...]
    window: int | None
    compact_at: float | None
    transcripts: Path
    max_steps: int
    limits: Limits
    recall: bool
    streaming: bool
    system: str | None
    tools: tuple[str, ...]
    callbacks: tuple[str, ...]
    given: tuple[tuple[str, ...], ...] = field(repr=False)
    redact: Redact | None
    timeout_seconds: float = 300.0
    temperature: float | None = None
    extra: Mapping[str, Any] | None = field(default=None, repr=False)
    owner: str | None = None
    ttl_seconds: float | None = None
    when_busy: WhenBusy = "refuse"
    resumed_with: str | None = None

    @property
    def server(self) -> Mapping[str, Any]:
        """Where the model is and what lets in there, as the arguments of a model."""
        return {"base_url": self.base_url, "api_key": self.api_key, "headers": self.headers}

    @property
    def names_server(self) -> bool:
        """Whether there is one to be asked: an address, a key or what stands in its place."""
        return bool(self.base_url or self.api_key or _lets_in(self.headers))


def settings_for(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Everything a call needs to know, checked.

    Raises:
        UsageError: a value is none; the text names the flag or the variable that it came from.
    """
    environment = os.environ if environment is None else environment
    layers = Layers(flags, environment, ENVIRONMENT)
    home = home_folder(layers)
    model = layers.value("model")
    reachable = any(map(layers.choice, ("api_key", "base_url"))) or _lets_in(_headers(layers))
    return Settings(
        model=model or (DEFAULT_MODEL if reachable else OFFLINE),
        model_is_fallback=model is None and not reachable,
        store=layers.value("store", default_store(home)),
        home=home,
        workdir=_workdir(layers),
        limits=_limits(layers),
        recall=not layers.value("no_recall", False),
        streaming=not layers.value("no_stream", False),
        system=_system(layers),
        given=tuple(_given(layers)),
        redact=redaction_for(layers, environment),
        **{each.name: each.value(layers) for each in _FIELDS},
    )


def _headers(layers: Layers) -> Mapping[str, str]:
    return read(layers.choice("header"), read_headers) or {}


def _lets_in(headers: Mapping[str, str]) -> bool:
    return "authorization" in map(str.lower, headers)


def home_folder(layers: Layers) -> Path:
    """Where sessions lie by default: `AGENTLOOP_HOME`, else the user's data folder.

    Raises:
        UsageError: it begins with the home of a user who is not known.
    """
    own = read(layers.choice("home"), read_path)
    return own or platformdirs.user_data_path("agentloop", appauthor=False)


def default_store(home: Path) -> str:
    """The URL of the database in that folder."""
    return f"sqlite:///{home.absolute() / 'sessions.db'}"


def _given(layers: Layers) -> Iterator[tuple[str, ...]]:
    """The options of a run that stood on the command line, each as its words; headers may hold secrets."""
    for each in REPEATED:
        choice = layers.choice(each.name)
        if choice is None or not choice.source.startswith("--") or each is HEADER:
            continue
        values = choice.value if isinstance(choice.value, tuple | list) else (choice.value,)
        words = (
            (choice.source,) if value is True else (choice.source, str(value)) for value in values if value
        )
        yield from words


def _workdir(layers: Layers) -> Path:
    choice = layers.choice("workdir") or Choice(value=".", source="--workdir")
    found = read(choice, read_folder)
    assert found is not None
    return found


def _limits(layers: Layers) -> Limits:
    """All but that on steps, which is the agent's."""
    return Limits(
        tokens=read(layers.choice("max_tokens"), tokens_of),
        cost=read(layers.choice("max_cost"), partial(amount_of, unit="US dollars")),
        seconds=read(layers.choice("max_seconds"), partial(amount_of, unit="seconds")),
        repeats=read(layers.choice("max_repeats"), partial(whole_of, least=2)),
    )


def _system(layers: Layers) -> str | None:
    text, file = layers.value("system"), layers.choice("system_file")
    if text is not None and file is not None:
        raise UsageError("--system and --system-file: give one of them")
    if file is not None:
        return read(file, read_text_file)
    return None if text is None else str(text)


def redaction_for(layers: Layers, environment: Mapping[str, str]) -> Redact | None:
    """The redaction asked for, None for `off`; by default known shapes and the environment's secrets.

    Raises:
        UsageError: what is named is no redaction.
    """
    choice = layers.choice("redact")
    if choice is None:
        values = {*map(str.strip, secrets_in(environment).values()), str(layers.value("api_key", ""))}
        for address in ("base_url", "store"):
            values.update(known_in_address(str(layers.value(address, ""))))
        for header in _headers(layers).items():
            values.update(secrets_in_header(*header))
        return Secrets(sorted(value for value in values if len(value) >= LEAST_CHARS))
    name = str(choice.value).strip()
    if name.lower() == "off":
        return None
    # Loading what users name takes the tools along, which stored sessions do not need.
    redact: Redact = import_module("agentloop.cli.build").load_redaction(choice.source, name)
    return redact
