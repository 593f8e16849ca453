"""What one call uses: each setting from its flag, the environment, a configuration file, or by default.

The options, their variables and what they stand for are those of `options`, the keys those of `config_files`.
`settings_for` puts them together.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import platformdirs

from agentloop._plumbing.files import read_path
from agentloop.cli.config_files import Choice, Choices, configured
from agentloop.cli.options import KNOWN, OFFLINE, REPEATED, Options, flags_of
from agentloop.cli.values import read, read_folder
from agentloop.errors import UsageError
from agentloop.redaction import LEAST_CHARS, Redact, Secrets, known_in_address, secrets_in, secrets_in_header
from agentloop.rules import Rules
from agentloop.run import Limits

ENVIRONMENT: Mapping[str, str] = {
    **{each.name: each.variable for each in KNOWN if each.variable},
    "api_key": "OPENAI_API_KEY",
    "home": "AGENTLOOP_HOME",
}
DEFAULT_MODEL = "gpt-5-mini"
_PROMPTS = frozenset({"system", "system_file"})
READS: Mapping[str, Callable[[Any], Any]] = {
    **{each.name: each.reads for each in KNOWN if each.reads},
    "home": read_path,
    "api_key": str,
}
"""What the text of each setting is read by."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Options):
    """What one call uses: what its options stand for, and what follows from all of them.

    `choices` are what was chosen and where, `faults` what is wrong in files and the environment, which counts
    for nothing. `resumed_with` says what is taken up from the session that the call goes on with. With
    `asks_for_model` no model is named for a server without a key, which is likely one's own: it is asked
    which it has.
    """

    model_is_fallback: bool
    home: Path
    choices: Choices = field(repr=False)
    faults: tuple[UsageError, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    resumed_with: str | None = None
    asks_for_model: bool = False

    @property
    def rules(self) -> Rules:
        """Which calls run unasked, which need a yes, and which never run."""
        return Rules(allow=self.allow, ask=self.ask, deny=self.deny)

    @property
    def limits(self) -> Limits:
        """What a run may use, but for its steps, which are the agent's."""
        return Limits(
            tokens=self.max_tokens, cost=self.max_cost, seconds=self.max_seconds, repeats=self.max_repeats
        )

    @property
    def typed_options(self) -> tuple[tuple[str, ...], ...]:
        """The options of a run that stood on the command line, each as its words; no headers: secrets."""
        names = [each.name for each in REPEATED if each.name != "header"]
        return tuple(option for name in names for option in _words_of(name, self.choices))

    @property
    def server(self) -> Mapping[str, Any]:
        """Where the model is and what lets in there, as the arguments of a model."""
        return {"base_url": self.base_url, "api_key": self.api_key, "headers": self.headers}

    @property
    def names_server(self) -> bool:
        """Whether there is one to be asked: an address, a key or what stands in its place."""
        return bool(self.base_url or self.api_key or _lets_in(self.headers))


FIELDS: Mapping[str, str] = {
    each.metadata["option"].name: each.name for each in fields(Settings) if "option" in each.metadata
}
"""The field of the settings for each option."""


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
    model = values.get("model")
    home = values.get("home") or platformdirs.user_data_path("agentloop", appauthor=False)
    values |= {
        "model": model or (DEFAULT_MODEL if reachable else OFFLINE),
        "workdir": values.get("workdir") or read("--workdir", ".", read_folder),
        "store": values.get("store") or f"sqlite:///{home.absolute() / 'sessions.db'}",
        "redact": values["redact"] if "redact" in values else _secrets(choices, environment, headers),
    }
    return Settings(
        model_is_fallback=model is None and not reachable,
        asks_for_model=model is None and "base_url" in choices and "api_key" not in choices,
        home=home,
        api_key=values.get("api_key"),
        choices=choices,
        faults=tuple(faults),
        **{FIELDS[name]: value for name, value in values.items() if name in FIELDS},
    )


def _values(choices: dict[str, Choice], faults: list[UsageError]) -> dict[str, Any]:
    """What the choices stand for. What stands for nothing is a fault, and no choice any more.

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
        if name in READS:
            take(name, partial(read, choice.source, choice.value, READS[name]))
    for name, check in (
        ("background", partial(_background, choices, values)),
        ("system_file", partial(_system, choices, values)),
        ("redact", partial(_redaction, choices)),
    ):
        if name in choices:
            take(name, check)
    return values


def _background(choices: Choices, values: Mapping[str, Any]) -> bool:
    """Whether commands may run in the background: what may run a command at all may do so."""
    rules = {name: values.get(name, ()) for name in ("allow", "ask", "deny")}
    if not Rules(**rules).offer("shell"):
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
