"""Going on with a session: which one a call means, what it ran with, and the hint how to go on with it.

A call that goes on with a session takes up its model, server, API, window and compaction, unless its flags
say something else (`resume_settings`).
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from agentloop._plumbing.truncate import few
from agentloop.cli.options import MEMORY, OFFLINE
from agentloop.cli.settings import READS, Settings
from agentloop.cli.terminal import line_of, run_to_end
from agentloop.cli.values import read_when_busy
from agentloop.context import Finish, next_step
from agentloop.errors import DamagedError, SessionNotFoundError, UsageError
from agentloop.events import RunSetup, RunStartRecord
from agentloop.redaction import Secrets, secrets_in_address
from agentloop.sessions import Session, Sessions, new_session_id
from agentloop.stores import SessionInfo, SessionStore, checked_session_id, open_store

_PAGE_RECORDS = 200
_VARIABLES = {"--store": "AGENTLOOP_STORE", "--base-url": "OPENAI_BASE_URL"}
"""The addresses, and what they are called in the environment."""
_OF_SESSIONS = ("--store", "--owner", "--redact")
"""The options that say where a session lies, and whose it is."""
_BARE_USER = re.compile(r"postgres(?:ql)?://[^:@/?]*:?@[^@]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChoice:
    """At most one of: the newest of the folder, one that exists, exactly this id."""

    latest: bool = False
    existing: str | None = None
    exact: str | None = None

    @property
    def continues(self) -> bool:
        """Whether there may be a session with work pending."""
        return self.latest or self.existing is not None or self.exact is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Whether a session is there and its last run was left before its answer; how many compactions it has."""

    exists: bool
    pending: bool
    compactions: int


def session_choice(flags: Mapping[str, Any]) -> SessionChoice:
    """The choice of a call, checked before any store is touched.

    Raises:
        UsageError: two of the options, or an id that is none.
    """
    options = {"latest": "--continue", "resume": "--resume", "session": "--session"}
    names = [option for name, option in {**options, "no_session": "--no-session"}.items() if name in flags]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} cannot stand together: give one of them")
    existing, exact = flags.get("resume"), flags.get("session")
    if exact is not None:
        checked_session_id(exact)
    return SessionChoice(latest="latest" in flags, existing=existing, exact=exact)


async def session_id_for(choice: SessionChoice, store: SessionStore, settings: Settings) -> str:
    """The id of the session to use: found among those of the owner, all for None, or a new one.

    Raises:
        SessionNotFoundError: what should exist does not.
        UsageError: what should be one is several, or the id is taken by another owner.
    """
    if choice.exact is not None:
        await Sessions(store=store, owner=settings.owner).check_free(choice.exact)
        return choice.exact
    if choice.existing is not None:
        return (await find_session(choice.existing, store, owner=settings.owner)).id
    if not choice.latest:
        return new_session_id()
    folder = str(settings.workdir)
    if stored := await store.list(folder=folder, owner=settings.owner):
        return stored[0].id
    raise SessionNotFoundError(
        f"no session of the folder {folder!r} to continue: leave -c out, "
        "or name one of `agentloop sessions list --all` by -r"
    )


async def find_session(name: str, store: SessionStore, *, owner: str | None = None) -> SessionInfo:
    """The stored session with this id, this title, or an id that begins so; of this owner, all for None.

    Raises:
        SessionNotFoundError: there is none.
        UsageError: there are several, or the name is empty.
    """
    if not name.strip():
        raise UsageError("the session's id is empty: `agentloop sessions list --all` shows them")
    with suppress(UsageError):  # it is no id, so a title
        found = await store.info(checked_session_id(name))
        if found and owner in (None, found.owner):
            return found
    stored = await store.list(owner=owner)
    for group in (
        [info for info in stored if info.title == name],
        [info for info in stored if info.id.startswith(name)],
    ):
        if len(group) == 1:
            return group[0]
        if group:
            raise UsageError(
                f"{name!r} may be any of {few([info.id for info in group])}: name one of them by its id"
            )
    raise SessionNotFoundError(
        f"no session has the id, title or prefix {name[:60]!r}: `agentloop sessions list --all` shows them"
    )


async def read_past(session_id: str, store: SessionStore) -> Past:
    """What was before in that session; nothing where it is new."""
    session = await Session.open(session_id, store)
    said = session.context.messages
    return Past(
        exists=session.context.length > 0,
        pending=bool(said) and not isinstance(next_step(said), Finish),
        compactions=session.context.compaction_count,
    )


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
    if folder in ("", str(settings.workdir)) or any(
        option[0] == "--workdir" for option in settings.typed_options
    ):
        return found, resumed
    words = f"the session's folder is {folder}; tools work in {settings.workdir}: --workdir changes that"
    return found, replace(resumed, resumed_with="; ".join(filter(None, (resumed.resumed_with, words))))


