"""The options of a run and of the chat, each standing once; commands take the groups they need.

A new one is a row of `Options`: its flag, its help, its variable, how it is read, its type and its default
stand there and nowhere else. `settings` fills the fields, and those of the model, the store, the folder and
the redaction by what else was chosen. What is of one call alone stands below, without.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from agentloop import toolsets
from agentloop._plumbing.amounts import amount_of, seconds_of, tokens_of, whole_of
from agentloop._plumbing.checks import MOST_COUNT
from agentloop._plumbing.files import read_path, text_of
from agentloop.bounds import MOST_STEPS
from agentloop.cli import values
from agentloop.errors import UsageError

T = TypeVar("T")
D = TypeVar("D")
F = TypeVar("F", bound=Callable[..., Any])
Option: TypeAlias = Callable[[F], F]

FORMATS = ("text", "json", "stream-json")
LOG_VARIABLE = "AGENTLOOP_LOG"
APIS = ("chat", "responses")
OFFLINE = "offline"
MEMORY = "memory:"


@dataclass(frozen=True, slots=True)
class KnownOption:
    """An option: its names as click declares them, what stands for its value (None for a switch), its help.

    `variable` is the variable of the environment that is heard where it is not given. `is_free` says that a
    project's file may set it without a yes, `names_files` that its values may be files or modules. What is
    `of_one_call` alone has no key in any file. `group` is its part of the help; `reads`
    makes of its text what it stands for.
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
    group: str = ""
    reads: Callable[[Any], Any] | None = None

    @property
    def name(self) -> str:
        """What its parameter is called."""
        return self.declared.split()[-1].lstrip("-").replace("-", "_")

    def read_by(self, reads: Callable[[Any], T], *, default: D) -> T | D:
        """The field for it in a class of options: what its text stands for, by default what is given here."""
        option = replace(self, reads=reads)
        return field(default_factory=lambda: default, repr=False, metadata={"option": option})

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


