"""`config`, `paths` and `completion`: what a call would use and from where, and where things lie."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import get_completion_class

from agentloop._plumbing.files import text_of
from agentloop._plumbing.truncate import few
from agentloop.cli import config_files
from agentloop.cli.app import COMPLETE_VARIABLE, exit_status, program
from agentloop.cli.config_files import KEYS, USER, Choice, config_folder, key_named
from agentloop.cli.settings import FIELDS, Settings, settings_for, sound_settings
from agentloop.cli.terminal import StandardOutput, columns, error_console, listing, run_to_end, say
from agentloop.errors import UsageError
from agentloop.redaction import Secrets, redacted, without_credentials

_HEADING = columns("setting", "value", "from")
_PATHS = columns("what", "where")


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="A JSON object, by setting.")
@click.pass_context
def config(context: click.Context, as_json: bool) -> int:
    """Show each setting and where it is said; set or unset one; trust a project.

    A flag beats the environment, which beats the project's file, which beats yours.
    """
    if context.invoked_subcommand is not None:
        return 0
    output, settings = StandardOutput.claimed(), sound_settings({})
    rows = list(_rows(settings))
    if as_json:
        data: dict[str, Any] = {key: {"value": value, "from": source} for key, value, source in rows}
        told = [redacted(str(fault), Secrets()) for fault in settings.faults]
        run_to_end(output.write(json.dumps(data | ({"faults": told} if told else {}), indent=2) + "\n"))
        return exit_status("usage" if told else "answered")
    return _write_page(output, listing(_HEADING, [columns(*row) for row in rows], output), settings.faults)


def _rows(settings: Settings) -> Iterator[tuple[str, str, str]]:
    hide = Secrets()
    for key, option in KEYS.items():
        choice = settings.choices.get(option.name)
        if choice is None:
            default = getattr(settings, FIELDS.get(option.name, option.name), None)
            yield key, _default(key, default), "default"
        else:
            where = choice.source.rpartition(": ")[0] or choice.source
            yield key, redacted(_value_text(key, choice), hide), where


def _default(key: str, value: object) -> str:
    """What holds where nobody said anything: a switch is off, and secrets are taken out."""
    if KEYS[key].is_switch:
        return "true" if value is True else "false"
    if callable(value):
        return "on"
    return "-" if value in (None, (), frozenset()) else str(value)


def _value_text(key: str, choice: Choice) -> str:
    """The value as it was written, without what may be secret."""
    values = choice.value if isinstance(choice.value, tuple) else (choice.value,)
    if key == "header":
        return ", ".join(f"{str(value).partition(':')[0]}: …" for value in values)
    texts = ("true" if value is True else without_credentials(str(value)) for value in values)
    return ", ".join(texts)


@config.command("set")
@click.argument("key")
@click.argument("values", metavar="VALUE…", nargs=-1, required=True)
def set_(key: str, values: Sequence[str]) -> int:
    """Write a setting into your own file.

    It goes into `config.toml`, which `agentloop paths` names. Comments there stay.
    """
    name = key_named(key)
    value = _typed(name, values)
    settings_for({KEYS[name].name: tuple(value) if isinstance(value, list) else value})
    return _write(name, value, "is set")


@config.command()
@click.argument("key")
def unset(key: str) -> int:
    """Take a setting out of your own file."""
    return _write(key_named(key), None, "is taken out")


def _write(name: str, value: Any, done: str) -> int:
    path = config_folder(os.environ) / USER
    text = text_of(path) if os.path.lexists(path) else ""
    changed = with_setting(text, name, value, str(path))
    if changed != text:
        config_files.write_private(path, changed)
    elif value is None:
        done = "is not set there"
    say(error_console(), f"{path}: {name} {done}")
    return 0


def _typed(key: str, values: Sequence[str]) -> Any:
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
    wanted = {name: said for name, said in before.items() if name.replace("_", "-") != key}
    line = "" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
    if value is not None:
        wanted[key] = value
    lines = text.splitlines(keepends=True)
    begins = re.compile(rf"""\s*["']?{key.replace("-", "[-_]")}["']?\s*=""")
    starts = [at for at, each in enumerate(lines) if begins.match(each)]
    for start, end in ((0, 0), *((at, end) for at in starts for end in range(at + 1, len(lines) + 1))):
        changed = "".join([*lines[:start], line, *lines[end:]])
        with suppress(UsageError):
            if config_files.table_of(where, changed) == wanted:
                return changed
    raise UsageError(f"{where}: {key} cannot be changed there: edit the file")


@config.command()
def trust() -> int:
    """Say yes to all that the project's file sets now.

    The yes is to the files that it names, too. Read them first. Where one is changed, it needs another yes.
    What these files import, start or read is not looked at.
    """
    file = config_files.project_file()
    if file is None:
        raise UsageError(
            f"this project has no {config_files.PROJECT} and no [tool.agentloop] in a pyproject.toml"
        )
    for fault in file.faults:
        raise fault
    config_files.trust(file, os.environ)
    named = f", with {few(list(map(str, file.named)))} as they are now" if file.named else ""
    say(error_console(), f"{file.path} may set {', '.join(file.asks) or 'what it sets'}{named}")
    return 0


@click.command()
def paths() -> int:
    """Show where things lie."""
    output, settings = StandardOutput.claimed(), sound_settings({})
    project = "-"
    with suppress(UsageError):  # it stands among the faults
        project = str(file.path) if (file := config_files.project_file()) else "-"
    rows: Mapping[str, object] = {
        "your configuration": config_folder(os.environ) / USER,
        "the project's": project,
        "store": without_credentials(settings.store),
        "transcripts": settings.transcripts.absolute(),
        "typed lines": settings.home.absolute() / "history",
        "working folder": settings.workdir,
    }
    lines = [columns(what, str(where)) for what, where in rows.items()]
    return _write_page(output, listing(_PATHS, lines, output), settings.faults)


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Print what completes commands in bash, zsh or fish.

    In ~/.bashrc: `eval "$(agentloop completion bash)"`

    In ~/.zshrc: `eval "$(agentloop completion zsh)"`

    In ~/.config/fish/config.fish: `agentloop completion fish | source`
    """
    output, kind = StandardOutput.claimed(), get_completion_class(shell)
    assert kind is not None
    return _write_page(output, kind(program, {}, "agentloop", COMPLETE_VARIABLE).source() + "\n")


def _write_page(output: StandardOutput, text: str, faults: Sequence[UsageError] = ()) -> int:
    """Write the text, and below it what is wrong in files and variables; the exit status."""
    wrong = (columns("fault", redacted(str(fault), Secrets())) for fault in faults)
    run_to_end(output.write(text + "".join(wrong)))
    return exit_status("usage") if faults else 0
