"""A call without a command: the chat in a terminal, else one run."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from agentloop.cli.answers import AnswerWriter, Outcome, writer_for
from agentloop.cli.building import build, stored_nowhere
from agentloop.cli.console import error_console
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.faults import word_and_line
from agentloop.cli.finding import SessionChoice, choice_of
from agentloop.cli.one_run import Call, report_outcome, run_once
from agentloop.cli.output import StandardOutput
from agentloop.cli.prompt import checked_words, prompt_for
from agentloop.cli.settings import Settings, settings_for
from agentloop.cli.standard_input import is_terminal
from agentloop.errors import UsageError


def start(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    """Run once or open the chat; the exit status."""
    shape = _shape(flags)
    if shape == "text" and flags.get("prompt") is None and is_terminal() and os.isatty(1):
        return _chat(flags, words)
    return _one_run(flags, words, shape)


def ended_early(shape: str, error: BaseException) -> int:
    """Tell standard output the end of a call that never came to its run; the exit status."""
    return _report(error, writer_for(shape, StandardOutput(1)))


def _one_run(flags: Mapping[str, Any], words: tuple[str, ...], shape: str) -> int:
    writer = writer_for(shape, StandardOutput.claimed())
    try:
        with ExitStack() as until_end:
            call = _call(flags, words, until_end)
            return run_to_end(run_once(call, writer, error_console()))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 — each end is told where the answer goes
        return _report(error, writer)


def _report(error: BaseException, writer: AnswerWriter) -> int:
    word, line = word_and_line(error)
    return run_to_end(report_outcome(Outcome(status=word, error=line), writer, error_console()))


def _call(flags: Mapping[str, Any], words: tuple[str, ...], until_end: ExitStack) -> Call:
    choice, settings = _settings(flags, until_end)
    checked_words(flags.get("prompt"), words)
    built = build(settings)
    prompt = prompt_for(flags.get("prompt"), words, continues=choice.continues)
    return Call(settings=settings, built=built, prompt=prompt, choice=choice)


def _chat(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    first = checked_words(None, words)
    with ExitStack() as until_end:
        choice, settings = _settings(flags, until_end)
        built = build(settings)
        # The terminal library loads only where there is a terminal.
        chat = import_module("agentloop.cli.chat").chat
        return int(run_to_end(chat(settings, built, choice, first)))


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
