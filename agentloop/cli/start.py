"""A call without a command: the chat in a terminal, else one run."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from agentloop.cli.answers import Outcome, writer_for
from agentloop.cli.building import build, stored_nowhere
from agentloop.cli.console import error_console
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.finding import SessionChoice, choice_of
from agentloop.cli.logs import configure
from agentloop.cli.one_run import Call, report_outcome, run_once
from agentloop.cli.output import StandardOutput
from agentloop.cli.prompt import checked_words, prompt_for
from agentloop.cli.settings import Settings, settings_for
from agentloop.cli.standard_input import is_terminal
from agentloop.errors import UsageError


def start(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    """Run once or open the chat; the exit status."""
    configure(verbose=bool(flags.get("verbose")))
    shape = _shape(flags)
    with ExitStack() as until_end:
        if shape == "text" and flags.get("prompt") is None and is_terminal() and os.isatty(1):
            return _chat(flags, words, until_end)
        return _one_run(flags, words, shape, until_end)


def _one_run(flags: Mapping[str, Any], words: tuple[str, ...], shape: str, until_end: ExitStack) -> int:
    console = error_console()
    writer = writer_for(shape, StandardOutput.claimed())
    try:
        choice, settings = _settings(flags, until_end)
        checked_words(flags.get("prompt"), words)
        built = build(settings)
        prompt = prompt_for(flags.get("prompt"), words, continues=choice.continues)
    except UsageError as error:
        outcome = Outcome(status="usage", error=str(error))
        return run_to_end(report_outcome(outcome, writer, console))
    call = Call(settings=settings, built=built, prompt=prompt, choice=choice)
    return run_to_end(run_once(call, writer, console))


def _chat(flags: Mapping[str, Any], words: tuple[str, ...], until_end: ExitStack) -> int:
    checked_words(None, words)
    choice, settings = _settings(flags, until_end)
    built = build(settings)
    # The terminal library loads only where there is a terminal.
    chat = import_module("agentloop.cli.chat").chat
    return int(run_to_end(chat(settings, built, choice, words[0] if words else None)))


def _settings(flags: Mapping[str, Any], until_end: ExitStack) -> tuple[SessionChoice, Settings]:
    settings = settings_for(flags)
    choice = choice_of(
        latest=bool(flags.get("latest")),
        existing=flags.get("resume"),
        exact=flags.get("session"),
        stored=not flags.get("no_session"),
    )
    if flags.get("no_session"):
        given = flags.get("transcripts") is not None
        settings = until_end.enter_context(stored_nowhere(settings, transcripts_given=given))
    return choice, settings


def _shape(flags: Mapping[str, Any]) -> str:
    shape = str(flags.get("output_format") or ("stream-json" if flags.get("as_json") else "text"))
    if flags.get("as_json") and shape != "stream-json":
        raise UsageError(f"--json and --output-format {shape}: give one of them")
    return shape
