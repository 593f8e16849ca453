"""The program's commands, one call from its words to its exit status.

A call that names no command is a run or the chat. Commands live in modules of their own that load when they
are called, so that `--help` and the stored sessions need neither a model's client nor a terminal library.
"""

import logging
import os
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise, takewhile
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

import agentloop
from agentloop.cli.options import (
    AGENT,
    BUSY,
    COMPACTION,
    FORMATS,
    LIMITS,
    LOG_VARIABLE,
    MODEL,
    OUTPUT,
    PROMPT,
    SESSION,
    STORE,
    TTL,
    KnownOption,
    flags_of,
    options,
)
from agentloop.errors import UsageError
from agentloop.stream import RunStatus

COMMANDS: Mapping[str, tuple[str, str]] = {
    "approvals": (
        "agentloop.cli.approvals:approvals",
        "List the calls that wait for a person's yes.",
    ),
    "approve": (
        "agentloop.cli.approvals:approve",
        "Answer a call that waits for a yes, and go on with its run.",
    ),
    "compact": ("agentloop.cli.compact:compact", "Compact a stored session now."),
    "completion": ("agentloop.cli.config:completion", "Print what completes commands in bash, zsh or fish."),
    "config": (
        "agentloop.cli.config:config",
        "Show each setting and where it is said; set or unset one; trust a project.",
    ),
    "demo": ("agentloop.cli.demo:demo", "Show an overflow, and compaction; needs no key."),
    "doctor": ("agentloop.cli.doctor:doctor", "Say what works here and what does not."),
    "lessons": (
        "agentloop.cli.lessons:lessons",
        "List the lessons, or explain the one with that number and run it.",
    ),
    "models": ("agentloop.cli.models:models", "List the models that the server offers."),
    "paths": ("agentloop.cli.config:paths", "Show where things lie."),
    "rewind": ("agentloop.cli.compact:rewind", "Take the newest turn of a session back; undo gives it back."),
    "runs": ("agentloop.cli.durable:runs", "List the durable runs; show, cancel, resume or delete one."),
    "sessions": ("agentloop.cli.sessions:sessions", "List, show, search, export or delete stored sessions."),
    "submit": ("agentloop.cli.durable:submit", "Put a prompt in the queue of durable runs."),
    "undo": ("agentloop.cli.compact:undo", "Take the newest compaction or rewind of a session back."),
    "worker": ("agentloop.cli.durable:worker", "Do the runs of the queue, on as many machines as you like."),
}
"""Each command's place and its line in the help."""
OPTION_GROUPS: Mapping[str, Sequence[KnownOption]] = {
    "Session": (*PROMPT, *SESSION, *BUSY, *TTL),
    "Model": MODEL,
    "Compaction": COMPACTION,
    "Agent": AGENT,
    "Limits": LIMITS,
    "Store": STORE,
    "Output": OUTPUT,
}
"""The options as the help shows them; a variable behind one is heard where it is not given."""
COMPLETE_VARIABLE = "_AGENTLOOP_COMPLETE"
"""By this a shell asks what may come next."""
_NEARLY = 0.7
"""How alike a word and a command are where it is taken for a slip, such as `run` or `sesions`."""
_LIKE_A_COMMAND = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII | re.IGNORECASE)
"""What stands alone and may be meant as a command; a word of a script without spaces may be a sentence."""
_ASKED_FOR = {"help": "--help", "version": "--version"}
"""Words that are no commands, and the options that do what one expects of them."""
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("chat", "repl", "start"), "`agentloop` alone opens the chat."),
    **dict.fromkeys(
        ("resume", "continue"), "-c goes on with the newest session of this folder, -r ID with any."
    ),
    **dict.fromkeys(
        ("auth", "configure", "init", "login", "setup"),
        "nothing is to be set up: set OPENAI_API_KEY or give --base-url, and -m; --help lists all options.",
    ),
    **dict.fromkeys(("history", "ls", "log"), "`agentloop sessions list` lists what is stored."),
    **dict.fromkeys(("clear", "new", "reset"), "each call without -c or -r begins a new session."),
    **dict.fromkeys(
        ("server", "serve"), "`agentloop worker` does durable runs; nothing listens for requests."
    ),
}
"""Words that are commands of other programs, and what does that here."""
_OF_A_RUN = frozenset(
    {"prompt", *(each.name for each in (*SESSION, *BUSY, *TTL, *LIMITS, *OUTPUT))} - {"verbose"}
)
"""What no command heeds before it, also where it has an option of that name."""
EXIT_STATUS: Mapping[RunStatus, int] = {
    "answered": 0,
    "failed": 1,
    "usage": 2,
    "limit": 3,
    "needs_approval": 4,
    "too_large": 5,
    "try_later": 75,
    "interrupted": 130,
}
"""The words of the exit table and their numbers."""


