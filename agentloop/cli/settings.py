"""What one call uses: each setting from its flag, the environment, a configuration file, or by default.

`READS` says how the text of each is read; the flags and their variables are those of `options`, the keys
those of `config_files`. `settings_for` puts them together.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import platformdirs

from agentloop._plumbing.amounts import amount_of, seconds_of, tokens_of, whole_of
from agentloop._plumbing.checks import headers_or_none, shown
from agentloop._plumbing.files import read_path, text_of
from agentloop.bounds import MOST_STEPS
from agentloop.cli.config_files import Choice, Choices, configured
from agentloop.cli.files import json_object, read
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
from agentloop.run import Limits
from agentloop.sessions import WhenBusy
from agentloop.stores.base import checked_owner
from agentloop.toolsets import Skills

APIS = ("chat", "responses")
_WHEN_BUSY: Mapping[str, WhenBusy] = {"refuse": "refuse", "wait": "wait", "take-over": "take_over"}
ENVIRONMENT: Mapping[str, str] = {
    **{each.name: each.variable for each in KNOWN if each.variable},
    "api_key": "OPENAI_API_KEY",
    "home": "AGENTLOOP_HOME",
}
DEFAULT_MODEL = "gpt-5-mini"
OFFLINE = "offline"
MEMORY = "memory:"
DEFAULT_FRACTION = 0.8
_PROMPTS = frozenset({"system", "system_file"})
_LIMITS = ("tokens", "cost", "seconds", "repeats")
"""All but that on steps, which is the agent's."""


