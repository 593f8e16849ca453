"""What a session ran with: a call that goes on with it takes that up, unless its flags say something else."""

import shlex
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from agentloop.cli.session_choice import SessionChoice, session_id_for
from agentloop.cli.settings import MEMORY, OFFLINE, Settings, read_setting
from agentloop.cli.terminal import run_to_end
from agentloop.errors import DamagedError, UsageError
from agentloop.events import RunSetup, RunStartRecord
from agentloop.stores import SessionStore, open_store

_PAGE_RECORDS = 200


def resume_settings(settings: Settings, choice: SessionChoice) -> tuple[SessionChoice, Settings]:
    """The session that is meant, by its id, and the settings with what it ran with last.

    What stands on the command line holds in any case.

    Raises:
        UsageError: there is no such session, or its server may be used only where the call names it.
        StoreError: it cannot be read.
    """
    if not choice.continues or settings.store == MEMORY:
        return choice, settings
    session_id, folder, began = run_to_end(_look_up(settings, choice))
    found = SessionChoice(exact=session_id) if choice.exact else SessionChoice(existing=session_id)
    resumed = settings_of_run(settings, began) if began else settings
    if folder in ("", str(settings.workdir)) or any(option[0] == "--workdir" for option in settings.given):
        return found, resumed
    words = f"the session's folder is {folder}; tools work in {settings.workdir}: --workdir changes that"
    return found, replace(resumed, resumed_with="; ".join(filter(None, (resumed.resumed_with, words))))


async def _look_up(settings: Settings, choice: SessionChoice) -> tuple[str, str, RunStartRecord | None]:
    store = open_store(settings.store)
    try:
        session_id = await session_id_for(choice, store, settings.workdir, owner=settings.owner)
        with suppress(DamagedError):  # whoever reads the session says so
            info = await store.info(session_id)
            folder, length = (info.folder or "", info.length) if info else ("", 0)
            return session_id, folder, await _newest_start(store, session_id, length)
        return session_id, "", None
    finally:
        await store.close()


async def _newest_start(store: SessionStore, session_id: str, end: int) -> RunStartRecord | None:
    while end > 0:
        after = max(0, end - _PAGE_RECORDS)
        for record in reversed(await store.read(session_id, after=after, most=end - after)):
            if isinstance(record.event, RunStartRecord):
                return record.event
        end = after
    return None


def settings_of_run(settings: Settings, began: RunStartRecord) -> Settings:
    """The settings with the model, server, API, window and compaction of that run, where no flag beats it.

    A log may come from somebody else. What a flag would refuse is passed over. A server that the call does
    not name is taken up on this machine alone, and where there is no key.

    Raises:
        UsageError: its server may be used only where the call names it.
    """
    if began.setup is None:
        return settings
    given = {option[0] for option in settings.given}
    share = began.setup.compact_at
    said = _model_of(settings, began.model, began.setup, given)
    said["compact_at"] = "off" if share == 0 else share
    taken, flags = {}, list[str]()
    for name, value in said.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or flag in given:
            continue
        with suppress(UsageError):
            read = read_setting(name, str(value))
            chosen = getattr(settings, name) if name != "model" or not settings.model_is_fallback else None
            if read != chosen:
                taken[name] = read
                flags += flag, str(value)
    if not taken:
        return settings
    fallback = settings.model_is_fallback and "model" not in taken
    words = f"the session goes on with {shlex.join(flags)}, as before: give other options to change that"
    return replace(settings, **taken, model_is_fallback=fallback, resumed_with=words)


def _model_of(settings: Settings, model: str, setup: RunSetup, given: set[str]) -> dict[str, Any]:
    """What the log says of the model; nothing where the flags name another server, or the offline model."""
    own = "--model" in given
    if "--base-url" in given or (own and settings.model == OFFLINE):
        return {}
    of_model = {"model": model, "window": None if own else setup.window}
    if not setup.api:
        return of_model if model == OFFLINE and not given & {"--model", "--api"} else {}
    provider = import_module("agentloop.providers.openai")
    try:
        server = provider.ServerChoice(model=model, base_url=setup.server).place
    except UsageError:
        return {}
    if server == provider.place_of(settings.base_url or provider.OPENAI_URL):
        server = None
    if server and setup.cut:
        raise UsageError(f"the session ran on {server}, with a secret in its address: give --base-url again")
    if server and (settings.api_key or settings.headers or not provider.is_loopback(server)):
        secret = "your headers" if settings.headers else "the session"
        what = "your key" if settings.api_key else secret
        raise UsageError(
            f"the session ran on {server}: give --base-url {server} to send {what} there, or another server"
        )
    return {**of_model, "base_url": server, "api": setup.api}