class Program(click.Group):
    """Runs the command that the first word names; where it names none, that word is the prompt."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = load(COMMANDS[cmd_name][0])
        assert isinstance(command, click.Command)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rest = {param.name: param for param in self.get_params(ctx)}
        for title, group in OPTION_GROUPS.items():
            params = [rest.pop(each.name) for each in group]
            with formatter.section(title):
                formatter.write_dl([each for param in params if (each := param.get_help_record(ctx))])
        with formatter.section("Options"):
            formatter.write_dl([each for param in rest.values() if (each := param.get_help_record(ctx))])
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by their names and lines, none of them loaded, and options."""
        commands = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items()]
        found = [each for each in commands if each.value.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, words, _ = self.make_parser(ctx).parse_args(list(args))
        _refuse_options_as_values(self.get_params(ctx), args)
        if words and words[0] in _ASKED_FOR and (not words[1:] or words[1] in COMMANDS):
            words, args = words[1:], [*words[1:], _ASKED_FOR[words[0]]]
        if words and words[0] in COMMANDS:
            return super().parse_args(ctx, args)
        if words and given.get("prompt") is None:
            _refuse_mistyped(words)
        ctx.allow_interspersed_args = True
        return click.Command.parse_args(self, ctx, args)


@click.command(
    cls=Program,
    invoke_without_command=True,
    subcommand_metavar="[TEXT | COMMAND …]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 answered, 1 failed, 2 usage, 3 limit, 4 needs approval, 5 too large, "
    "75 try later, 130 interrupted.",
)
@click.option("-p", "--prompt", metavar="PROMPT", help="Run once and exit; - reads it from standard input.")
@options(*OPTION_GROUPS.values())
@click.version_option(agentloop.__version__, message="agentloop %(version)s", help=None)
@click.pass_context
def program(context: click.Context, /, **_: Any) -> Any:
    """An agent on any OpenAI-compatible model that never outgrows its context window.

    In a terminal it is a chat, and TEXT its first message. Without a terminal, or with -p, it runs once
    and exits; the answer goes to standard output, everything else to standard error.
    """
    flags = flags_of(context)
    _start_logs(flags)
    if context.invoked_subcommand is not None:
        _refuse_what_is_not_heeded(context, context.invoked_subcommand)
        return None
    files = [] if flags.get("as_json") else load("agentloop.cli.config_files:configured")(os.environ)[0]
    said = {name: choice.value for file in files for name, choice in file.items()}
    shown = {name: said[name] for name in ("output_format", "verbose") if name in said}
    return load("agentloop.cli.run:start")({**shown, **flags}, tuple(context.args))


def _start_logs(flags: Mapping[str, Any]) -> None:
    """Logs load only where somebody asks for them; progress says what the library would warn of."""
    logging.getLogger("agentloop").addHandler(logging.NullHandler())
    warnings.filterwarnings("ignore", "the (callback|compaction) ", RuntimeWarning)
    if flags.get("verbose") or os.environ.get(LOG_VARIABLE, "").strip():
        load("agentloop.cli.terminal:configure_logs")(verbose=bool(flags.get("verbose")))


def _refuse_what_is_not_heeded(context: click.Context, command: str) -> None:
    """Options before a command that it would not heed: the user believes that they count."""
    given, heeded = flags_of(context), _heeded_by(load(COMMANDS[command][0])) - _OF_A_RUN
    for parameter in context.command.params:
        if parameter.name in given and parameter.name not in heeded:
            raise UsageError(
                f"{parameter.opts[-1]} has no effect on `{command}`: leave it out, "
                "or write an option of the command's own behind it"
            )


def _heeded_by(command: click.Command) -> frozenset[str | None]:
    """What is heeded before any command, and its own options; of a group, those that each of it has."""
    each = command.commands.values() if isinstance(command, click.Group) else (command,)
    own = [frozenset(option.name for option in one.params) for one in each]
    return frozenset.intersection(*own) | {"verbose"}


def _refuse_options_as_values(known: Sequence[click.Parameter], words: Sequence[str]) -> None:
    """An option in the place of another's value, which was forgotten: click takes the option for it."""
    names = {name for each in known for name in each.opts}
    wanting = {
        name: each.opts[-1]
        for each in known
        if isinstance(each, click.Option) and not each.is_flag
        for name in each.opts
    }
    own = takewhile(lambda word: word != "--" and word not in COMMANDS, words)
    for before, word in pairwise(own):
        if before in wanting and word in names:
            raise UsageError(
                f"{before} has no value, since {word} is an option: give it one, "
                f"or write {wanting[before]}={word} for that very text"
            )


def _refuse_mistyped(words: Sequence[str]) -> None:
    """A word that is nearly a command, or stands alone, is hardly a prompt; an answer to it is paid for."""
    said = list(takewhile(lambda word: not word.startswith("-"), words))
    if words[0] in _ASKED_FOR and words[1:]:
        return
    is_alone = len(said) == 1 and bool(_LIKE_A_COMMAND.fullmatch(said[0]))
    if not is_alone and not said[1:]:
        return
    instead = _instead_of(words[0])
    meant = get_close_matches(words[0], [*COMMANDS, *_ASKED_FOR], n=1, cutoff=_NEARLY)
    if instead or meant or is_alone:
        way = instead or (f"did you mean {meant[0]!r}?" if meant else "--help lists them.")
        raise UsageError(
            f"no command {words[0]!r}: {way} As a prompt: agentloop -p {shlex.quote(' '.join(said))}"
        )


def _instead_of(word: str) -> str | None:
    """What does here what a word stands for that is a command elsewhere; None where nobody knows."""
    if word in load("agentloop.cli.sessions:sessions").commands:
        return f"`agentloop sessions {word}` is one."
    said = load("agentloop.cli.chat:command_help")(word)
    return f"in the chat, /{word}: {said}." if said else _INSTEAD.get(word)


def load(place: str) -> Any:
    """What stands at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def status_of_call(arguments: Sequence[str]) -> int:
    """Run the command that the words name; the exit status."""
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        with suppress(UsageError):  # a command whose extra is not installed completes nothing
            return shell_complete(program, {}, "agentloop", COMPLETE_VARIABLE, instruction)
        return 0
    try:
        with program.make_context("agentloop", list(arguments)) as context:
            result = program.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 — each fault is one line, ours too
        return status_after(error, arguments)
    return result if isinstance(result, int) else 0


def status_after(error: BaseException, arguments: Sequence[str]) -> int:
    """Say what went wrong, in JSON where the words ask a run for that; the exit status for it."""
    shape = shape_of(arguments)
    if shape != "text":
        return int(load("agentloop.cli.run:report_early_end")(shape, error))
    if isinstance(error, click.Abort | KeyboardInterrupt | BrokenPipeError):
        return EXIT_STATUS["interrupted"]
    # What reports faults loads only when there is one, so that help is quick.
    return int(load("agentloop.cli.faults:report")(error))


def shape_of(arguments: Sequence[str]) -> str:
    """What standard output is to get, as far as the words say so, also where they are not all sound.

    It is `text` for the commands, which know nothing of a run.
    """
    lenient = click.Context(
        program, resilient_parsing=True, ignore_unknown_options=True, allow_interspersed_args=True
    )
    given, words, _ = program.make_parser(lenient).parse_args(list(arguments))
    if any(word in COMMANDS for word in words):
        return "text"
    shape = given.get("output_format")
    if shape in FORMATS:
        return str(shape)
    return "stream-json" if given.get("as_json") else "text"


def exit_status(word: RunStatus) -> int:
    """The number for a word of the exit table; one that a newer version has stored counts as `failed`."""
    return EXIT_STATUS.get(word, EXIT_STATUS["failed"])
