"""`config`, `paths` and `completion`: what a call would use and from where, and where things lie."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class

from agentloop.cli import config_files
from agentloop.cli.app import COMPLETE_VARIABLE, program
from agentloop.cli.config_files import KEYS, USER, config_folder, key_named
from agentloop.cli.settings import Choice, choices_of, settings_for, settings_of_call
from agentloop.cli.terminal import StandardOutput, columns, error_console, listing, run_to_end, say
from agentloop.errors import UsageError
from agentloop.redaction import Secrets, redacted, without_credentials

_HEADING = columns("setting", "value", "from")
_PATHS = columns("what", "where")
_ATTRIBUTES = {"timeout": "timeout_seconds", "ttl": "ttl_seconds"}


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="A JSON object, by setting.")
@click.pass_context
def config(context: click.Context, as_json: bool) -> int:
    """Show each setting and where it is said; set one; trust a project.

    A flag beats the environment, which beats the project's file, which beats yours.
    """
    if context.invoked_subcommand is not None:
        return 0
    output = StandardOutput.claimed()
    rows = {key: (value, source) for key, value, source in _rows()}
    if as_json:
        data = {key: {"value": value, "from": source} for key, (value, source) in rows.items()}
        return run_to_end(_written(output, json.dumps(data, indent=2) + "\n"))
    lines = [columns(key, value, source) for key, (value, source) in rows.items()]
    return run_to_end(_written(output, listing(_HEADING, lines, output)))


def _rows() -> Iterator[tuple[str, str, str]]:
    settings, choices, hide = settings_for({}), choices_of({}, os.environ), Secrets()
    for key, option in KEYS.items():
        choice = choices.get(option.name)
        if choice is None:
            default = getattr(settings, _ATTRIBUTES.get(option.name, option.name), None)
            yield key, _default(key, default), "default"
        else:
            yield key, redacted(_shown(key, choice), hide), choice.source.rpartition(": ")[0] or choice.source


def _default(key: str, value: object) -> str:
    """What holds where nobody said anything: a switch is off, and secrets are taken out."""
    if KEYS[key].is_switch:
        return "true" if value is True else "false"
    if callable(value):
        return "on"
    return "-" if value in (None, (), frozenset()) else str(value)


def _shown(key: str, choice: Choice) -> str:
    """The value as it was written, without what may be secret."""
    values = choice.value if isinstance(choice.value, tuple) else (choice.value,)
    if key == "header":
        return ", ".join(f"{str(value).partition(':')[0]}: …" for value in values)
    texts = ("true" if value is True else without_credentials(str(value)) for value in values)
    return ", ".join(texts)


@config.command("set")
@click.argument("key")
@click.argument("values", metavar="[VALUE…]", nargs=-1)
def set_(key: str, values: Sequence[str]) -> int:
    """Write a setting into your own file; without a value, take it out.

    It goes into `config.toml`, which `agentloop paths` names. Comments there stay.
    """
    name = key_named(key)
    option, path = KEYS[name], config_folder(os.environ) / USER
    value = _typed(name, values) if values else None
    if value is not None:
        settings_for({option.name: tuple(value) if isinstance(value, list) else value})
    text = config_files.text_of(path) if os.path.lexists(path) else ""
    config_files.write_private(path, with_setting(text, name, value, str(path)))
    done = "is taken out" if value is None else "is set"
    say(error_console(), f"{path}: {name} {done}")
    return 0


def _typed(key: str, values: Sequence[str]) -> Any:
    """What the words say, as TOML has it."""
    if KEYS[key].is_repeated:
        return list(values)
    if len(values) > 1:
        raise UsageError(f"{key} takes one value: quote it where it has spaces")
    if not KEYS[key].is_switch:
        return values[0]
    if values[0].lower() not in ("true", "false"):
        raise UsageError(f"{key} must be true or false, not {values[0][:40]!r}")
    return values[0].lower() == "true"


def with_setting(text: str, key: str, value: Any, where: str) -> str:
    """The file's text with that setting, without it for None, and all else as it was, comments too.

    Raises:
        UsageError: the text is no TOML, or the setting stands in it in a way that is to be edited by hand.
    """
    before = config_files.table_of(where, text)
    names = [name for name in before if name.replace("_", "-") == key]
    wanted = {name: said for name, said in before.items() if name not in names}
    line = "" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
    if value is not None:
        wanted[key] = value
    lines = text.splitlines(keepends=True)
    begins = re.compile(rf"""\s*["']?({"|".join(map(re.escape, names))})["']?\s*=""") if names else None
    starts = [at for at, each in enumerate(lines) if begins and begins.match(each)]
    spans = [(at, end) for at in starts for end in range(at + 1, len(lines) + 1)] if begins else [(0, 0)]
    for start, end in spans:
        changed = "".join([*lines[:start], line, *lines[end:]])
        try:
            if config_files.table_of(where, changed) == wanted:
                return changed
        except UsageError:
            continue
    raise UsageError(f"{where}: {key} cannot be changed there: edit the file")


@config.command()
def trust() -> int:
    """Say yes to all that the project's file sets now.

    Read it first. Where one of its settings is changed, it needs another yes.
    """
    file = config_files.project_file()
    if file is None:
        raise UsageError(
            f"this project has no {config_files.PROJECT} and no [tool.agentloop] in a pyproject.toml"
        )
    asked = config_files.wants_a_yes(file)
    config_files.trust(file, os.environ)
    say(error_console(), f"{file.path} may set {', '.join(asked) if asked else 'what it sets'}")
    return 0


@click.command()
def paths() -> int:
    """Show where things lie."""
    output, settings = StandardOutput.claimed(), settings_of_call()
    project = config_files.project_file()
    rows: Mapping[str, object] = {
        "your configuration": config_folder(os.environ) / USER,
        "the project's": project.path if project else "-",
        "store": without_credentials(settings.store),
        "transcripts": settings.transcripts.absolute(),
        "typed lines": settings.home.absolute() / "history",
        "working folder": settings.workdir,
    }
    lines = [columns(what, str(where)) for what, where in rows.items()]
    return run_to_end(_written(output, listing(_PATHS, lines, output)))


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Print what completes commands in bash, zsh or fish.

    For bash: `eval "$(agentloop completion bash)"` in ~/.bashrc.
    """
    output, kind = StandardOutput.claimed(), get_completion_class(shell)
    assert kind is not None
    return run_to_end(_written(output, kind(program, {}, "agentloop", COMPLETE_VARIABLE).source() + "\n"))


async def _written(output: StandardOutput, text: str) -> int:
    await output.write(text)
    return 0
