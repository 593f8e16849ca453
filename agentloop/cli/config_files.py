"""What configuration files say: the project's, then the user's, in TOML.

A key is an option's name. What a project's file says may come from a stranger: without a yes to just this,
it sets nothing that runs code, lets tools do more, sends something elsewhere, reads or writes outside, or
lifts a limit; and it holds no secret at all.
"""

import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import platformdirs

from agentloop._plumbing.checks import shown
from agentloop._plumbing.private_files import make_private_folder, new_private_file, refused
from agentloop.cli.options import KNOWN, KnownOption
from agentloop.errors import UsageError
from agentloop.redaction import Secrets, known_in_address, secrets_in, secrets_in_header

OF_ONE_CALL = ("attach", "latest", "resume", "session", "no_session", "as_json")
"""The options of one call alone, which have no key."""
KEYS: Mapping[str, KnownOption] = {
    each.name.replace("_", "-"): each for each in KNOWN if each.name not in OF_ONE_CALL
}
FREE = frozenset(
    [
        "model",
        "summary-model",
        "api",
        "window",
        "timeout",
        "temperature",
        "compact-at",
        "system",
        "todo",
        "no-recall",
        "no-stream",
        "output-format",
        "verbose",
    ]
)
"""What a project's file may set without a yes."""
PROJECT = ".agentloop.toml"
USER = "config.toml"
_PROMPTS = {"system", "system-file"}
_TRUSTED = "trusted"
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file, and what it says, by key."""

    path: Path
    said: Mapping[str, Any]

    @property
    def mark(self) -> str:
        """Changes with the place and with each setting."""
        text = json.dumps([str(self.path), self.said], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's `config.toml` lies.

    Raises:
        UsageError: the variable names the home of nobody.
    """
    if not (home := environment.get("AGENTLOOP_HOME", "").strip()):
        return platformdirs.user_config_path("agentloop", appauthor=False)
    try:
        return Path(home).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"AGENTLOOP_HOME: {home!r} is the home of no user: write the path") from None


def configured(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """The values that the files give, as they would stand on the command line, each with where it is said.

    Raises:
        UsageError: a file cannot be read, has a key that is none or a value of another kind, or is the
            project's and says what it may not.
    """
    said = dict[str, tuple[Any, str]]()
    for file in filter(None, (user_file(environment), _admitted(environment))):
        if _PROMPTS & file.said.keys():  # one of them means: not the other
            said = {name: each for name, each in said.items() if name.replace("_", "-") not in _PROMPTS}
        for key, value in file.said.items():
            said[KEYS[key].name] = (_value(file.path, key, value), f"{file.path}: {key}")
    return {name: each for name, each in said.items() if each[0] is not False}


def user_file(environment: Mapping[str, str]) -> ConfigFile | None:
    """The user's file; None where there is none."""
    path = config_folder(environment) / USER
    return _checked(path, table_of(path, text_of(path))) if os.path.lexists(path) else None


def project_file() -> ConfigFile | None:
    """The nearest file of the project, from this folder up to the root of its repository; None for none.

    Raises:
        UsageError: it cannot be read, or holds a secret.
    """
    for path in _candidates():
        text = text_of(path)
        if path.name == PROJECT:
            table = table_of(path, text)
        elif "agentloop" in text:
            table = table_of(path, text).get("tool", {}).get("agentloop")
        else:
            continue
        if table is not None:
            file = _checked(path, table)
            _refuse_secrets(file)
            return file
    return None


def _candidates() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the folder is gone
        return
    folders = [here, *here.parents]
    root = next((at for at, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in folders[: root + 1]:
        yield from (path for name in (PROJECT, "pyproject.toml") if os.path.lexists(path := folder / name))


def _admitted(environment: Mapping[str, str]) -> ConfigFile | None:
    """The project's file, which says nothing that wants a yes, or got it."""
    file = project_file()
    if file and (asked := wants_a_yes(file)) and file.mark not in _trusted(environment):
        raise UsageError(
            f"{file.path} sets {', '.join(asked)}, for which it needs your yes: read it, then run "
            "`agentloop config trust`"
        )
    return file


def wants_a_yes(file: ConfigFile) -> Sequence[str]:
    """The keys of a project's file that it may not set by itself."""
    return [key for key in file.said if key not in FREE]


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
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        with os.fdopen(new_private_file(beside), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise UsageError(str(refused(path, error))) from error


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
    if name in {each.replace("_", "-") for each in OF_ONE_CALL}:
        raise UsageError(f"no setting {key[:60]!r}: it is of one call alone")
    near = get_close_matches(name, KEYS, n=1)
    way = f"did you mean {near[0]!r}?" if near else "each option that `agentloop --help` lists is one"
    raise UsageError(f"no setting {key[:60]!r}: {way}")


def table_of(path: Path | str, text: str) -> dict[str, Any]:
    """What the text says.

    Raises:
        UsageError: it is no TOML.
    """
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error


def _checked(path: Path, table: Any) -> ConfigFile:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: agentloop must be a table, not {shown(table)}")
    try:
        file = ConfigFile(path=path, said={key_named(key): value for key, value in table.items()})
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    for key, value in file.said.items():
        _value(path, key, value)
    return file


def _value(path: Path, key: str, value: Any) -> Any:
    """The value as the command line would give it; False for a switch that is off."""
    option = KEYS[key]
    if option.is_switch:
        if isinstance(value, bool):
            return value
        raise UsageError(f"{path}: {key} must be true or false, not {shown(value)}")
    if option.is_repeated:
        values = value if isinstance(value, list) else [value]
        if all(isinstance(each, str) and each.strip() for each in values):
            return tuple(values)
        raise UsageError(f"{path}: {key} must be a list of texts, not {shown(value)}")
    if key == "extra" and isinstance(value, dict):
        return json.dumps(value, default=str)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {key} must be a text or a number, not {shown(value)}")
    if not str(value).strip() and not option.may_be_empty:
        raise UsageError(f"{path}: {key} is empty: give it a value or leave it out")
    return str(value)


def _refuse_secrets(file: ConfigFile) -> None:
    """Refuse what looks like a secret: a project's file is read by many, and is easily published."""
    hide = Secrets()
    for key, value in file.said.items():
        text = json.dumps(value, default=str)
        texts = [str(each) for each in (value if isinstance(value, list) else [value])]
        heads = [each.partition(":") for each in texts] if key == "header" else []
        if (
            hide(text) != text
            or any(map(known_in_address, texts))
            or any(secrets_in_header(name, said.strip()) for name, _, said in heads)
        ):
            raise UsageError(
                f"{file.path}: {key} holds a secret: keep it out of a project's files, in the environment"
            )


def text_of(path: Path) -> str:
    """What a file holds; no pipe is waited for, and no more is read than a configuration has."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is no file")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} holds more than {_MOST_BYTES // 1_000_000} MB: it is no configuration")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not in UTF-8: convert it") from error
