"""What a PostgreSQL server says is wrong, in words that say what to do."""

import re

from psycopg import Error, InterfaceError, OperationalError

from agentloop._plumbing.to_text import first_line
from agentloop.errors import DamagedError, StoreError

_RIGHTS = "grant the user CREATE on the schema, or SELECT, INSERT, UPDATE and DELETE on its tables"
_NO_ROOM = "the server's disc is full: free some space there and try again; what was stored is safe"
_DAMAGED = "the server says that its data is damaged: restore a copy"
_TRY_AGAIN = "it stopped while it was asked: try again; what was stored is safe"
_CORRUPTED = ("XX001", "XX002")
_ADVICE = {
    "25006": "it is read-only, as a standby is: name the primary, or add target_session_attrs=read-write",
    "28000": "the user was refused: check the name, and pg_hba.conf on the server",
    "28P01": "the user or the password was refused: check both",
    "3D000": "there is no such database: create it, or name another",
    "3F000": "no schema of its search_path is there: create one, or set another search_path",
    "40001": "other writers kept coming between: try again",
    "40P01": "other writers kept coming between: try again",
    "42501": f"no rights: {_RIGHTS}",
    "42703": "its agentloop tables are not as agentloop makes them: name another database or search_path",
    "42P01": "its agentloop tables are gone: open the store again, or restore a copy",
    "53100": _NO_ROOM,
    "53200": "the server is out of memory: try again, or give it more",
    "53300": "the server takes no more connections: close some, raise max_connections, or lower connections",
    "55P03": "another writer held a lock for too long: try again",
    "57014": "the statement took longer than it may: try again, or raise statement_seconds",
    "57P03": "the server is starting up or shutting down: try again",
    **dict.fromkeys(_CORRUPTED, _DAMAGED),
}
_SAID = (
    (r"password authentication failed|no password supplied", "28P01"),
    (r"role .* does not exist|no pg_hba.conf entry|authentication failed|not permitted to log in", "28000"),
    (r"database .* does not exist", "3D000"),
    (r"permission denied for database", "42501"),
    (r"too many (connections|clients)|connection slots are reserved", "53300"),
    (r"invalid value for parameter|unrecognized configuration parameter", "22023"),
    (r"session is read-only|server is in hot standby", "25006"),
    (r"system is (starting up|shutting down|in recovery)|not (yet )?accepting connections", "57P03"),
)
"""libpq hands on no SQLSTATE where it could not connect, only the server's text."""
_LOST = ("57P01", "57P02", "57P03", "57P05", "25P03")
_OF_TABLES = "42"
"""The class of errors that speak of tables and names; the store's words for them are of its own tables."""


def fault(label: str, error: Error) -> StoreError:
    """The fault as ours; chain it with `raise … from`."""
    kind = DamagedError if state_of(error) in _CORRUPTED else StoreError
    return kind(f"{label}: {_in_words(error)}")


def fault_of(label: str, error: BaseException) -> StoreError:
    """The fault that another client met with; chain it with `raise … from`."""
    if isinstance(error, Error) and state_of(error)[:2] != _OF_TABLES:
        return fault(label, error)
    return StoreError(f"{label}: {first_line(error)}")


def is_lost(error: Error) -> bool:
    """Whether the connection is gone, or none could be made for now."""
    state = state_of(error)
    broken = isinstance(error, OperationalError | InterfaceError)
    return state in _LOST or state[:2] == "08" or (broken and not state)


def is_away(error: BaseException | None) -> bool:
    """Whether that is a server which is not there for now."""
    return isinstance(error, Error) and is_lost(error)


def state_of(error: Error) -> str:
    """The SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html); empty where unknown."""
    if error.sqlstate:
        return error.sqlstate
    text = str(error)
    return next((state for said, state in _SAID if re.search(said, text)), "")


def _in_words(error: Error) -> str:
    match state_of(error):
        case "42501":
            return f"no rights ({_first_line(error)}): {_RIGHTS}"
        case state if state in _ADVICE:
            return _ADVICE[state]
        case state if is_lost(error) and not state:
            return f"no connection ({_first_line(error)}): check the address, and that the server runs"
        case state if is_lost(error):
            return _TRY_AGAIN
        case state:
            return f"it refused the statement ({_first_line(error)}; SQLSTATE {state or 'unknown'})"


def _first_line(error: Error) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].removeprefix("connection failed: ").removeprefix("connection is bad: ")[:300]
