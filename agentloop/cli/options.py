"""The options of a run and of the chat, each standing once; commands take the groups they need.

What each stands for is said in `settings`, which `--help` does without.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import click

from agentloop.errors import UsageError
from agentloop.run import MOST_STEPS

F = TypeVar("F", bound=Callable[..., Any])
Option: TypeAlias = Callable[[F], F]

FORMATS = ("text", "json", "stream-json")
LOG_VARIABLE = "AGENTLOOP_LOG"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOption:
    """An option, which `shown` puts on a command as its parameter `name`.

    `variable` is the variable of the environment that is heard where it is not given.
    """

    name: str
    shown: Option[Any]
    variable: str | None = None
    may_be_empty: bool = False

    def __call__(self, command: F) -> F:
        """The command with this option."""
        with_it: F = self.shown(command)
        return with_it


def _option(*declared: str, variable: str | None = None, **shown: Any) -> KnownOption:
    name = click.Option(declared).name
    assert name is not None
    return KnownOption(name=name, shown=click.option(*declared, **shown), variable=variable)


def _empty(option: KnownOption) -> KnownOption:
    return replace(option, may_be_empty=True)


def _store(where: str) -> KnownOption:
    return _option("--store", variable="AGENTLOOP_STORE", metavar="URL", help=where)


def _owner(**shown: Any) -> KnownOption:
    return _option("--owner", variable="AGENTLOOP_OWNER", metavar="NAME", **shown)


_REDACT = _option(
    "--redact",
    variable="AGENTLOOP_REDACT",
    metavar="off|MODULE:NAME",
    help="What takes secrets out of all that is written. [known keys, and those of the environment]",
)
STORE: Sequence[KnownOption] = (
    _store("Where sessions lie: sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"),
    _owner(help="See this owner's sessions alone; new ones are theirs."),
    _REDACT,
)
_DATABASE = _store("The database of the runs and their sessions: postgresql://USER@HOST/DATABASE")
QUEUE_STORE: Sequence[KnownOption] = (
    _DATABASE,
    _owner(help="See this owner's runs and sessions alone; new ones are theirs."),
    _REDACT,
)
"""The same for what works on the queue of durable runs."""

WORKER_STORE: Sequence[KnownOption] = (_DATABASE, _owner(hidden=True), _REDACT)
"""The same for a worker, which refuses an owner in words of its own."""

TTL: Sequence[KnownOption] = (
    _option(
        "--ttl",
        variable="AGENTLOOP_TTL",
        metavar="TIME",
        help="New sessions may be swept after so long, e.g. 30d. [never]",
    ),
)
BUSY: Sequence[KnownOption] = (
    _option(
        "--when-busy",
        variable="AGENTLOOP_WHEN_BUSY",
        metavar="refuse|wait|take-over",
        help="What to do when another run works on the session. [refuse]",
    ),
)
MODEL: Sequence[KnownOption] = (
    _option(
        *("-m", "--model"),
        variable="AGENTLOOP_MODEL",
        metavar="NAME",
        help="The model; `offline` needs no key and no network.",
    ),
    _option(
        "--base-url",
        variable="OPENAI_BASE_URL",
        metavar="URL",
        help="An OpenAI-compatible server. [default: OpenAI's]",
    ),
    _option(
        "--api",
        variable="AGENTLOOP_API",
        metavar="chat|responses",
        help="The API that the server speaks. [default: chat]",
    ),
    _option(
        "--summary-model",
        variable="AGENTLOOP_SUMMARY_MODEL",
        metavar="NAME",
        help="Who writes summaries. [default: the same model]",
    ),
    _option(
        "--window",
        variable="AGENTLOOP_WINDOW",
        metavar="TOKENS",
        help="The model's window, e.g. 128k. [default: as known]",
    ),
)
COMPACTION: Sequence[KnownOption] = (
    _option(
        "--compact-at",
        variable="AGENTLOOP_COMPACT_AT",
        metavar="FRACTION",
        help="Compact at this share of the window; off. [0.8]",
    ),
    _option(
        "--transcripts",
        variable="AGENTLOOP_TRANSCRIPTS",
        metavar="DIR",
        help="Where full transcripts go. [default: .transcripts]",
    ),
)
SESSION: Sequence[KnownOption] = (
    _option("-c", "--continue", "latest", is_flag=True, help="Go on with this folder's newest session."),
    # An empty id is refused where it is looked for, with how to see the ids.
    _empty(_option("-r", "--resume", metavar="ID", help="Go on with a session: id, unique prefix, title.")),
    _empty(
        _option("--session", metavar="ID", help="Use exactly this id: continued if it exists, else begun.")
    ),
    _option("--no-session", is_flag=True, help="Store nothing."),
)
AGENT: Sequence[KnownOption] = (
    _empty(_option("--system", metavar="TEXT", help="The system prompt, instead of the default one.")),
    _option("--system-file", metavar="PATH", help="The same, from a file."),
    _option("--tools", metavar="MODULE[:NAME]", multiple=True, help="Tools of a module. Repeatable."),
    _option("--callbacks", metavar="MODULE:NAME", multiple=True, help="A callback. Repeatable."),
    _option("--workdir", metavar="DIR", help="What built-in tools cannot leave. [default: this folder]"),
    _option("--allow", metavar="write|shell", multiple=True, help="Allow tools that change things."),
    _option(
        "--max-steps", metavar="N", type=click.IntRange(min=1), help=f"Model calls in a run. [{MOST_STEPS}]"
    ),
    _option("--no-stream", is_flag=True, help="Ask the server without streaming."),
)
LIMITS: Sequence[KnownOption] = (
    _option("--max-tokens", metavar="N", help="Tokens of a run, in and out, e.g. 200k. [no limit]"),
    _option("--max-cost", metavar="USD", help="What a run may cost, in US dollars. [no limit]"),
    _option("--max-seconds", metavar="N", help="How long a run may ask the model on. [no limit]"),
)
OUTPUT: Sequence[KnownOption] = (
    _option("--json", "as_json", is_flag=True, help="Short for --output-format stream-json."),
    _option("--output-format", type=click.Choice(FORMATS), help="What standard output gets. [text]"),
    _option("--verbose", is_flag=True, help="Say more on standard error."),
)

REPEATED: Sequence[KnownOption] = (*AGENT, *MODEL, *COMPACTION, *LIMITS, *STORE, *BUSY)
"""What a run is repeated with when it goes on."""

KNOWN: Sequence[KnownOption] = (*REPEATED, *TTL, *SESSION, *OUTPUT)


def options(*groups: Sequence[Option[Any]]) -> Option[Any]:
    """One decorator for these groups of options, shown in this order."""

    def decorate(function: F) -> F:
        for group in reversed(groups):
            for option in reversed(group):
                function = option(function)
        return function

    return decorate


def flags_of(context: click.Context) -> dict[str, Any]:
    """What was given on the command line, options before a command and behind it; the latter win.

    Raises:
        UsageError: an option is empty that must say something.
    """
    flags: dict[str, Any] = {}
    for each in _outermost_first(context):
        flags |= {name: value for name, value in each.params.items() if value not in (None, (), False)}
    for option in KNOWN:
        value = None if option.may_be_empty else flags.get(option.name)
        if isinstance(value, str) and not value.strip():
            raise UsageError(f"--{option.name.replace('_', '-')} is empty: give it a value or leave it out")
    return flags


def _outermost_first(context: click.Context) -> list[click.Context]:
    above = [] if context.parent is None else _outermost_first(context.parent)
    return [*above, context]