async def _look_up(settings: Settings, choice: SessionChoice) -> tuple[str, str, RunStartRecord | None]:
    store = open_store(settings.store)
    try:
        session_id = await session_id_for(choice, store, settings)
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
    given = {option[0] for option in settings.typed_options}
    share = began.setup.compact_at
    said = _model_of(settings, began.model, began.setup, given)
    said["compact_at"] = "off" if share == 0 else share
    taken, flags = {}, list[str]()
    for name, value in said.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or flag in given:
            continue
        with suppress(UsageError):
            read = READS[name](str(value))
            chosen = getattr(settings, name) if name != "model" or not settings.model_is_fallback else None
            if read != chosen:
                taken[name] = read
                flags += (flag, str(value)) if read != getattr(settings, name) else ()
    fallback = settings.model_is_fallback and "model" not in taken
    words = [f"the session goes on with {shlex.join(flags)}, as before: give other options to change that"]
    asks = settings.asks_for_model and said.get("model") is None
    resumed = replace(settings, **taken, model_is_fallback=fallback, asks_for_model=asks)
    told = "; ".join([*(words if flags else ()), *_missing_headers(resumed, began.setup)])
    return replace(resumed, resumed_with=told) if told else resumed


def _missing_headers(settings: Settings, setup: RunSetup) -> Iterator[str]:
    """What to say of headers that went to the same server before, and that this call does not give."""
    given = set(map(str.lower, settings.headers))
    missing = [name for name in setup.headers if name.lower() not in given]
    if missing and settings.model != OFFLINE:
        provider = import_module("agentloop.providers.openai")
        if provider.place_of(settings.base_url or provider.OPENAI_URL) == setup.server:
            again = " and ".join(f"--header '{name}: …'" for name in missing)
            yield f"the session ran with {again}, whose value is not kept: give it again"


def _model_of(settings: Settings, model: str, setup: RunSetup, given: set[str]) -> dict[str, Any]:
    """What the log says of the model; nothing where the flags name another server, or the offline model."""
    is_other = "--model" in given and settings.model != model
    if "--base-url" in given or (is_other and settings.model == OFFLINE):
        return {}
    of_model = {"model": model, "window": None if is_other else setup.window}
    if not setup.api:
        return of_model if model == OFFLINE and not is_other and "--api" not in given else {}
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


def resume_hint(session_id: str, settings: Settings) -> str:
    """The line that says how to go on with a session, its options repeated.

    An address with a secret in it is named in words alone, and so is each header.
    """
    headers = (f" and the same --header {name}, which is not kept" for name in settings.headers)
    return f"go on with: {_command((), settings.typed_options, ('-r', session_id))}" + "".join(headers)


def approve_hint(session_id: str, settings: Settings, calls: Sequence[str]) -> str:
    """The line that says how to answer the calls that wait, the run's options repeated behind the command.

    It names the calls, since others may wait by the time it is typed.
    """
    named = () if any(each.startswith("-") for each in calls) else calls  # a server may make up any id
    command = _command(("approve", session_id, *map(line_of, named)), settings.typed_options, ())
    return f"say yes by: {command}; no by --reject WHY, and --respond TEXT stands for its result"


def rewind_hint(session_id: str, settings: Settings) -> str:
    """The line that says how to take a message back that the server will never take."""
    given = [option for option in settings.typed_options if option[0] in _OF_SESSIONS]
    command = _command(("rewind",), given, (session_id,))
    return f"if it is your newest message that is refused, take it back: {command}"


def _command(before: Sequence[str], given: Sequence[Sequence[str]], behind: Sequence[str]) -> str:
    """The words of a call; to take a session over is decided each time."""
    given = [each for each in given if each[0] != "--when-busy" or read_when_busy(each[-1]) != "take_over"]
    hidden = [option[0] for option in given if _holds_secret(*option)]
    words = [word for option in given if option[0] not in hidden for word in option]
    same = (f" and the same {name} ({_VARIABLES[name]}), which holds a secret" for name in hidden)
    return f"{program_name()} {shlex.join([*before, *words, *behind])}" + "".join(same)


def program_name() -> str:
    """How this program was called, for a hint that can be typed as it stands."""
    called = sys.argv[0] if sys.argv else ""
    if Path(called).name in ("__main__.py", "-m", "-c", ""):
        return f"{_found_by(sys.executable, 'python')} -m agentloop"
    return _found_by(called, Path(called).name)


def _holds_secret(name: str, value: str = "") -> bool:
    """Whether an address may hold one; the name alone of a user of a database is none."""
    if name not in _VARIABLES:
        return False
    if secrets_in_address(value) or Secrets()(value) != value:
        return True
    bare_user = name == "--store" and _BARE_USER.fullmatch(value)
    return "passw" in value.lower() or ("@" in value and not bare_user)


def _found_by(path: str, name: str) -> str:
    """The name, where a shell finds that program by it, else its path."""
    found = shutil.which(name)
    is_found = path == name or (found and Path(found).absolute() == Path(path).absolute())
    return name if is_found else shlex.quote(path)
