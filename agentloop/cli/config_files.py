"""What configuration files say: the project's, then the user's, in TOML.

A key is an option's name. What a project's file says may come from a stranger: without a yes to just this,
it sets nothing that runs code, lets tools do more, sends something elsewhere, reads or writes outside, lifts
a limit, or costs more, as another model may; and it holds no secret at all.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any, TypeAlias

import platformdirs

from agentloop._plumbing.checks import shown
from agentloop._plumbing.files import read_path, text_of
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.private_files import make_private_folder, refused
from agentloop.bounds import MOST_KEY_PARTS, MOST_SETTING_NAME_CHARS, MOST_SETTING_VALUES, MOST_SETTINGS
from agentloop.cli.files import project_folders, whole_file
from agentloop.cli.options import KNOWN, KnownOption
from agentloop.cli.values import read
from agentloop.errors import UsageError
from agentloop.redaction import Secrets, known_in_address, secrets_in, secrets_in_header

KEYS: Mapping[str, KnownOption] = {
    each.name.replace("_", "-"): each for each in KNOWN if not each.of_one_call
}
"""The option of each key."""
PROJECT = ".agentloop.toml"
USER = "config.toml"
_TRUSTED = "trusted"
_LONG_KEY = pattern(
    rf"""(?:(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting's value as it was written, and where: `--window`, `AGENTLOOP_WINDOW`, a file and its key."""

    value: Any
    source: str


Choices: TypeAlias = Mapping[str, Choice]
"""Choices by the name of the setting; what stands by default is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file and what it says, by key; `faults` are what is wrong in it, which counts for nothing."""

    path: Path
    said: Mapping[str, Any]
    faults: Sequence[UsageError]

    @property
    def asks(self) -> Sequence[str]:
        """The keys that a project's file may not set by itself."""
        return [key for key in self.said if not KEYS[key].is_free]

    @property
    def named(self) -> Sequence[Path]:
        """The files that its settings name and that are there; not those that they import or read."""
        named = [value for key, value in self.said.items() if KEYS[key].names_files]
        values = (each for value in named for each in _listed(value))
        return [path for value in values for path in _places(str(value)) if os.path.isfile(path)]  # noqa: PTH113

    @property
    def mark(self) -> str:
        """Changes with the place, with each setting, and with what the named files hold."""
        held = [[str(path), _digest(path)] for path in self.named]
        text = json.dumps([str(self.path), self.said, held], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _places(name: str) -> Iterator[Path]:
    """Where what is named may lie: at that path, as a folder of skills, or as a module with its packages."""
    path = Path(os.path.expanduser(name))  # noqa: PTH111 — the home of nobody is a path like any other here
    yield path
    with suppress(OSError, ValueError):
        yield from sorted(path.glob("*/SKILL.md"))
    parts = name.partition(":")[0].split(".")
    modules = [Path(*parts[:count]) for count in range(1, len(parts) + 1)]
    bases = [base for module in modules for base in (module / "__init__", module)]
    yield from (Path(f"{base}{suffix}") for base in bases for suffix in all_suffixes())


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "not readable"


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's `config.toml` lies.

    Raises:
        UsageError: the variable names the home of nobody.
    """
    if home := environment.get("AGENTLOOP_HOME", "").strip():
        return read("AGENTLOOP_HOME", home, read_path)
    return platformdirs.user_config_path("agentloop", appauthor=False)


def configured(environment: Mapping[str, str]) -> tuple[list[Choices], list[UsageError]]:
    """The choices of each file, the user's first, as they would stand on the command line.

    A switch that is off is False. Behind them what is wrong: a file that cannot be read, a key that is none,
    a value of another kind, and what the project's file may not say. That counts for nothing.
    """
    layers, faults = list[Choices](), list[UsageError]()
    for look in (user_file, _admitted):
        try:
            file = look(environment)
        except UsageError as error:
            faults.append(error)
            continue
        if file is not None:
            faults += file.faults
            layers.append(
                {
                    KEYS[key].name: Choice(value=_value(key, value), source=f"{file.path}: {key}")
                    for key, value in file.said.items()
                }
            )
    return layers, faults


def user_file(environment: Mapping[str, str]) -> ConfigFile | None:
    """The user's file; None where there is none.

    Raises:
        UsageError: it cannot be read.
    """
    path = config_folder(environment) / USER
    return _read(path, table_of(path, text_of(path))) if os.path.lexists(path) else None


def project_file() -> ConfigFile | None:
    """The nearest file of the project, from this folder up to the root of its repository; None for none.

    Raises:
        UsageError: it cannot be read.
    """
    for path in _candidates():
        text = text_of(path)
        if path.name == PROJECT:
            table: Any = table_of(path, text)
        elif "agentloop" in text:
            tools = table_of(path, text).get("tool")
            table = tools.get("agentloop") if isinstance(tools, dict) else None
        else:
            continue
        if table is not None:
            return _read(path, table, is_project=True)
    return None


def _candidates() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the folder is gone
        return
    for folder in project_folders(here):
        yield from (path for name in (PROJECT, "pyproject.toml") if os.path.lexists(path := folder / name))


def _admitted(environment: Mapping[str, str]) -> ConfigFile | None:
    """The project's file, without what wants a yes and has none."""
    file = project_file()
    if file is None or not file.asks or file.mark in _trusted(environment):
        return file
    fault = UsageError(
        f"{file.path} sets {', '.join(file.asks)}, for which it needs your yes: read it and the files "
        "that it names, then run `agentloop config trust`"
    )
    said = {key: value for key, value in file.said.items() if KEYS[key].is_free}
    return replace(file, said=said, faults=[*file.faults, fault])


def trust(file: ConfigFile, environment: Mapping[str, str]) -> None:
    """Say yes to what the project's file says now."""
    marks = {*_trusted(environment), file.mark}
    write_private(config_folder(environment) / _TRUSTED, "".join(f"{mark}\n" for mark in sorted(marks)))


def _trusted(environment: Mapping[str, str]) -> frozenset[str]:
    path = config_folder(environment) / _TRUSTED
    return frozenset(text_of(path).split()) if os.path.lexists(path) else frozenset()


def write_private(path: Path, text: str) -> None:
    """Write a file that its user alone can read, whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        make_private_folder(path.parent)
        path = path.resolve()
        if path.exists():
            path.chmod(0o600)
    except OSError as error:
        raise UsageError(str(refused(path, error))) from error
    with whole_file(path) as write:
        write(text)


def key_named(key: str) -> str:
    """The key as the table of them has it: `compact_at` is `compact-at`.

    Raises:
        UsageError: there is none; with the nearest.
    """
    name = key.strip().replace("_", "-")
    if name in KEYS:
        return name
    if secrets_in({name.upper().replace("-", "_"): "x" * 20}):
        raise UsageError(f"no setting {key[:60]!r}: a key stands in no file: set OPENAI_API_KEY")
    if name.replace("-", "_") in {each.name for each in KNOWN if each.of_one_call}:
        raise UsageError(f"no setting {key[:60]!r}: it is of one call alone")
    near = get_close_matches(name, KEYS, n=1)
    way = f"did you mean {near[0]!r}?" if near else "each option that `agentloop --help` lists is one"
    raise UsageError(f"no setting {key[:60]!r}: {way}")


def table_of(path: Path | str, text: str) -> dict[str, Any]:
    """What the text says.

    Raises:
        UsageError: it is no TOML, or has a key of very many parts.
    """
    if _LONG_KEY.search(text):
        raise UsageError(f"{path} has a key of more than {MOST_KEY_PARTS} parts: there is no such setting")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error


def _read(path: Path, table: Any, *, is_project: bool = False) -> ConfigFile:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: agentloop must be a table, not {shown(table)}")
    if len(table) > MOST_SETTINGS:
        raise UsageError(f"{path} has {len(table):,} keys, more than there are settings: leave out most")
    said, faults = dict[str, Any](), list[UsageError]()
    for key, value in table.items():
        try:
            name = key_named(key)
            _value(name, value)
            if is_project and _holds_secret(name, value):
                raise UsageError(
                    f"{name} holds a secret: keep it out of a project's files, in the environment"
                )
            said[name] = value
        except UsageError as error:
            faults.append(UsageError(f"{path}: {error}"))
        except (ValueError, RecursionError):
            faults.append(
                UsageError(f"{path}: {key} holds a number too long to write, or is nested too deep")
            )
    return ConfigFile(path=path, said=said, faults=faults)


def _value(key: str, value: Any) -> Any:
    """The value as the command line would give it; False for a switch that is off."""
    option, listed = KEYS[key], _listed(value)
    if len(listed) > MOST_SETTING_VALUES:
        raise UsageError(f"{key} has {len(listed):,} values: give it at most {MOST_SETTING_VALUES:,}")
    if option.names_files and sum(map(len, map(str, listed))) > MOST_SETTING_NAME_CHARS:
        raise UsageError(f"{key} names files in more than {MOST_SETTING_NAME_CHARS:,} characters: name fewer")
    if option.is_switch:
        if isinstance(value, bool):
            return value
        raise UsageError(f"{key} must be true or false, not {shown(value)}")
    if option.is_repeated:
        if all(isinstance(each, str) and each.strip() for each in listed):
            return tuple(listed)
        raise UsageError(f"{key} must be a list of texts, not {shown(value)}")
    if key == "extra" and isinstance(value, dict):
        return json.dumps(value, default=str)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{key} must be a text or a number, not {shown(value)}")
    if not str(value).strip() and not option.may_be_empty:
        raise UsageError(f"{key} is empty: give it a value or leave it out")
    return str(value)


def _holds_secret(key: str, value: Any) -> bool:
    """Whether it looks like one: a project's file is read by many, and is easily published."""
    text, texts = json.dumps(value, default=str), [str(each) for each in _listed(value)]
    heads = [each.partition(":") for each in texts] if key == "header" else []
    return (
        Secrets()(text) != text
        or any(map(known_in_address, texts))
        or any(secrets_in_header(name, said.strip()) for name, _, said in heads)
    )