_agent, _model, _compaction, _limit, _store, _busy, _ttl = (
    partial(KnownOption, group=each)
    for each in ("agent", "model", "compaction", "limit", "store", "busy", "ttl")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What each option of a run stands for, a row an option.

    `window` and `max_tokens` are in tokens, `max_cost` in US dollars. `compact_at` is None where automatic
    compaction is off. `redact` takes secrets out of what is stored and shown; None where that is off. `owner`
    is whose sessions are seen, None for all; new ones are theirs and expire after `ttl_seconds` without a new
    record, None for never.
    """

    system: str | None = _agent(
        "--system", "TEXT", "The system prompt, instead of the default one.", may_be_empty=True, is_free=True
    ).read_by(str, default=None)
    system_file: str | None = _agent(
        "--system-file", "PATH", "The same, from a file.", names_files=True
    ).read_by(lambda name: text_of(read_path(name)), default=None)
    tools: tuple[str, ...] = _agent(
        "--tools",
        "MODULE[:NAME]",
        "Tools of a module; none: no built-in ones. Repeatable.",
        is_repeated=True,
        names_files=True,
    ).read_by(tuple, default=())
    mcp: tuple[Path, ...] = _agent(
        "--mcp",
        "FILE",
        "Tools of the MCP servers that this file names. Repeatable.",
        is_repeated=True,
        names_files=True,
    ).read_by(lambda names: tuple(map(read_path, names)), default=())
    callbacks: tuple[str, ...] = _agent(
        "--callbacks", "MODULE:NAME", "A callback. Repeatable.", is_repeated=True, names_files=True
    ).read_by(tuple, default=())
    schema: str | None = _agent(
        "--schema", "FILE|MODULE:NAME", "Answer with JSON of this schema or type alone.", names_files=True
    ).read_by(str, default=None)
    workdir: Path = _agent(
        "--workdir", "DIR", "What built-in tools cannot leave. [default: this folder]"
    ).read_by(values.read_folder, default=Path())
    allow: tuple[str, ...] = _agent(
        "--allow", "RULE", "Offer and run unasked: write, shell, shell(git *), a tool.", is_repeated=True
    ).read_by(partial(values.read_rules, "allow"), default=())
    ask: tuple[str, ...] = _agent(
        "--ask", "RULE", "Ask before these calls, by rules like those of --allow.", is_repeated=True
    ).read_by(partial(values.read_rules, "ask"), default=())
    deny: tuple[str, ...] = _agent(
        "--deny", "RULE", "Never run these calls; this beats --ask, and that --allow.", is_repeated=True
    ).read_by(partial(values.read_rules, "deny"), default=())
    pass_env: tuple[str, ...] = _agent(
        "--pass-env", "NAME", "A secret that commands may see. Repeatable.", is_repeated=True
    ).read_by(values.read_variables, default=())
    max_steps: int = _agent("--max-steps", "N", f"Model calls in a run. [{MOST_STEPS}]").read_by(
        whole_of, default=MOST_STEPS
    )
    no_recall: bool = _agent(
        "--no-recall", None, "Offer no search of what was hidden.", is_free=True
    ).read_by(bool, default=False)
    todo: bool = _agent("--todo", None, "Offer a todo list, which stays in sight.", is_free=True).read_by(
        bool, default=False
    )
    # They are `Skills`, whose module loads when some are read.
    skills: Any = _agent(
        "--skills", "FOLDER", "Skills to read when needed: folders with a SKILL.md.", names_files=True
    ).read_by(lambda folder: toolsets.Skills(folder), default=None)
    background: bool = _agent(
        "--background", None, "Let commands run beside other work; wants --allow shell."
    ).read_by(bool, default=False)
    no_stream: bool = _agent("--no-stream", None, "Ask the server without streaming.", is_free=True).read_by(
        bool, default=False
    )
    model: str = _model(
        "-m --model", "NAME", "The model; `offline` needs no key and no network.", "AGENTLOOP_MODEL"
    ).read_by(str, default=OFFLINE)
    base_url: str | None = _model(
        "--base-url", "URL", "An OpenAI-compatible server. [default: OpenAI's]", "OPENAI_BASE_URL"
    ).read_by(values.read_server, default=None)
    headers: Mapping[str, str] = _model(
        "--header", "NAME:VALUE", "Sent to the server with each request. Repeatable.", is_repeated=True
    ).read_by(values.read_headers, default={})
    api: str = _model(
        "--api",
        "chat|responses",
        "The API that the server speaks. [default: chat]",
        "AGENTLOOP_API",
        is_free=True,
    ).read_by(partial(values.read_word, words=APIS, fault="no API"), default=APIS[0])
    summary_model: str | None = _model(
        "--summary-model",
        "NAME",
        "Who writes summaries. [default: the same model]",
        "AGENTLOOP_SUMMARY_MODEL",
    ).read_by(str, default=None)
    window: int | None = _model(
        "--window",
        "TOKENS",
        "The model's window, e.g. 128k. [default: as known]",
        "AGENTLOOP_WINDOW",
        is_free=True,
    ).read_by(tokens_of, default=None)
    timeout_seconds: float = _model(
        "--timeout", "SECONDS", "The longest silence of the server. [300]", is_free=True
    ).read_by(partial(amount_of, unit="seconds"), default=300.0)
    temperature: float | None = _model(
        "--temperature", "N", "Sent with each request. [not sent]", is_free=True
    ).read_by(values.read_temperature, default=None)
    extra: Mapping[str, Any] | None = _model(
        "--extra", "JSON", "Further fields of each request, as a JSON object."
    ).read_by(values.read_object, default=None)
    compact_at: float | None = _compaction(
        "--compact-at",
        "FRACTION",
        "Compact at this share of the window; off. [0.8]",
        "AGENTLOOP_COMPACT_AT",
        is_free=True,
    ).read_by(values.read_fraction, default=0.8)
    transcripts: Path = _compaction(
        "--transcripts", "DIR", "Where full transcripts go. [default: .transcripts]", "AGENTLOOP_TRANSCRIPTS"
    ).read_by(read_path, default=Path(".transcripts"))
    max_tokens: int | None = _limit(
        "--max-tokens", "N", "Tokens of a run, in and out, e.g. 200k. [no limit]"
    ).read_by(tokens_of, default=None)
    max_cost: float | None = _limit(
        "--max-cost", "USD", "What a run may cost, in US dollars. [no limit]"
    ).read_by(partial(amount_of, unit="US dollars"), default=None)
    max_seconds: float | None = _limit(
        "--max-seconds", "N", "How long a run may ask the model on. [no limit]"
    ).read_by(partial(amount_of, unit="seconds"), default=None)
    max_repeats: int | None = _limit("--max-repeats", "N", "Equal results of one call. [no limit]").read_by(
        partial(whole_of, least=2), default=None
    )
    store: str = _store(
        "--store",
        "URL",
        "Where sessions lie: sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:",
        "AGENTLOOP_STORE",
    ).read_by(str, default=MEMORY)
    owner: str | None = _store(
        "--owner", "NAME", "See this owner's sessions alone; new ones are theirs.", "AGENTLOOP_OWNER"
    ).read_by(values.read_owner, default=None)
    redact: Callable[[str], str] | None = _store(
        "--redact",
        "off|MODULE:NAME",
        "What takes secrets out of all that is written. [known keys, and those of the environment]",
        "AGENTLOOP_REDACT",
        names_files=True,
    ).read_by(values.read_last, default=None)
    when_busy: values.WhenBusy = _busy(
        "--when-busy",
        "refuse|wait|take-over",
        "What to do when another run works on the session. [refuse]",
        "AGENTLOOP_WHEN_BUSY",
    ).read_by(values.read_when_busy, default="refuse")
    ttl_seconds: float | None = _ttl(
        "--ttl", "TIME", "New sessions may be swept after so long, e.g. 30d. [never]", "AGENTLOOP_TTL"
    ).read_by(seconds_of, default=None)


def _group(name: str) -> Sequence[KnownOption]:
    options = (each.metadata["option"] for each in fields(Options))
    return tuple(each for each in options if each.group == name)


AGENT, MODEL, COMPACTION, LIMITS = map(_group, ("agent", "model", "compaction", "limit"))
STORE, BUSY, TTL = map(_group, ("store", "busy", "ttl"))
SERVER = [each for each in MODEL if each.name in ("base_url", "header")]
"""Where a server is, and what lets in there."""
_OF_QUEUE = {
    "store": "The database of the runs and their sessions: postgresql://USER@HOST/DATABASE",
    "owner": "See this owner's runs and sessions alone; new ones are theirs.",
}
QUEUE_STORE = [replace(each, help=_OF_QUEUE.get(each.name, each.help)) for each in STORE]
"""The options of the store for what works on the queue of durable runs."""
WORKER_STORE = [each for each in QUEUE_STORE if each.name != "owner"]
"""The same for a worker, which does the runs of all."""

SESSION: Sequence[KnownOption] = (
    KnownOption("-c --continue latest", None, "Go on with this folder's newest session.", of_one_call=True),
    KnownOption("-r --resume", "ID", "Go on with a session: id, unique prefix, title.", of_one_call=True),
    KnownOption(
        "--session", "ID", "Use exactly this id: continued if it exists, else begun.", of_one_call=True
    ),
    KnownOption("--no-session", None, "Store nothing.", of_one_call=True),
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
