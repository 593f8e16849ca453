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

    `variable` is the variable of the environment that is heard where it is not given. `is_free` says that a
    project's file may set it without a yes, `names_files` that its values may be files or modules. What is
    `of_one_call` alone has no key in any file.
    """

    name: str
    shown: Option[Any]
    variable: str | None = None
    may_be_empty: bool = False
    is_switch: bool = False
    is_repeated: bool = False
    is_free: bool = False
    names_files: bool = False
    of_one_call: bool = False

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
    declared: str,
    metavar: str | None,
    help: str | None,
    *,
    variable: str | None = None,
    may_be_empty: bool = False,
    is_free: bool = False,
    names_files: bool = False,
    of_one_call: bool = False,
    **shown: Any,
) -> KnownOption:
    """The option with these names; `metavar` is None for a switch."""
    names = declared.split()
    name = click.Option(names).name
    assert name is not None
    if metavar is None:
        shown["is_flag"] = True  # said to be none, click takes a value such as -1 for another option
    if variable and help:
        help = f"{help} {variable}"
    return KnownOption(
        name=name,
        shown=click.option(*names, metavar=metavar, help=help, **shown),
        variable=variable,
        may_be_empty=may_be_empty,
        is_switch=metavar is None,
        is_repeated=bool(shown.get("multiple")),
        is_free=is_free,
        names_files=names_files,
        of_one_call=of_one_call,
    )


def _store(help: str) -> KnownOption:
    return _option("--store", "URL", help, variable="AGENTLOOP_STORE")


def _owner(help: str | None = None, **more: Any) -> KnownOption:
    return _option("--owner", "NAME", help, variable="AGENTLOOP_OWNER", **more)


_DATABASE = _store("The database of the runs and their sessions: postgresql://USER@HOST/DATABASE")
_REDACT = _option(
    "--redact",
    "off|MODULE:NAME",
    "What takes secrets out of all that is written. [known keys, and those of the environment]",
    variable="AGENTLOOP_REDACT",
    names_files=True,
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
TTL: Sequence[KnownOption] = (
    _option(
        "--ttl",
        "TIME",
        "New sessions may be swept after so long, e.g. 30d. [never]",
        variable="AGENTLOOP_TTL",
    ),
)
BUSY: Sequence[KnownOption] = (
    _option(
        "--when-busy",
        "refuse|wait|take-over",
        "What to do when another run works on the session. [refuse]",
        variable="AGENTLOOP_WHEN_BUSY",
    ),
)
BASE_URL = _option(
    "--base-url", "URL", "An OpenAI-compatible server. [default: OpenAI's]", variable="OPENAI_BASE_URL"
)
HEADER = _option("--header", "NAME:VALUE", "Sent to the server with each request. Repeatable.", multiple=True)
MODEL: Sequence[KnownOption] = (
    _option(
        "-m --model",
        "NAME",
        "The model; `offline` needs no key and no network.",
        variable="AGENTLOOP_MODEL",
    ),
    BASE_URL,
    HEADER,
    _option(
        "--api",
        "chat|responses",
        "The API that the server speaks. [default: chat]",
        variable="AGENTLOOP_API",
        is_free=True,
    ),
    _option(
        "--summary-model",
        "NAME",
        "Who writes summaries. [default: the same model]",
        variable="AGENTLOOP_SUMMARY_MODEL",
    ),
    _option(
        "--window",
        "TOKENS",
        "The model's window, e.g. 128k. [default: as known]",
        variable="AGENTLOOP_WINDOW",
        is_free=True,
    ),
    _option("--timeout", "SECONDS", "The longest silence of the server. [300]", is_free=True),
    _option("--temperature", "N", "Sent with each request. [not sent]", is_free=True),
    _option("--extra", "JSON", "Further fields of each request, as a JSON object."),
)
COMPACTION: Sequence[KnownOption] = (
    _option(
        "--compact-at",
        "FRACTION",
        "Compact at this share of the window; off. [0.8]",
        variable="AGENTLOOP_COMPACT_AT",
        is_free=True,
    ),
    _option(
        "--transcripts",
        "DIR",
        "Where full transcripts go. [default: .transcripts]",
        variable="AGENTLOOP_TRANSCRIPTS",
    ),
)
SESSION: Sequence[KnownOption] = (
    _option("-c --continue latest", None, "Go on with this folder's newest session.", of_one_call=True),
    # An empty id is refused where it is looked for, with how to see the ids.
    _option(
        "-r --resume",
        "ID",
        "Go on with a session: id, unique prefix, title.",
        may_be_empty=True,
        of_one_call=True,
    ),
    _option(
        "--session",
        "ID",
        "Use exactly this id: continued if it exists, else begun.",
        may_be_empty=True,
        of_one_call=True,
    ),
    _option("--no-session", None, "Store nothing.", of_one_call=True),
)
AGENT: Sequence[KnownOption] = (
    _option(
        "--system", "TEXT", "The system prompt, instead of the default one.", may_be_empty=True, is_free=True
    ),
    _option("--system-file", "PATH", "The same, from a file.", names_files=True),
    _option(
        "--tools",
        "MODULE[:NAME]",
        "Tools of a module; none: no built-in ones. Repeatable.",
        multiple=True,
        names_files=True,
    ),
    _option(
        "--mcp",
        "FILE",
        "Tools of the MCP servers that this file names. Repeatable.",
        multiple=True,
        names_files=True,
    ),
    _option("--callbacks", "MODULE:NAME", "A callback. Repeatable.", multiple=True, names_files=True),
    _option(
        "--schema", "FILE|MODULE:NAME", "Answer with JSON of this schema or type alone.", names_files=True
    ),
    _option("--workdir", "DIR", "What built-in tools cannot leave. [default: this folder]"),
    _option("--allow", "RULE", "Offer and run unasked: write, shell, shell(git *), a tool.", multiple=True),
    _option("--ask", "RULE", "Ask before these calls, by rules like those of --allow.", multiple=True),
    _option("--deny", "RULE", "Never run these calls; this beats --ask, and that --allow.", multiple=True),
    _option("--pass-env", "NAME", "A secret that commands may see. Repeatable.", multiple=True),
    _option("--max-steps", "N", f"Model calls in a run. [{MOST_STEPS}]"),
    _option("--no-recall", None, "Offer no search of what was hidden.", is_free=True),
    _option("--todo", None, "Offer a todo list, which stays in sight.", is_free=True),
    _option("--skills", "FOLDER", "Skills to read when needed: folders with a SKILL.md.", names_files=True),
    _option("--background", None, "Let commands run beside other work; wants --allow shell."),
    _option("--no-stream", None, "Ask the server without streaming.", is_free=True),
)
LIMITS: Sequence[KnownOption] = (
    _option("--max-tokens", "N", "Tokens of a run, in and out, e.g. 200k. [no limit]"),
    _option("--max-cost", "USD", "What a run may cost, in US dollars. [no limit]"),
    _option("--max-seconds", "N", "How long a run may ask the model on. [no limit]"),
    _option("--max-repeats", "N", "Equal results of one call. [no limit]"),
)
PROMPT: Sequence[KnownOption] = (
    _option(
        "--attach",
        "FILE",
        "An image, a PDF or a text beside the prompt. Repeatable.",
        multiple=True,
        of_one_call=True,
    ),
)
OUTPUT: Sequence[KnownOption] = (
    _option("--json as_json", None, "Short for --output-format stream-json.", of_one_call=True),
    _option(
        "--output-format",
        f"[{'|'.join(FORMATS)}]",
        "What standard output gets. [text]",
        type=click.Choice(FORMATS),
        is_free=True,
    ),
    _option("--verbose", None, "Say more on standard error.", is_free=True),
)

REPEATED: Sequence[KnownOption] = (*AGENT, *MODEL, *COMPACTION, *LIMITS, *STORE, *BUSY)
"""What a run is repeated with when it goes on."""

KNOWN: Sequence[KnownOption] = (*REPEATED, *PROMPT, *TTL, *SESSION, *OUTPUT)


AS_JSON: Sequence[Option[Any]] = (click.option("--json", "as_json", is_flag=True, help="A JSON list."),)
"""Of a command that lists something."""


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
