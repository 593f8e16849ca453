"""The options of a run and of the chat, each standing once; commands take the groups they need."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import click

from agentloop.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
Option: TypeAlias = Callable[[F], F]

FORMATS = ("text", "json", "stream-json")
_NEVER_BLANK = (
    *("model", "base_url", "api", "summary_model", "store", "workdir", "window", "transcripts", "redact"),
    *("max_tokens", "max_cost", "max_seconds", "owner", "ttl", "when_busy"),
)

STORE: Sequence[Option[Any]] = (
    click.option("--store", metavar="URL", help="Where sessions lie: sqlite:///FILE or memory:"),
    click.option("--owner", metavar="NAME", help="See this owner's sessions alone; new ones are theirs."),
    click.option(
        "--redact",
        metavar="off|MODULE:NAME",
        help="What takes secrets out of all that is written. [known keys, and those of the environment]",
    ),
)
TTL: Sequence[Option[Any]] = (
    click.option("--ttl", metavar="TIME", help="New sessions may be swept after so long, e.g. 30d. [never]"),
)
BUSY: Sequence[Option[Any]] = (
    click.option(
        "--when-busy",
        metavar="refuse|wait|take-over",
        help="What to do when another run works on the session. [refuse]",
    ),
)
MODEL: Sequence[Option[Any]] = (
    click.option("-m", "--model", metavar="NAME", help="The model; `offline` needs no key and no network."),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server. [default: OpenAI's]"),
    click.option("--api", metavar="chat|responses", help="The API that the server speaks. [default: chat]"),
    click.option("--summary-model", metavar="NAME", help="Who writes summaries. [default: the same model]"),
    click.option("--window", metavar="TOKENS", help="The model's window, e.g. 128k. [default: as known]"),
)
COMPACTION: Sequence[Option[Any]] = (
    click.option("--compact-at", metavar="FRACTION", help="Compact at this share of the window; off. [0.8]"),
    click.option("--transcripts", metavar="DIR", help="Where full transcripts go. [default: .transcripts]"),
)
SESSION: Sequence[Option[Any]] = (
    click.option("-c", "--continue", "latest", is_flag=True, help="Go on with this folder's newest session."),
    click.option("-r", "--resume", metavar="ID", help="Go on with a session: id, unique prefix, title."),
    click.option("--session", metavar="ID", help="Use exactly this id: continued if it exists, else begun."),
    click.option("--no-session", is_flag=True, help="Store nothing."),
)
AGENT: Sequence[Option[Any]] = (
    click.option("--system", metavar="TEXT", help="The system prompt, instead of the default one."),
    click.option("--system-file", metavar="PATH", help="The same, from a file."),
    click.option("--tools", metavar="MODULE[:NAME]", multiple=True, help="Tools of a module. Repeatable."),
    click.option("--callbacks", metavar="MODULE:NAME", multiple=True, help="A callback. Repeatable."),
    click.option("--workdir", metavar="DIR", help="What built-in tools cannot leave. [default: this folder]"),
    click.option("--allow", metavar="write|shell", multiple=True, help="Allow tools that change things."),
    click.option("--max-steps", metavar="N", type=click.IntRange(min=1), help="Model calls in a run. [200]"),
    click.option("--no-stream", is_flag=True, help="Ask the server without streaming."),
)
LIMITS: Sequence[Option[Any]] = (
    click.option("--max-tokens", metavar="N", help="Tokens of a run, in and out, e.g. 200k. [no limit]"),
    click.option("--max-cost", metavar="USD", help="What a run may cost, in US dollars. [no limit]"),
    click.option("--max-seconds", metavar="N", help="How long a run may ask the model on. [no limit]"),
)
OUTPUT: Sequence[Option[Any]] = (
    click.option("--json", "as_json", is_flag=True, help="Short for --output-format stream-json."),
    click.option("--output-format", type=click.Choice(FORMATS), help="What standard output gets. [text]"),
    click.option("--verbose", is_flag=True, help="Say more on standard error."),
)


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
    for name in _NEVER_BLANK:
        if isinstance(value := flags.get(name), str) and not value.strip():
            raise UsageError(f"--{name.replace('_', '-')} is empty: give it a value or leave it out")
    return flags


def _outermost_first(context: click.Context) -> list[click.Context]:
    above = [] if context.parent is None else _outermost_first(context.parent)
    return [*above, context]
