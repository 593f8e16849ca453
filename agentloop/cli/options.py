"""The options of a run and of the chat, each standing once; commands take the groups they need.

What each stands for is said in `settings`, which `--help` does without.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import click

from agentloop._plumbing.amounts import whole_of
from agentloop._plumbing.checks import MOST_COUNT
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


@dataclass(frozen=True, slots=True)
class WholeNumber(click.ParamType[int]):
    """What an option takes that is no setting: a whole number of that range."""

    least: int = 1
    most: int = MOST_COUNT
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; the call fails where the text says none of the range."""
        try:
            return whole_of(str(value), least=self.least, most=self.most)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def _option(
    *declared: str, variable: str | None = None, may_be_empty: bool = False, **shown: Any
) -> KnownOption:
    name = click.Option(declared).name
    assert name is not None
    option = click.option(*declared, **shown)
    return KnownOption(name=name, shown=option, variable=variable, may_be_empty=may_be_empty)


def _valued(flag: str, metavar: str, help: str | None = None, **more: Any) -> KnownOption:
    return _option(flag, metavar=metavar, help=help, **more)


def _store(where: str) -> KnownOption:
    return _valued("--store", "URL", where, variable="AGENTLOOP_STORE")


def _owner(help: str | None = None, **more: Any) -> KnownOption:
    return _valued("--owner", "NAME", help, variable="AGENTLOOP_OWNER", **more)


_DATABASE = _store("The database of the runs and their sessions: postgresql://USER@HOST/DATABASE")
_REDACT = _valued(
    "--redact",
    "off|MODULE:NAME",
    "What takes secrets out of all that is written. [known keys, and those of the environment]",
    variable="AGENTLOOP_REDACT",
)
STORE: Sequence[KnownOption] = (
    _store("Where sessions lie: sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"),
    _owner("See this owner's sessions alone; new ones are theirs."),
    _REDACT,
)
QUEUE_STORE: Sequence[KnownOption] = (
    _DATABASE,
    _owner("See this owner's runs and sessions alone; new ones are theirs."),
    _REDACT,
)
"""The same for what works on the queue of durable runs."""
WORKER_STORE: Sequence[KnownOption] = (_DATABASE, _owner(hidden=True), _REDACT)
"""The same for a worker, which refuses an owner in words of its own."""
_TIME_TO_LIVE = "New sessions may be swept after so long, e.g. 30d. [never]"
TTL: Sequence[KnownOption] = (_valued("--ttl", "TIME", _TIME_TO_LIVE, variable="AGENTLOOP_TTL"),)
_BUSY = "What to do when another run works on the session. [refuse]"
BUSY: Sequence[KnownOption] = (
    _valued("--when-busy", "refuse|wait|take-over", _BUSY, variable="AGENTLOOP_WHEN_BUSY"),
)
BASE_URL = _valued(
    "--base-url", "URL", "An OpenAI-compatible server. [default: OpenAI's]", variable="OPENAI_BASE_URL"
)
HEADER = _valued("--header", "NAME:VALUE", "Sent to the server with each request. Repeatable.", multiple=True)
MODEL: Sequence[KnownOption] = (
    _option(
        "-m",
        "--model",
        variable="AGENTLOOP_MODEL",
        metavar="NAME",
        help="The model; `offline` needs no key and no network.",
    ),
    BASE_URL,
    HEADER,
    _valued(
        "--api", "chat|responses", "The API that the server speaks. [default: chat]", variable="AGENTLOOP_API"
    ),
    _valued(
        "--summary-model",
        "NAME",
        "Who writes summaries. [default: the same model]",
        variable="AGENTLOOP_SUMMARY_MODEL",
    ),
    _valued(
        "--window",
        "TOKENS",
        "The model's window, e.g. 128k. [default: as known]",
        variable="AGENTLOOP_WINDOW",
    ),
    _valued("--timeout", "SECONDS", "The longest silence of the server. [300]"),
    _valued("--temperature", "N", "Sent with each request. [not sent]"),
    _valued("--extra", "JSON", "Further fields of each request, as a JSON object."),
)
COMPACTION: Sequence[KnownOption] = (
    _valued(
        "--compact-at",
        "FRACTION",
        "Compact at this share of the window; off. [0.8]",
        variable="AGENTLOOP_COMPACT_AT",
    ),
    _valued(
        "--transcripts",
        "DIR",
        "Where full transcripts go. [default: .transcripts]",
        variable="AGENTLOOP_TRANSCRIPTS",
    ),
)
SESSION: Sequence[KnownOption] = (
    _option("-c", "--continue", "latest", is_flag=True, help="Go on with this folder's newest session."),
    # An empty id is refused where it is looked for, with how to see the ids.
    _option(
        "-r",
        "--resume",
        metavar="ID",
        help="Go on with a session: id, unique prefix, title.",
        may_be_empty=True,
    ),
    _valued("--session", "ID", "Use exactly this id: continued if it exists, else begun.", may_be_empty=True),
    _option("--no-session", is_flag=True, help="Store nothing."),
)
AGENT: Sequence[KnownOption] = (
    _valued("--system", "TEXT", "The system prompt, instead of the default one.", may_be_empty=True),
    _valued("--system-file", "PATH", "The same, from a file."),
    _valued("--tools", "MODULE[:NAME]", "Tools of a module. Repeatable.", multiple=True),
    _valued("--callbacks", "MODULE:NAME", "A callback. Repeatable.", multiple=True),
    _valued("--workdir", "DIR", "What built-in tools cannot leave. [default: this folder]"),
    _valued("--allow", "write|shell", "Allow tools that change things.", multiple=True),
    _valued("--pass-env", "NAME", "A secret that commands may see. Repeatable.", multiple=True),
    _valued("--max-steps", "N", f"Model calls in a run. [{MOST_STEPS}]"),
    _option("--no-recall", is_flag=True, help="Offer no search of what was hidden."),
    _option("--no-stream", is_flag=True, help="Ask the server without streaming."),
)
LIMITS: Sequence[KnownOption] = (
    _valued("--max-tokens", "N", "Tokens of a run, in and out, e.g. 200k. [no limit]"),
    _valued("--max-cost", "USD", "What a run may cost, in US dollars. [no limit]"),
    _valued("--max-seconds", "N", "How long a run may ask the model on. [no limit]"),
    _valued("--max-repeats", "N", "Equal results of one call. [no limit]"),
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
