"""`compact`, `undo` and `rewind`: a stored session made smaller, and back."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeAlias

import click

from agentloop import strategies
from agentloop._plumbing.amounts import tokens_of, whole_of
from agentloop.cli.app import EXIT_STATUS
from agentloop.cli.build import build, make_runner, window_notice
from agentloop.cli.options import AGENT, COMPACTION, MODEL, OFFLINE, STORE, WholeNumber, options
from agentloop.cli.progress import compaction_line, dollars, failure_line, short
from agentloop.cli.resume import SessionChoice, find_session, resume_settings
from agentloop.cli.settings import Settings, settings_of_call
from agentloop.cli.terminal import StandardOutput, complain, counted, error_console, run_to_end, warn
from agentloop.cli.values import share_of
from agentloop.errors import UsageError
from agentloop.events import Compacted, Restored
from agentloop.results import NOTHING_TO_DO, TOO_LITTLE, CompactionPreview
from agentloop.runner import Runner
from agentloop.stores import SessionInfo
from agentloop.stream import CompactionResult, RunStatus

_Done: TypeAlias = tuple[RunStatus, str]
"""A word of the exit table, and a line."""
_BY_MODEL = (2, 3)
"""The tiers at which a model writes what stands instead."""
_Work: TypeAlias = Callable[[Runner, str], Coroutine[Any, Any, _Done]]

STRATEGIES: Mapping[str, tuple[str, str]] = {
    "keep-recent-fraction": ("KeepRecentFraction", "SHARE"),
    "keep-recent-turns": ("KeepRecentTurns", "TURNS"),
    "keep-user-messages": ("KeepUserMessages", "TOKENS"),
    "sliding-window": ("SlidingWindow", "MESSAGES"),
    "turn-window": ("TurnWindow", "TURNS"),
    "token-window": ("TokenWindow", "TOKENS"),
    "recursive-summary": ("RecursiveSummary", "MESSAGES"),
    "blocks": ("Blocks", "TURNS"),
    "reduce": ("Reduce", ""),
    "tiered": ("Tiered", ""),
    "clear-results": ("ClearResults", "TOKENS"),
}
"""What `--strategy` takes: what each is called in `agentloop.strategies`, and what its number counts."""

_KINDS = ", ".join(f"{name}:{counts}" if counts else name for name, (_, counts) in STRATEGIES.items())
_EXAMPLES = {"SHARE": "0.3", "TOKENS": "20k"}
_COUNT = partial(whole_of, least=0)
_NUMBERS: Mapping[str, Callable[[str], Any]] = {
    "SHARE": share_of,
    "TOKENS": lambda text: 0 if text == "0" else tokens_of(text),
    "TURNS": _COUNT,
    "MESSAGES": _COUNT,
}
"""How each kind of number is read."""


@click.command()
@click.argument("name", metavar="ID")
@click.option("--focus", metavar="TEXT", help="What the summary must keep above all.")
@click.option("--preview", is_flag=True, help="Only say what would happen.")
@click.option(
    "--strategy",
    "wanted",
    metavar="NAME[:NUMBER]",
    help=f"Another strategy, e.g. turn-window:4. The number says how much stays: {_KINDS}.",
)
@options(MODEL, COMPACTION, AGENT, STORE)
def compact(name: str, focus: str | None, preview: bool, wanted: str | None, **_: Any) -> int:
    """Compact a stored session now."""
    strategy = None if wanted is None else strategy_named(wanted)
    choice, settings = resume_settings(settings_of_call(), SessionChoice(existing=name))

    async def work(runner: Runner, session_id: str) -> _Done:
        if preview:
            return "answered", preview_text(await runner.preview(session_id, strategy=strategy))
        result = await runner.compact(session_id, focus=focus, strategy=strategy)
        if result.tier in _BY_MODEL and (settings.summary_model or settings.model) == OFFLINE:
            warn(error_console(), "the offline model wrote the summary, by rules")
        for failure in result.callback_failures:
            complain(error_console(), failure_line(failure))
        went_well = result.status in ("done", "not_due", "ineffective")
        return "answered" if went_well else "failed", compaction_text(result)

    return _on_session(choice.existing or name, settings, work)


@click.command()
@click.argument("name", metavar="ID")
@options(STORE)
def undo(name: str, **_: Any) -> int:
    """Take the newest compaction or rewind of a session back."""

    async def work(runner: Runner, session_id: str) -> _Done:
        return "answered", await undo_text(runner, session_id)

    return _on_session(name, _without_model(), work)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--turns", metavar="N", type=WholeNumber(), default=1, help="So many of the newest turns. [1]")
@options(STORE)
def rewind(name: str, turns: int, **_: Any) -> int:
    """Take the newest turn of a session back; undo gives it back.

    A turn is what you said and all that came of it: no model is shown it again. Older turns stay in sight,
    the log keeps everything, and what tools did stays done.
    """

    async def work(runner: Runner, session_id: str) -> _Done:
        return "answered", rewind_text(await runner.rewind(session_id, turns=turns), turns)

    return _on_session(name, _without_model(), work)


def strategy_named(text: str) -> strategies.Strategy:
    """The strategy of that name, made with the number behind its colon where there is one.

    It may be written as in Python too, such as `TurnWindow(4)`, and a number as `20k` or `30%`.

    Raises:
        UsageError: there is none of that name, it takes no number or needs one, or it refuses this one.
    """
    said, _, given = text.strip().removesuffix(")").replace("(", ":").partition(":")
    number = given.strip()
    names = {_letters(name): name for name in STRATEGIES}
    if _letters(said) not in names:
        near = get_close_matches(_letters(said), names, n=1)
        way = f"did you mean {names[near[0]]!r}?" if near else f"write one of {', '.join(STRATEGIES)}"
        raise UsageError(f"--strategy: {said!r} is no strategy: {way}")
    name = names[_letters(said)]
    kind, counts = STRATEGIES[name]
    if number and not counts:
        raise UsageError(f"--strategy: {name} takes no number: write {name}")
    try:
        numbers = [_NUMBERS[counts](number)] if number else []
        strategy: strategies.Strategy = getattr(strategies, kind)(*numbers)
    except TypeError:
        example = _EXAMPLES.get(counts, "8")
        raise UsageError(f"--strategy: {name} needs a number: write one such as {name}:{example}") from None
    except UsageError as error:
        raise UsageError(f"--strategy: {name}: {error}") from error
    return strategy


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def compaction_text(result: CompactionResult) -> str:
    """What a compaction came to, in one line."""
    if result.status == "not_due":
        return result.error or NOTHING_TO_DO
    return f"{TOO_LITTLE}: {result.error}" if result.status == "ineffective" else compaction_line(result)


def preview_text(preview: CompactionPreview | None) -> str:
    """What a compaction would do, in one line."""
    if preview is None:
        return "nothing would be compacted: too little may go, or the strategy keeps all of it"
    where = f"positions {preview.first} to {preview.last}"
    if preview.first == preview.last:
        where = f"position {preview.first}"
    tokens = f"{short(preview.tokens)} of {short(preview.context.tokens)} tokens"
    size = f"{counted(preview.messages, 'message')}, {tokens}"
    if preview.tokens_after >= preview.context.tokens:
        return f"{TOO_LITTLE}: {where} by {preview.strategy} would save about nothing: {size}"
    what = f"would compact {where} by {preview.strategy}"
    after = f"leaving about {short(preview.tokens_after)}"
    cache = f"{short(preview.cache_tokens_lost)} tokens leave the prompt cache once"
    return "; ".join((f"{what}: {size}", after, cache, *_costs(preview)))


def _costs(preview: CompactionPreview) -> Iterator[str]:
    """Nothing of what costs nothing, or nobody knows what."""
    if preview.cost_saved:
        yield f"each further request costs {dollars(preview.cost_saved)} less"
    if preview.cache_cost:
        yield f"the lost cache costs {dollars(preview.cache_cost)} once"


async def undo_text(runner: Runner, session_id: str) -> str:
    """What `undo` did, in one line."""
    position = await runner.undo(session_id)
    if position is None:
        return "there is no compaction or rewind to take back"
    record, *_ = await runner.store.read(session_id, after=position - 1, most=1)
    is_rewind = isinstance(record.event, Compacted) and record.event.is_rewind
    return f"taken back: {'rewind' if is_rewind else 'compaction'} {position}"


def rewind_text(gone: int, turns: int = 1, *, undo: str = "undo") -> str:
    """What `rewind` did that was to take so many turns back, in one line; `undo` is how it is undone."""
    if not gone:
        return "there is no turn to take back"
    which, them = ("newest turn", "it") if gone == 1 else (f"newest {gone} turns", "them")
    no_more = f", and there are no {turns}" if gone < turns else ""
    return f"taken back: the {which}{no_more}; {undo} gives {them} back"


async def _interrupted(runner: Runner, info: SessionInfo) -> str:
    """What a signal left, in one line: a change that is being stored is stored to its end."""
    since = await runner.store.read(info.id, after=info.length)
    is_changed = any(isinstance(record.event, Compacted | Restored) for record in since)
    return f"interrupted: session {info.id} {'was changed before that' if is_changed else 'is as it was'}"


def _without_model() -> Settings:
    return replace(settings_of_call(), model=OFFLINE, model_is_fallback=False, asks_for_model=False)


def _on_session(name: str, settings: Settings, work: _Work) -> int:
    console, output = error_console(), StandardOutput.claimed()
    built = build(settings)
    warn(console, *built.notices)

    async def whole() -> int:
        async with make_runner(built, settings, console) as runner:
            info = await find_session(name, runner.store, owner=settings.owner)
            try:
                word, line = await work(runner, info.id)
            except asyncio.CancelledError:
                complain(console, await _interrupted(runner, info))
                raise
            warn(console, window_notice(built.agent.model))
        await output.write(f"{line}\n")
        return EXIT_STATUS[word]

    return run_to_end(whole())
