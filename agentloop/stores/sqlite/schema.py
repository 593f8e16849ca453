"""The tables of a SQLite file, as the steps that lead to them, and what stands in their columns.

Step n brings a file of version n to version n + 1; a new file goes through all of them. A step that has been
released is never changed.

Listing reads `sessions` alone, and finds those of a folder or owner, and those that expire, by an index.
There is none on `updated`, which would have to be written at every append: a list of all sessions reads every
line of `sessions` in any case, and sorting them is the least of it. For the same reason `expires` is computed
and its index holds only sessions that do expire.

`sum` is the CRC-32 of a record with its place (`record_sum`), so that a byte changed on the disc is noticed;
it is NULL on records from before there was one. The text of a checkpoint holds a sum of its own. `words` is
the full-text index: its rows are brought up to date when somebody searches, `indexed` says how far, `number`
is the session's part of their row ids. The tokenizer `ascii` takes each word as `agentloop.stores.words`
made it.
"""

from pathlib import Path
from typing import Any
from zlib import crc32

from agentloop.errors import DamagedError
from agentloop.events import Record
from agentloop.stores import lines
from agentloop.stores.base import SessionInfo

APPLICATION_ID = 0x61676C70
"""`aglp` in the file's header: a database without it was made by another program."""

MAKE_WORDS = "CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'ascii', columnsize = 0)"
WORDS_TABLES = ("words_data", "words_idx", "words_content", "words_docsize", "words_config")
"""What FTS5 keeps it in (https://sqlite.org/fts5.html#fts5_data_structures)."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE events (
            session_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (session_id, seq)) WITHOUT ROWID""",
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY NOT NULL, title, folder,
            created REAL NOT NULL, updated REAL NOT NULL, length INTEGER NOT NULL) WITHOUT ROWID""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    (
        "ALTER TABLE events ADD COLUMN sum INTEGER",
        "ALTER TABLE sessions ADD COLUMN owner",
        "ALTER TABLE sessions ADD COLUMN ttl_seconds REAL",
        "ALTER TABLE sessions ADD COLUMN expires REAL AS (updated + ttl_seconds) VIRTUAL",
        "ALTER TABLE sessions ADD COLUMN number INTEGER",
        "ALTER TABLE sessions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX sessions_folder ON sessions (folder) WHERE folder IS NOT NULL",
        "CREATE INDEX sessions_owner ON sessions (owner) WHERE owner IS NOT NULL",
        "CREATE INDEX sessions_expires ON sessions (expires) WHERE expires IS NOT NULL",
        "CREATE UNIQUE INDEX sessions_number ON sessions (number) WHERE number IS NOT NULL",
        """CREATE TABLE checkpoints (
            session_id TEXT PRIMARY KEY NOT NULL, seq INTEGER NOT NULL, event_id NOT NULL, body NOT NULL)
            WITHOUT ROWID""",
        """CREATE TABLE leases (
            session_id TEXT PRIMARY KEY NOT NULL, holder NOT NULL, place NOT NULL, pid INTEGER NOT NULL,
            started NOT NULL, since REAL NOT NULL, until REAL NOT NULL) WITHOUT ROWID""",
        MAKE_WORDS,
    ),
)
SCHEMA_VERSION = len(MIGRATIONS)
_FIRST = frozenset({"events", "sessions"})
TABLES = (frozenset[str](), _FIRST, _FIRST | {"checkpoints", "leases"})
"""The names that must stand in a file, by its version; `words` is made anew where it does not."""


IS_NUMBERED = "typeof(number) = 'integer' AND number BETWEEN 1 AND 2147483647"
"""Whether a session has a part of the row ids: anything else in its place is damage."""
SEQ_BITS = 32
"""A row of the full-text index has for its id the session's number, then, in so many bits, the position."""


def word_rows(number: int) -> tuple[int, int]:
    """The first and the last row id that the session with that number can have in the full-text index."""
    return number << SEQ_BITS, ((number + 1) << SEQ_BITS) - 1


def record_sum(session_id: str, seq: int, body: str | bytes) -> int:
    """The sum of a record's text and place."""
    text = body.encode() if isinstance(body, str) else body
    return crc32(text, crc32(b"%s\0%d" % (session_id.encode(), seq)))


def to_column(text: str | None) -> str | bytes | None:
    """Text; bytes where it holds lone surrogates, as the names of folders may that are not in UTF-8."""
    if text is None or text.isascii():
        return text
    data = lines.to_bytes(text)
    try:
        return data and data.decode()
    except UnicodeDecodeError:
        return data


def from_column(value: Any) -> Any:
    """What was stored by `to_column`; anything else comes back as it is."""
    return lines.to_text(value) if isinstance(value, bytes) else value


def row_of(info: SessionInfo) -> tuple[Any, ...]:
    """The session's line as a row of the columns `lines.COLUMNS`."""
    title, folder, owner = map(to_column, (info.title, info.folder, info.owner))
    return info.id, title, folder, info.created, info.updated, info.length, owner, info.ttl_seconds


def record_of(path: Path, session_id: str, seq: int, body: Any, total: int | None) -> Record:
    """The record of this row; `total` is its sum, None on one from before there were sums.

    Raises:
        DamagedError: it is damaged; the text names its place.
    """
    damage = _damage(session_id, seq, body, total)
    if damage:
        raise DamagedError(f"{lines.place_of(str(path), session_id, seq)}: damaged record: {damage}")
    return lines.record_of(str(path), session_id, seq, from_column(body))


def _damage(session_id: str, seq: Any, body: Any, total: int | None) -> str | None:
    """What is wrong with the columns themselves; None where they hold a text, whatever that says."""
    if not isinstance(seq, int):
        return "its position is none"
    if not isinstance(body, str | bytes):
        return "it is no text"
    if total is not None and total != record_sum(session_id, seq, body):
        return "its sum is another: restore a copy"
    try:
        from_column(body)
    except UnicodeDecodeError:
        return "no text"
    return None
