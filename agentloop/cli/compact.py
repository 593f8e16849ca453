"""`compact`, `undo` and `rewind`: a stored session made smaller, and back."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import click

from agentloop.cli.app import EXIT_STATUS
from agentloop.cli.build import build, make_runner, window_notice
from agentloop.cli.options import AGENT, COMPACTION, MODEL, STORE, flags_of, options
from agentloop.cli.progress import compaction_line, short
from agentloop.cli.session_choice import find_session
from agentloop.cli.settings import OFFLINE, Settings, settings_for
from agentloop.cli.terminal import StandardOutput, error_console, run_to_end, say
from agentloop.results import CompactionPreview
from agentloop.runner import Runner
from agentloop.stream import CompactionResult, RunStatus

_Done: TypeAlias = tuple[RunStatus, str]
"""A word of the exit table, and a line."""
_Work: TypeAlias = Callable[[Runner, str], Coroutine[Any, Any, _Done]]

TOO_LITTLE = "nothing worth compacting yet"
NOTHING = (
    f"{TOO_LITTLE}: the task, while it is short, and the newest exchange stay; what stands between them has "
    f"to take more than a summary of it, some hundreds of tokens"
)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--focus", metavar="TEXT", help="What the summary must keep above all.")
@click.option("--preview", is_flag=True, help="Only say what would happen.")
@options(MODEL, COMPACTION, AGENT, STORE)
def compact(name: str, focus: str | None, preview: bool, **_: Any) -> int:
    """Compact a stored session now."""

    settings = settings_for(flags_of(click.get_current_context()))

    async def work(runner: Runner, session_id: str) -> _Done:
        if preview:
            return "answered", preview_text(await runner.preview(session_id))
        if (settings.summary_model or settings.model) == OFFLINE:
            say(error_console(), "the offline model writes the summary, by rules", style="yellow")
        result = await runner.compact(session_id, focus=focus)
        failed = result is not None and result.status not in ("done", "ineffective")
        return "failed" if failed else "answered", compaction_text(result)

    return _on_session(name, settings, work)


@click.command()
@click.argument("name", metavar="ID")
@options(STORE)
def undo(name: str, **_: Any) -> int:
    """Take the newest compaction of a session back."""

    async def work(runner: Runner, session_id: str) -> _Done:
        return "answered", undo_text(await runner.undo(session_id))

    settings = settings_for(flags_of(click.get_current_context()))
    return _on_session(name, replace(settings, model=OFFLINE, model_is_fallback=False), work)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--turns", type=click.IntRange(min=1), default=1, metavar="N", help="How many; 1.")
@options(STORE)
def rewind(name: str, turns: int, **_: Any) -> int:
    """Take the newest turn of a session back; undo gives it back."""

    async def work(runner: Runner, session_id: str) -> _Done:
        return "answered", rewind_text(await runner.rewind(session_id, turns=turns))

    settings = settings_for(flags_of(click.get_current_context()))
    return _on_session(name, replace(settings, model=OFFLINE, model_is_fallback=False), work)


def compaction_text(result: CompactionResult | None) -> str:
    """What a compaction came to, in one line."""
    if result is None:
        return NOTHING
    return f"{TOO_LITTLE}: {result.error}" if result.status == "ineffective" else compaction_line(result)


def preview_text(preview: CompactionPreview | None) -> str:
    """What a compaction would do, in one line."""
    if preview is None:
        return NOTHING
    what = f"would compact positions {preview.first} to {preview.last} by {preview.strategy}"
    size = f"{preview.messages} messages, {short(preview.tokens)} of {short(preview.context.tokens)} tokens"
    after = f"leaving about {short(preview.tokens_after)}"
    cache = f"{short(preview.cache_tokens_lost)} tokens leave the prompt cache once"
    return "; ".join((f"{what}: {size}", after, cache, *_costs(preview)))


def _costs(preview: CompactionPreview) -> Iterator[str]:
    if preview.cost_saved is not None:
        yield f"each further request costs ${preview.cost_saved:.4f} less"
    if preview.cache_cost is not None:
        yield f"the lost cache costs ${preview.cache_cost:.4f} once"


def undo_text(position: int | None) -> str:
    """What `undo` did, in one line."""
    return "there is no compaction to take back" if position is None else f"taken back: compaction {position}"


def rewind_text(position: int | None) -> str:
    """What `rewind` did, in one line."""
    return "there is no turn to take back" if position is None else "taken back; undo gives it back"


def _on_session(name: str, settings: Settings, work: _Work) -> int:
    console, output = error_console(), StandardOutput.claimed()
    built = build(settings)
    for notice in built.notices:
        say(console, notice, style="yellow")

    async def whole() -> int:
        async with make_runner(built, settings, console) as runner:
            info = await find_session(name, runner.store, owner=settings.owner)
            word, line = await work(runner, info.id)
            if notice := window_notice(built.agent.model):
                say(console, notice, style="yellow")
        await output.write(f"{line}\n")
        return EXIT_STATUS[word]

    return run_to_end(whole())
