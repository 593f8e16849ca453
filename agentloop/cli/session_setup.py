"""What a session ran with: a call that goes on with it takes that up, unless its flags say something else."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from agentloop.cli.progress import short
from agentloop.cli.session_choice import SessionChoice, session_id_for
from agentloop.cli.settings import MEMORY, OFFLINE, Settings
from agentloop.cli.terminal import run_to_end
from agentloop.errors import DamagedError, UsageError
from agentloop.events import RunSetup, RunStartRecord
from agentloop.stores import SessionStore, open_store

_PAGE_RECORDS = 200


def as_before(settings: Settings, choice: SessionChoice) -> tuple[SessionChoice, Settings]:
    """The session that is meant, by its id, and the settings with what it ran with last.

    What stands on the command line holds in any case.

    Raises:
        UsageError: there is no such session, or its server may be used only where the call names it.
        StoreError: it cannot be read.
    """
    if not choice.continues or settings.store == MEMORY:
        return choice, settings
    session_id, began = run_to_end(_look_up(settings, choice))
    found = SessionChoice(exact=session_id) if choice.exact else SessionChoice(existing=session_id)
    return found, taken_up(settings, began) if began else settings


async def _look_up(settings: Settings, choice: SessionChoice) -> tuple[str, RunStartRecord | None]:
    store = open_store(settings.store)
    try:
        session_id = await session_id_for(choice, store, settings.workdir, owner=settings.owner)
        with suppress(DamagedError):  # whoever reads the session says so
            return session_id, await _newest_start(store, session_id)
        return session_id, None
    finally:
        await store.close()


async def _newest_start(store: SessionStore, session_id: str) -> RunStartRecord | None:
    info = await store.info(session_id)
    end = info.length if info else 0
    while end > 0:
        after = max(0, end - _PAGE_RECORDS)
        for record in reversed(await store.read(session_id, after=after, most=end - after)):
            if isinstance(record.event, RunStartRecord):
                return record.event
        end = after
    return None


def taken_up(settings: Settings, began: RunStartRecord) -> Settings:
    """The settings with the model, server, API, window and compaction of that run, where no flag beats it.

    Raises:
        UsageError: its server may be used only where the call names it.
    """
    if began.setup is None:
        return settings
    given = {option[0] for option in settings.given}
    taken = _model_of(settings, began.model, began.setup, given)
    if began.setup.compact_at is not None and "--compact-at" not in given:
        taken["compact_at"] = began.setup.compact_at or None
    taken = {name: value for name, value in taken.items() if getattr(settings, name) != value}
    if not taken:
        return settings
    fallback = settings.model_is_fallback and "model" not in taken
    now = replace(settings, **taken, model_is_fallback=fallback)
    return replace(now, as_before=_told(now, taken))


def _model_of(settings: Settings, model: str, setup: RunSetup, given: set[str]) -> dict[str, Any]:
    """What of the model is taken up; nothing where the flags name another server, or the offline model."""
    is_offline = model == OFFLINE and not setup.api
    other = "--base-url" in given or ("--model" in given and settings.model == OFFLINE)
    if other or not (setup.api or is_offline) or (is_offline and given & {"--model", "--api"}):
        return {}
    taken: dict[str, Any] = {} if is_offline else _server_of(settings, setup)
    if not is_offline and "--api" not in given:
        taken["api"] = setup.api
    if "--model" not in given:
        taken["model"] = model
        if setup.window is not None and "--window" not in given:
            taken["window"] = setup.window
    return taken


def _server_of(settings: Settings, setup: RunSetup) -> dict[str, Any]:
    """The server, where it is another than that of this call.

    A log may come from somebody else: a key goes to a server that only the log names where that is OpenAI's
    own or on this machine.
    """
    provider = import_module("agentloop.providers.openai")
    server = str(setup.server)
    if server == provider.place_of(settings.base_url or provider.OPENAI_URL):
        return {}
    if setup.cut:
        raise UsageError(f"the session ran on {server}, with a secret in its address: give --base-url again")
    if settings.api_key and not (provider.is_openai(server) or provider.is_loopback(server)):
        raise UsageError(
            f"the session ran on {server}: give --base-url {server} to send your key there, or another server"
        )
    return {"base_url": server}


def _told(now: Settings, taken: Mapping[str, Any]) -> str:
    server = f" at {now.base_url}" if "base_url" in taken else ""
    parts = [
        f"{now.model}{server}" if {"model", "base_url"} & set(taken) else "",
        f"--api {now.api}" if "api" in taken else "",
        f"a window of {short(now.window)}" if now.window and "window" in taken else "",
        "",
    ]
    if "compact_at" in taken:
        parts[-1] = "no compaction" if now.compact_at is None else f"compaction at {now.compact_at:g}"
    return f"the session goes on with {', '.join(filter(None, parts))}, as before; options change that"
