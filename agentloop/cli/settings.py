"""What one call uses: each setting from its flag, the environment, a configuration file, or by default.

`_FIELDS` is the table of settings, each with how its text is read and its default; the flags and their
variables are those of `options`. `settings_for` puts them together.
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

import click
import platformdirs

from agentloop._plumbing.amounts import amount_of, seconds_of, tokens_of, whole_of
from agentloop._plumbing.checks import headers_or_none
from agentloop._plumbing.strict_json import STRICT_JSON
from agentloop.cli.config_files import configured
from agentloop.cli.options import HEADER, KNOWN, REPEATED, flags_of
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
from agentloop.rules import Rules
from agentloop.run import MOST_STEPS, Limits
from agentloop.sessions import WhenBusy
from agentloop.skills import Skills
from agentloop.stores.base import checked_owner

T = TypeVar("T")
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
    """A setting's value as it was written, and where: `--window`, `AGENTLOOP_WINDOW`, a file and its key."""

    value: Any
    source: str


Choices: TypeAlias = Mapping[str, Choice]
"""The choices of a call, by the name of the setting; what stands by default is none."""


def choices_of(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Choices:
    """What the flags say, else the variables of the environment, else the configuration files.

    An empty variable says nothing. Who gives one of the two system prompts does not mean the other.
    """
    heard = {name: environment.get(variable, "").strip() for name, variable in ENVIRONMENT.items()}
    said = {name: Choice(value=text, source=ENVIRONMENT[name]) for name, text in heard.items() if text}
    given = {name: value for name, value in flags.items() if value not in (None, (), False)}
    said |= {name: Choice(value=value, source=f"--{name.replace('_', '-')}") for name, value in given.items()}
    files = {
        name: Choice(value=value, source=where) for name, (value, where) in configured(environment).items()
    }
    prompts = {"system", "system_file"}
    return {
        name: each for name, each in files.items() if name not in prompts or not prompts & said.keys()
    } | said


def _value(choices: Choices, name: str, default: Any = None) -> Any:
    """The chosen value as it was written, else the default."""
    return choices[name].value if name in choices else default


def read(choice: Choice, of: Callable[[Any], T]) -> T:
    """What a setting's text stands for.

    Raises:
        UsageError: it stands for nothing; the text names the flag or the variable that it came from.
    """
    try:
        return of(choice.value)
    except UsageError as error:
        raise UsageError(f"{choice.source}: {error}") from error


def _read(choices: Choices, name: str, of: Callable[[Any], T]) -> T | None:
    return read(choices[name], of) if name in choices else None


def _server(text: str) -> str:
    """The URL of a server, as it stands; a password in what is none is not repeated."""
    if text.lower().startswith(("http://", "https://")):
        return text
    raise UsageError(f"{without_credentials(text)!r} is no server: begin it with http:// or https://")


def _word(text: str, words: Sequence[str], fault: str) -> str:
    """The text, which is one of the words; `fault` says what another is."""
    if text in words:
        return text
    raise UsageError(f"{_brief(text)!r} is {fault}: use {', '.join(words[:-1])} or {words[-1]}")


def _api(text: str) -> str:
    return _word(text, APIS, "no API")


def _headers(lines: Sequence[str]) -> Mapping[str, str]:
    """The headers that these lines give, each a name, a colon and a value, which no fault repeats."""
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
    return _WHEN_BUSY[_word(text.strip().lower().replace("_", "-"), tuple(_WHEN_BUSY), "no rule")]


def read_path(text: str) -> Path:
    """The path, a home at its beginning written out: a shell leaves `--option=~/x` and variables as they are.

    Raises:
        UsageError: it is the home of nobody.
    """
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"{_brief(text)!r} is the home of no user: write the path") from None


def _paths(names: Sequence[str]) -> tuple[Path, ...]:
    return tuple(map(read_path, names))


def _folder(text: str) -> Path:
    """The folder, which exists, its links followed."""
    named = read_path(text)
    try:
        if named.is_dir():
            return named.resolve(strict=True)
        fault = "is a file, not a folder" if named.exists() else "is not there"
    except (OSError, ValueError) as error:
        fault = "cannot be used, " + (getattr(error, "strerror", None) or str(error))
    raise UsageError(f"{_brief(text)!r} {fault}: name a folder that exists")


