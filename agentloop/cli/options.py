"""The options of a run and of the chat, each standing once; commands take the groups they need.

What each stands for is said in `settings`, which `--help` does without.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import click

from agentloop._plumbing.amounts import whole_of
from agentloop._plumbing.checks import MOST_COUNT
from agentloop.bounds import MOST_STEPS
from agentloop.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
Option: TypeAlias = Callable[[F], F]

FORMATS = ("text", "json", "stream-json")
LOG_VARIABLE = "AGENTLOOP_LOG"


@dataclass(frozen=True, slots=True)
class KnownOption:
    """An option: its names as click declares them, what stands for its value (None for a switch), its help.

    `variable` is the variable of the environment that is heard where it is not given. `is_free` says that a
    project's file may set it without a yes, `names_files` that its values may be files or modules. What is
    `of_one_call` alone has no key in any file.
    """

    declared: str
    metavar: str | None
    help: str | None = None
    variable: str | None = None
    _: KW_ONLY
    words: Sequence[str] | None = None
    may_be_empty: bool = False
    is_repeated: bool = False
    is_free: bool = False
    names_files: bool = False
    of_one_call: bool = False

    @property
    def name(self) -> str:
        """What its parameter is called."""
        return self.declared.split()[-1].lstrip("-").replace("-", "_")

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.metavar is None

    def __call__(self, command: F) -> F:
        """The command with this option."""
        decorate = click.option(
            *self.declared.split(),
            metavar=self.metavar,
            help=" ".join(filter(None, (self.help, self.variable))) if self.help else None,
            type=click.Choice(self.words) if self.words else None,
            is_flag=self.is_switch or None,  # of a switch not said to be one, click takes -1 for its value
            multiple=self.is_repeated,
        )
        return decorate(command)


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


_owner = partial(KnownOption, "--owner", "NAME", variable="AGENTLOOP_OWNER")
_store = partial(KnownOption, "--store", "URL", variable="AGENTLOOP_STORE")
_DATABASE = _store(help="The database of the runs and their sessions: postgresql://USER@HOST/DATABASE")
_REDACT = KnownOption(
    "--redact",
    "off|MODULE:NAME",
    "What takes secrets out of all that is written. [known keys, and those of the environment]",
    "AGENTLOOP_REDACT",
    names_files=True,
)
STORE: Sequence[KnownOption] = (
    _store(help="Where sessions lie: sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"),
    _owner(help="See this owner's sessions alone; new ones are theirs."),
    _REDACT,
)
QUEUE_STORE: Sequence[KnownOption] = (
    _DATABASE,
    _owner(help="See this owner's runs and sessions alone; new ones are theirs."),
    _REDACT,
)
"""The same for what works on the queue of durable runs."""
WORKER_STORE: Sequence[KnownOption] = (_DATABASE, _REDACT)
"""The same for a worker, which does the runs of all."""
TTL: Sequence[KnownOption] = (
    KnownOption(
        "--ttl", "TIME", "New sessions may be swept after so long, e.g. 30d. [never]", "AGENTLOOP_TTL"
    ),
)
BUSY: Sequence[KnownOption] = (
    KnownOption(
        "--when-busy",
        "refuse|wait|take-over",
        "What to do when another run works on the session. [refuse]",
        "AGENTLOOP_WHEN_BUSY",
    ),
)
BASE_URL = KnownOption(
    "--base-url", "URL", "An OpenAI-compatible server. [default: OpenAI's]", "OPENAI_BASE_URL"
)
HEADER = KnownOption(
    "--header", "NAME:VALUE", "Sent to the server with each request. Repeatable.", is_repeated=True
)
MODEL: Sequence[KnownOption] = (
    KnownOption("-m --model", "NAME", "The model; `offline` needs no key and no network.", "AGENTLOOP_MODEL"),
    BASE_URL,
    HEADER,
    KnownOption(
        "--api",
        "chat|responses",
        "The API that the server speaks. [default: chat]",
        "AGENTLOOP_API",
        is_free=True,
    ),
    KnownOption(
        "--summary-model",
        "NAME",
        "Who writes summaries. [default: the same model]",
        "AGENTLOOP_SUMMARY_MODEL",
    ),
    KnownOption(
        "--window",
        "TOKENS",
        "The model's window, e.g. 128k. [default: as known]",
        "AGENTLOOP_WINDOW",
        is_free=True,
    ),
    KnownOption("--timeout", "SECONDS", "The longest silence of the server. [300]", is_free=True),
    KnownOption("--temperature", "N", "Sent with each request. [not sent]", is_free=True),
    KnownOption("--extra", "JSON", "Further fields of each request, as a JSON object."),
)
COMPACTION: Sequence[KnownOption] = (
    KnownOption(
        "--compact-at",
        "FRACTION",
        "Compact at this share of the window; off. [0.8]",
        "AGENTLOOP_COMPACT_AT",
        is_free=True,
    ),
    KnownOption(
        "--transcripts", "DIR", "Where full transcripts go. [default: .transcripts]", "AGENTLOOP_TRANSCRIPTS"
    ),
)
SESSION: Sequence[KnownOption] = (
    KnownOption("-c --continue latest", None, "Go on with this folder's newest session.", of_one_call=True),
    KnownOption("-r --resume", "ID", "Go on with a session: id, unique prefix, title.", of_one_call=True),
    KnownOption(
        "--session", "ID", "Use exactly this id: continued if it exists, else begun.", of_one_call=True
    ),
    KnownOption("--no-session", None, "Store nothing.", of_one_call=True),
)
AGENT: Sequence[KnownOption] = (
    KnownOption(
        "--system", "TEXT", "The system prompt, instead of the default one.", may_be_empty=True, is_free=True
    ),
    KnownOption("--system-file", "PATH", "The same, from a file.", names_files=True),
    KnownOption(
        "--tools",
        "MODULE[:NAME]",
        "Tools of a module; none: no built-in ones. Repeatable.",
        is_repeated=True,
        names_files=True,
    ),
    KnownOption(
        "--mcp",
        "FILE",
        "Tools of the MCP servers that this file names. Repeatable.",
        is_repeated=True,
        names_files=True,
    ),
    KnownOption("--callbacks", "MODULE:NAME", "A callback. Repeatable.", is_repeated=True, names_files=True),
    KnownOption(
        "--schema", "FILE|MODULE:NAME", "Answer with JSON of this schema or type alone.", names_files=True
    ),
    KnownOption("--workdir", "DIR", "What built-in tools cannot leave. [default: this folder]"),
    KnownOption(
        "--allow", "RULE", "Offer and run unasked: write, shell, shell(git *), a tool.", is_repeated=True
    ),
    KnownOption("--ask", "RULE", "Ask before these calls, by rules like those of --allow.", is_repeated=True),
    KnownOption(
        "--deny", "RULE", "Never run these calls; this beats --ask, and that --allow.", is_repeated=True
    ),
    KnownOption("--pass-env", "NAME", "A secret that commands may see. Repeatable.", is_repeated=True),
    KnownOption("--max-steps", "N", f"Model calls in a run. [{MOST_STEPS}]"),
    KnownOption("--no-recall", None, "Offer no search of what was hidden.", is_free=True),
    KnownOption("--todo", None, "Offer a todo list, which stays in sight.", is_free=True),
    KnownOption(
        "--skills", "FOLDER", "Skills to read when needed: folders with a SKILL.md.", names_files=True
    ),
    KnownOption("--background", None, "Let commands run beside other work; wants --allow shell."),
    KnownOption("--no-stream", None, "Ask the server without streaming.", is_free=True),
)
LIMITS: Sequence[KnownOption] = (
    KnownOption("--max-tokens", "N", "Tokens of a run, in and out, e.g. 200k. [no limit]"),
    KnownOption("--max-cost", "USD", "What a run may cost, in US dollars. [no limit]"),
    KnownOption("--max-seconds", "N", "How long a run may ask the model on. [no limit]"),
    KnownOption("--max-repeats", "N", "Equal results of one call. [no limit]"),
)
PROMPT: Sequence[KnownOption] = (
    KnownOption(
        "--attach",
        "FILE",
        "An image, a PDF or a text beside the prompt. Repeatable.",
        is_repeated=True,
        of_one_call=True,
    ),
)
OUTPUT: Sequence[KnownOption] = (
    KnownOption("--json as_json", None, "Short for --output-format stream-json.", of_one_call=True),
    KnownOption(
        "--output-format",
        f"[{'|'.join(FORMATS)}]",
        "What standard output gets. [text]",
        words=FORMATS,
        is_free=True,
    ),
    KnownOption("--verbose", None, "Say more on standard error.", is_free=True),
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
    outer: click.Context | None = context
    while outer:
        given = {name: value for name, value in outer.params.items() if value not in (None, (), False)}
        flags, outer = given | flags, outer.parent
    for option in KNOWN:
        value = None if option.may_be_empty else flags.get(option.name)
        if isinstance(value, str) and not value.strip():
            raise UsageError(f"--{option.name.replace('_', '-')} is empty: give it a value or leave it out")
    return flags
