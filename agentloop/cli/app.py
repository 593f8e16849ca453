"""The program's commands; a call that names none is a run or the chat.

Commands live in modules of their own that load when they are called, so that `--help` and the stored
sessions need neither a model's client nor a terminal library.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import click

import agentloop
from agentloop.cli.options import (
    AGENT,
    BUSY,
    COMPACTION,
    LIMITS,
    MODEL,
    OUTPUT,
    SESSION,
    STORE,
    TTL,
    flags_of,
    options,
)
from agentloop.errors import UsageError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "compact": ("agentloop.cli.compacting:compact", "Compact a stored session now."),
    "demo": ("agentloop.cli.demo:demo", "Show an overflow, and compaction; needs no key."),
    "lessons": ("agentloop.cli.lessons:lessons", "List or run the lessons."),
    "models": ("agentloop.cli.models:models", "What the server offers."),
    "runs": ("agentloop.cli.runs:runs", "How the durable runs stand; cancel, resume."),
    "sessions": (
        "agentloop.cli.sessions:sessions",
        "List, show, search, export, import, delete and more.",
    ),
    "submit": ("agentloop.cli.submit:submit", "Put a prompt in the queue of durable runs."),
    "undo": ("agentloop.cli.compacting:undo", "Take the newest compaction of a session back."),
    "worker": ("agentloop.cli.worker:worker", "Do the runs of the queue, on as many machines as you like."),
}
"""Each command's place and its line in the help."""
_OF_A_RUN = (
    *("prompt", "latest", "resume", "session", "no_session", "as_json", "output_format"),
    *("max_tokens", "max_cost", "max_seconds", "when_busy"),
)


def load(place: str) -> Any:
    """What stands at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _say_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"agentloop {agentloop.__version__}")
        context.exit()


def _refuse_options_of_a_run(context: click.Context) -> None:
    """Options before a command that it would not heed: the user believes that they count."""
    given = flags_of(context)
    for parameter in context.command.params:
        if parameter.name in _OF_A_RUN and parameter.name in given:
            raise UsageError(
                f"{parameter.opts[-1]} is nothing for {context.invoked_subcommand!r}: leave it out, "
                "or write an option of the command's own behind it"
            )


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, words, _ = self.make_parser(ctx).parse_args(list(args))
        if words and words[0] in COMMANDS:
            return super().parse_args(ctx, args)
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
@options(SESSION, BUSY, TTL, MODEL, COMPACTION, AGENT, LIMITS, STORE, OUTPUT)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version)
@click.pass_context
def program(context: click.Context, /, **_: Any) -> Any:
    """An agent on any OpenAI-compatible model that never outgrows its context window.

    In a terminal it is a chat, and TEXT its first message. Without a terminal, or with -p, it runs once
    and exits; the answer goes to standard output, everything else to standard error.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_of_a_run(context)
        return None
    return load("agentloop.cli.start:start")(flags_of(context), tuple(context.args))
