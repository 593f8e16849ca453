"""Which session a call means: the newest of the folder, one that is named, exactly this id, or a new one."""

from dataclasses import dataclass
from pathlib import Path

from agentloop.cli.terminal import few
from agentloop.context import Finish, next_step
from agentloop.errors import SessionNotFoundError, UsageError
from agentloop.sessions import Session, check_free, new_session_id
from agentloop.stores import SessionInfo, SessionStore, checked_session_id
from agentloop.stores.base import check_trunk


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


def session_choice(*, latest: bool, existing: str | None, exact: str | None, stored: bool) -> SessionChoice:
    """The choice, checked before any store is touched.

    Raises:
        UsageError: two of the options, or an id that is none.
    """
    asked = [("--continue", latest), ("--resume", existing is not None), ("--session", exact is not None)]
    names = [name for name, given in [*asked, ("--no-session", not stored)] if given]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} cannot stand together: give one of them")
    if existing is not None and not existing.strip():
        raise UsageError("--resume: the id is empty; `agentloop sessions list --all` shows them")
    if exact is not None:
        check_trunk(exact)
    return SessionChoice(latest=latest, existing=existing, exact=exact)


async def session_id_for(
    choice: SessionChoice, store: SessionStore, folder: Path, *, owner: str | None = None
) -> str:
    """The id of the session to use: found among those of the owner, all for None, or a new one.

    Raises:
        SessionNotFoundError: what should exist does not.
        UsageError: what should be one is several, or the id is taken by another owner.
    """
    if choice.exact is not None:
        await check_free(choice.exact, store, owner)
        return choice.exact
    if choice.existing is not None:
        return (await find_session(choice.existing, store, owner=owner)).id
    return await _newest(store, folder, owner) if choice.latest else new_session_id()


async def find_session(name: str, store: SessionStore, *, owner: str | None = None) -> SessionInfo:
    """The stored session with this id, this title, or an id that begins so; of this owner, all for None.

    Raises:
        SessionNotFoundError: there is none.
        UsageError: there are several, or the name is empty.
    """
    if not name.strip():
        raise UsageError("the session's id is empty: `agentloop sessions list --all` shows them")
    if exact := await _with_id(name, store, owner):
        return exact
    stored = await store.list(owner=owner)
    for group in (
        [info for info in stored if info.title == name],
        [info for info in stored if info.id.startswith(name)],
    ):
        if len(group) == 1:
            return group[0]
        if group:
            raise UsageError(
                f"{name!r} may be any of {few([info.id for info in group])}: write more of the id"
            )
    raise SessionNotFoundError(
        f"no session has the id, title or prefix {name[:60]!r}: `agentloop sessions list --all` shows them"
    )


async def _newest(store: SessionStore, folder: Path, owner: str | None) -> str:
    stored = await store.list(folder=str(folder), owner=owner)
    if not stored:
        raise SessionNotFoundError(f"no session of the folder {str(folder)!r} to continue: leave -c out")
    return stored[0].id


async def _with_id(name: str, store: SessionStore, owner: str | None) -> SessionInfo | None:
    """The session with exactly this id, found without a list; None where it is another owner's."""
    try:
        checked_session_id(name)
    except UsageError:
        return None  # a title, then
    info = await store.info(name)
    return info if info and owner in (None, info.owner) else None


async def read_past(session_id: str, store: SessionStore) -> Past:
    """What was before in that session; nothing where it is new."""
    session = await Session.open(session_id, store)
    said = session.context.messages
    return Past(
        exists=session.context.length > 0,
        pending=bool(said) and not isinstance(next_step(said), Finish),
        compactions=session.context.compaction_count,
    )