def _choices(
    flags: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[dict[str, Choice], list[UsageError]]:
    """What the flags say, else the variables of the environment, else the files; and what is wrong in those.

    An empty variable says nothing. Who gives one of the two system prompts does not mean the other.
    """
    files, faults = configured(environment)
    heard = {name: environment.get(variable, "").strip() for name, variable in ENVIRONMENT.items()}
    choices = dict[str, Choice]()
    for layer in (
        *files,
        {name: Choice(value=text, source=ENVIRONMENT[name]) for name, text in heard.items() if text},
        {
            name: Choice(value=value, source=f"--{name.replace('_', '-')}")
            for name, value in flags.items()
            if value not in (None, (), False)
        },
    ):
        if not _PROMPTS.isdisjoint(layer):
            choices = {name: choice for name, choice in choices.items() if name not in _PROMPTS}
        choices |= layer
    return {name: choice for name, choice in choices.items() if choice.value is not False}, faults


def _server(text: str) -> str:
    """The URL of a server, as it stands; a password in what is none is not repeated."""
    if text.lower().startswith(("http://", "https://")):
        return text
    raise UsageError(f"{without_credentials(text)!r} is no server: begin it with http:// or https://")


def _word(text: str, words: Sequence[str], fault: str) -> str:
    """The text, which is one of the words; `fault` says what another is."""
    if text in words:
        return text
    raise UsageError(f"{shown(text)} is {fault}: use {', '.join(words[:-1])} or {words[-1]}")


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


def _folder(text: str) -> Path:
    named = read_path(text)
    try:
        if named.is_dir():
            return named.resolve(strict=True)
        fault = "is a file, not a folder" if named.exists() else "is not there"
    except (OSError, ValueError) as error:
        fault = "cannot be used, " + (getattr(error, "strerror", None) or str(error))
    raise UsageError(f"{text!r} {fault}: name a folder that exists")


def _variables(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"{shown(name)} is no name of a variable: write e.g. GITHUB_TOKEN")
    return tuple(names)


def _fraction(text: str) -> float | None:
    """The share, above 0 and at most 1; None for `off`."""
    if text.strip().lower() == "off":
        return None
    share = share_of(text)
    if not 0 < share <= 1:
        raise UsageError(
            f"{shown(text)} is no share above 0 and up to 1: write one such as 0.8 or 80%, or off"
        )
    return share


def share_of(text: str) -> float:
    """The share that is written as `0.3` or `30%`; NaN for what is no number."""
    word = text.strip()
    return _number(word.removesuffix("%")) / (100 if word.endswith("%") else 1)


def _temperature(text: str) -> float:
    if 0 <= (number := _number(text)) < math.inf:
        return number
    raise UsageError(f"{shown(text)} is no number of at least 0: write one such as 0.7")


def _number(text: str) -> float:
    """The number that the text says, NaN for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _rules(name: str, lines: Sequence[str]) -> Sequence[str]:
    try:
        Rules(**{name: lines})
    except UsageError as error:
        raise UsageError(str(error).removeprefix(f"{name}: ")) from error
    return lines


READS: Mapping[str, Callable[[Any], Any]] = {
    "home": read_path,
    "base_url": _server,
    "header": _headers,
    "api": partial(_word, words=APIS, fault="no API"),
    "window": tokens_of,
    "timeout": partial(amount_of, unit="seconds"),
    "temperature": _temperature,
    "extra": lambda text: json_object(text, shown(text), '{"top_p": 0.9}'),
    "compact_at": _fraction,
    "transcripts": read_path,
    "system_file": lambda name: text_of(read_path(name)),
    "mcp": lambda names: tuple(map(read_path, names)),
    "workdir": _folder,
    **{name: partial(_rules, name) for name in ("allow", "ask", "deny")},
    "pass_env": _variables,
    "max_steps": whole_of,
    "skills": Skills,
    "max_tokens": tokens_of,
    "max_cost": partial(amount_of, unit="US dollars"),
    "max_seconds": partial(amount_of, unit="seconds"),
    "max_repeats": partial(whole_of, least=2),
    "owner": checked_owner,
    "ttl": seconds_of,
    "when_busy": read_when_busy,
}
"""What the text of a setting stands for; that of the others stands for itself."""
FIELDS: Mapping[str, str] = {"timeout": "timeout_seconds", "ttl": "ttl_seconds", "header": "headers"}
"""The fields of the settings that are not called as their option is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one call uses. `compact_at` is None where automatic compaction is off, `window` in tokens.

    `choices` are what was chosen and where, `faults` what is wrong in files and the environment, which counts
    for nothing. `redact` takes secrets out of what is stored and shown; None where that is off. `owner` is
    whose sessions are seen, None for all; new ones are theirs and expire after `ttl_seconds` without a new
    record, None for never. `resumed_with` says what is taken up from the session that the call goes on with.
    With `asks_for_model` no model is named for a server without a key, which is likely one's own: it is asked
    which it has.
    """

    model: str
    model_is_fallback: bool
    store: str
    home: Path
    workdir: Path
    rules: Rules
    limits: Limits
    choices: Choices = field(repr=False)
    faults: tuple[UsageError, ...] = ()
    redact: Redact | None
    base_url: str | None = field(default=None, repr=False)
    api: str = APIS[0]
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    summary_model: str | None = None
    window: int | None = None
    compact_at: float | None = DEFAULT_FRACTION
    transcripts: Path = Path(".transcripts")
    max_steps: int = MOST_STEPS
    recall: bool = True
    todo: bool = False
    skills: Skills | None = None
    background: bool = False
    streaming: bool = True
    system: str | None = None
    tools: tuple[str, ...] = ()
    mcp: tuple[Path, ...] = ()
    callbacks: tuple[str, ...] = ()
    schema: str | None = None
    pass_env: tuple[str, ...] = ()
    timeout_seconds: float = 300.0
    temperature: float | None = None
    extra: Mapping[str, Any] | None = field(default=None, repr=False)
    owner: str | None = None
    ttl_seconds: float | None = None
    when_busy: WhenBusy = "refuse"
    resumed_with: str | None = None
    asks_for_model: bool = False

    @property
    def typed_options(self) -> tuple[tuple[str, ...], ...]:
        """The options of a run that stood on the command line, each as its words; no headers: secrets."""
        names = [each.name for each in REPEATED if each is not HEADER]
        return tuple(option for name in names for option in _words_of(name, self.choices))

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
        UsageError: a value is none; the text names the flag, the variable or the file that it came from.
    """
    settings = sound_settings(flags, environment)
    if settings.faults:
        raise settings.faults[0]
    return settings


def sound_settings(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """The same without what is wrong in files and the environment, which stands in `faults`.

    Raises:
        UsageError: a flag's value is none.
    """
    environment = os.environ if environment is None else environment
    choices, faults = _choices(flags, environment)
    values = _values(choices, faults)
    headers = values.get("header", {})
    reachable = bool({"api_key", "base_url"} & choices.keys()) or _lets_in(headers)
    model = values.pop("model", None)
    home = values.pop("home", None) or platformdirs.user_data_path("agentloop", appauthor=False)
    limits: dict[str, Any] = {name: values.get(f"max_{name}") for name in _LIMITS}
    system = values.pop("system", None)
    redact = values.pop("redact") if "redact" in values else _secrets(choices, environment, headers)
    workdir = values.pop("workdir", None) or read("--workdir", ".", _folder)
    store = values.pop("store", None) or f"sqlite:///{home.absolute() / 'sessions.db'}"
    plain = {FIELDS.get(name, name): value for name, value in values.items()}
    return Settings(
        model=model or (DEFAULT_MODEL if reachable else OFFLINE),
        model_is_fallback=model is None and not reachable,
        asks_for_model=model is None and "base_url" in choices and "api_key" not in choices,
        store=store,
        home=home,
        workdir=workdir,
        limits=Limits(**limits),
        recall="no_recall" not in values,
        streaming="no_stream" not in values,
        system=values.get("system_file", system),
        redact=redact,
        choices=choices,
        faults=tuple(faults),
        **{each.name: plain[each.name] for each in fields(Settings) if each.name in plain},
    )


def _values(choices: dict[str, Choice], faults: list[UsageError]) -> dict[str, Any]:
    """What the choices stand for, and the `rules` that they make. What stands for nothing becomes a fault.

    Raises:
        UsageError: it is a flag's.
    """
    values = dict[str, Any]()

    def take(name: str, reading: Callable[[], Any]) -> None:
        try:
            values[name] = reading()
        except UsageError as error:
            if choices.pop(name).source.startswith("--"):
                raise
            values.pop(name, None)
            faults.append(error)

    for name, choice in list(choices.items()):
        take(name, partial(read, choice.source, choice.value, READS.get(name, lambda value: value)))
    values["rules"] = Rules(**{name: values.get(name, ()) for name in ("allow", "ask", "deny")})
    for name, check in (
        ("background", partial(_background, choices, values["rules"])),
        ("system_file", partial(_system, choices, values)),
        ("redact", partial(_redaction, choices)),
    ):
        if name in choices:
            take(name, check)
    return values


def _background(choices: Choices, rules: Rules) -> bool:
    """Whether commands may run in the background: what may run a command at all may do so."""
    if not rules.offer("shell"):
        raise UsageError(f"{choices['background'].source} runs commands: give --allow or --ask shell too")
    return True


def _system(choices: Choices, values: Mapping[str, Any]) -> str:
    if "system" in choices:
        raise UsageError(f"{choices['system'].source} and {choices['system_file'].source}: give one of them")
    return str(values["system_file"])


def _lets_in(headers: Mapping[str, str]) -> bool:
    return "authorization" in map(str.lower, headers)


def _words_of(name: str, choices: Choices) -> Iterator[tuple[str, ...]]:
    """That option as it stood on the command line, once for each value."""
    choice = choices.get(name)
    if choice is None or not choice.source.startswith("--"):
        return
    values = choice.value if isinstance(choice.value, tuple | list) else (choice.value,)
    for value in filter(None, values):
        yield (choice.source,) if value is True else (choice.source, str(value))


def _redaction(choices: Choices) -> Redact | None:
    """The redaction asked for, None for `off`."""
    source, name = choices["redact"].source, str(choices["redact"].value).strip()
    if name.lower() == "off":
        return None
    # Loading what users name takes the tools along, which stored sessions do not need.
    redact: Redact = import_module("agentloop.cli.build").load_redaction(source, name)
    return redact


def _secrets(choices: Choices, environment: Mapping[str, str], headers: Mapping[str, str]) -> Redact:
    said = {name: str(each.value) for name, each in choices.items()}
    values = {*map(str.strip, secrets_in(environment).values()), said.get("api_key", "")}
    for address in ("base_url", "store"):
        values.update(known_in_address(said.get(address, "")))
    for header in headers.items():
        values.update(secrets_in_header(*header))
    return Secrets(sorted(value for value in values if len(value) >= LEAST_CHARS))