def _text_file(text: str) -> str:
    """What the file of that name holds."""
    file = read_path(text)
    try:
        return file.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "is no UTF-8 text" if isinstance(error, UnicodeError) else getattr(error, "strerror", error)
        reason = f"{reason}: check the path" if isinstance(error, FileNotFoundError) else reason
        raise UsageError(f"{_brief(text)!r}: {reason}") from error


def _variables(names: Sequence[str]) -> tuple[str, ...]:
    """Names of variables of the environment."""
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"{_brief(name)!r} is no name of a variable: write e.g. GITHUB_TOKEN")
    return tuple(names)


def _fraction(text: str) -> float | None:
    """The share, above 0 and at most 1; None for `off`."""
    word = text.strip().lower()
    if word == "off":
        return None
    share = _number(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    if not 0 < share <= 1:
        raise UsageError(
            f"{_brief(text)!r} is no share above 0 and up to 1: write one such as 0.8 or 80%, or off"
        )
    return share


def _temperature(text: str) -> float:
    if 0 <= (number := _number(text)) < math.inf:
        return number
    raise UsageError(f"{_brief(text)!r} is no number of at least 0: write one such as 0.7")


def _number(text: str) -> float:
    """The number that the text says, NaN for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _json_object(text: str) -> Mapping[str, Any]:
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

    `reads` says what its text stands for, and raises `UsageError` where that is nothing; where there is no
    text, the field is `otherwise`.
    """

    name: str
    reads: Callable[[Any], Any] = str
    otherwise: Any = None
    of: str | None = None

    def value(self, choices: Choices) -> Any:
        """What the choice says, read."""
        choice = choices.get(self.of or self.name)
        return read(choice, self.reads) if choice else self.otherwise


_FIELDS: Sequence[_Field] = (
    _Field("base_url", _server),
    _Field("api", _api, APIS[0]),
    _Field("api_key"),
    _Field("summary_model"),
    _Field("window", tokens_of),
    _Field("timeout_seconds", partial(amount_of, unit="seconds"), 300.0, of="timeout"),
    _Field("temperature", _temperature),
    _Field("extra", _json_object),
    _Field("compact_at", _fraction, DEFAULT_FRACTION),
    _Field("transcripts", read_path, Path(".transcripts")),
    _Field("max_steps", whole_of, MOST_STEPS),
    _Field("pass_env", _variables, ()),
    _Field("tools", tuple, ()),
    _Field("mcp", _paths, ()),
    _Field("skills", Skills),
    _Field("callbacks", tuple, ()),
    _Field("schema", str, None),
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
    says what is taken up from the session that the call goes on with. With `asks_for_model` no model is named
    for a server without a key, which is likely one's own: it is asked which it has.
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
    rules: Rules
    pass_env: tuple[str, ...]
    window: int | None
    compact_at: float | None
    transcripts: Path
    max_steps: int
    limits: Limits
    recall: bool
    todo: bool
    skills: Skills | None
    background: bool
    streaming: bool
    system: str | None
    tools: tuple[str, ...]
    mcp: tuple[Path, ...]
    callbacks: tuple[str, ...]
    schema: str | None
    given: tuple[tuple[str, ...], ...] = field(repr=False)
    redact: Redact | None
    timeout_seconds: float = 300.0
    temperature: float | None = None
    extra: Mapping[str, Any] | None = field(default=None, repr=False)
    owner: str | None = None
    ttl_seconds: float | None = None
    when_busy: WhenBusy = "refuse"
    resumed_with: str | None = None
    asks_for_model: bool = False

    @property
    def server(self) -> Mapping[str, Any]:
        """Where the model is and what lets in there, as the arguments of a model."""
        return {"base_url": self.base_url, "api_key": self.api_key, "headers": self.headers}

    @property
    def names_server(self) -> bool:
        """Whether there is one to be asked: an address, a key or what stands in its place."""
        return bool(self.base_url or self.api_key or _lets_in(self.headers))


def settings_of_call() -> Settings:
    """What the command that runs uses, by its flags and this environment; raises as `settings_for`."""
    return settings_for(flags_of(click.get_current_context()))


def settings_for(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Everything a call needs to know, checked.

    Raises:
        UsageError: a value is none; the text names the flag or the variable that it came from.
    """
    environment = os.environ if environment is None else environment
    choices = choices_of(flags, environment)
    # Where sessions lie by default.
    home = _read(choices, "home", read_path) or platformdirs.user_data_path("agentloop", appauthor=False)
    model = _value(choices, "model")
    headers = _read(choices, "header", _headers) or MappingProxyType({})
    rules = _rules(choices)
    reachable = bool({"api_key", "base_url"} & choices.keys()) or _lets_in(headers)
    return Settings(
        model=model or (DEFAULT_MODEL if reachable else OFFLINE),
        model_is_fallback=model is None and not reachable,
        asks_for_model=model is None and "base_url" in choices and "api_key" not in choices,
        store=_value(choices, "store", f"sqlite:///{home.absolute() / 'sessions.db'}"),
        home=home,
        workdir=read(choices.get("workdir", Choice(value=".", source="--workdir")), _folder),
        limits=_limits(choices),
        recall="no_recall" not in choices,
        todo="todo" in choices,
        rules=rules,
        background=_background(choices, rules),
        streaming="no_stream" not in choices,
        system=_system(choices),
        given=tuple(_given(choices)),
        headers=headers,
        redact=_redaction(choices, environment, headers),
        **{each.name: each.value(choices) for each in _FIELDS},
    )


def _rules(choices: Choices) -> Rules:
    try:
        return Rules(**{name: _value(choices, name, ()) for name in ("allow", "ask", "deny")})
    except UsageError as error:
        raise UsageError(f"--{error}") from error


def _background(choices: Choices, rules: Rules) -> bool:
    """Whether commands may run in the background: what may run a command at all may do so."""
    asked = "background" in choices
    if asked and not rules.offer("shell"):
        raise UsageError("--background runs commands: give --allow or --ask shell too")
    return asked


def _lets_in(headers: Mapping[str, str]) -> bool:
    return "authorization" in map(str.lower, headers)


def _given(choices: Choices) -> Iterator[tuple[str, ...]]:
    """The options of a run that stood on the command line, each as its words; headers may hold secrets."""
    for each in REPEATED:
        choice = choices.get(each.name)
        if choice is None or not choice.source.startswith("--") or each is HEADER:
            continue
        values = choice.value if isinstance(choice.value, tuple | list) else (choice.value,)
        for value in filter(None, values):
            yield (choice.source,) if value is True else (choice.source, str(value))


def _limits(choices: Choices) -> Limits:
    """All but that on steps, which is the agent's."""
    return Limits(
        tokens=_read(choices, "max_tokens", tokens_of),
        cost=_read(choices, "max_cost", partial(amount_of, unit="US dollars")),
        seconds=_read(choices, "max_seconds", partial(amount_of, unit="seconds")),
        repeats=_read(choices, "max_repeats", partial(whole_of, least=2)),
    )


def _system(choices: Choices) -> str | None:
    if "system" in choices and "system_file" in choices:
        raise UsageError("--system and --system-file: give one of them")
    return (
        _read(choices, "system_file", _text_file) if "system_file" in choices else _value(choices, "system")
    )


def _redaction(choices: Choices, environment: Mapping[str, str], headers: Mapping[str, str]) -> Redact | None:
    """The redaction asked for, None for `off`; by default known shapes and the environment's secrets."""
    choice = choices.get("redact")
    if choice is None:
        values = {*map(str.strip, secrets_in(environment).values()), str(_value(choices, "api_key", ""))}
        for address in ("base_url", "store"):
            values.update(known_in_address(str(_value(choices, address, ""))))
        for header in headers.items():
            values.update(secrets_in_header(*header))
        return Secrets(sorted(value for value in values if len(value) >= LEAST_CHARS))
    name = str(choice.value).strip()
    if name.lower() == "off":
        return None
    # Loading what users name takes the tools along, which stored sessions do not need.
    redact: Redact = import_module("agentloop.cli.build").load_redaction(choice.source, name)
    return redact
