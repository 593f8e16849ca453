"""Full-text search in PostgreSQL: an index of words that is brought up to date when somebody searches.

Appends never touch it. `agentloop_indexed` says up to which position each log is in it; a search first adds
what is new in the sessions that it may look into. What PostgreSQL finds is looked at again with the rule of
all stores, so that what is found is the same everywhere.

PostgreSQL's own parsers and dictionaries are not used: what a word is stands in `words`. A vector keeps at
most 255 places of a word and 16,383 in all, and holds less than 1 MB
(https://www.postgresql.org/docs/current/textsearch-limitations.html): a longer text is cut into parts.
`vectors` and `phrase_query`, at the end, write words as PostgreSQL takes them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from psycopg import AsyncConnection
from psycopg.types.numeric import Int8

from agentloop._plumbing.aio import in_thread
from agentloop.stores.base import Found, SessionScope
from agentloop.stores.lines import if_whole, record_of, to_bytes
from agentloop.stores.postgres.connection import Link
from agentloop.stores.postgres.schema import BODY
from agentloop.stores.words import Query, found_among, words_in

MOST_PLACES_OF_A_WORD = 255
MOST_WORDS = 16_000
MOST_BYTES = 400_000
OVERLAP = 16
"""So many words end one part and begin the next, so that a phrase of one more stands whole in one of them."""
MOST_PHRASES = 32
"""Of more, and of longer phrases than overlap, PostgreSQL is asked for the beginning; the rest is looked at
in what it finds."""

_INDEXED_AT_ONCE = 200
_BYTES_AT_ONCE = 2_000_000
"""So much is read of a log, and put into the index, in one transaction."""

_LOOKED_AT_ONCE = 50

_SCOPE = """
    (%(id)s::text IS NULL OR line.id = %(id)s::text)
    AND (%(folder)s::bytea IS NULL OR line.folder = %(folder)s::bytea)
    AND (%(owner)s::bytea IS NULL OR line.owner = %(owner)s::bytea)"""
_TO_INDEX = f"""
    SELECT line.id FROM agentloop_sessions AS line
    LEFT JOIN agentloop_indexed AS done ON done.session_id = line.id
    WHERE line.length <> coalesce(done.seq, 0) AND {_SCOPE}"""
_HOLD = "SELECT length FROM agentloop_sessions WHERE id = %s::text FOR KEY SHARE"
_BEGIN = "INSERT INTO agentloop_indexed VALUES (%s::text, 0) ON CONFLICT DO NOTHING"
_INDEXED = "SELECT seq FROM agentloop_indexed WHERE session_id = %s::text FOR UPDATE"
_NEW = f"""
    SELECT seq, {BODY}, upto FROM (
        SELECT seq, body, pg_catalog.sum(pg_catalog.octet_length(body)) OVER (ORDER BY seq) AS upto,
            pg_catalog.octet_length(body) AS size
        FROM agentloop_events
        WHERE session_id = %s::text AND seq > %s::int8 AND seq <= %s::int8) AS next
    WHERE upto - size < {_BYTES_AT_ONCE} ORDER BY seq"""
"""The last of them is taken whole, however long it is.

Both ends are given, and no LIMIT: for that PostgreSQL may sort all of the log that is left, each time.
"""

_BEHIND_GAP = """
    SELECT seq FROM agentloop_events WHERE session_id = %s::text AND seq > %s::int8 ORDER BY seq LIMIT 1"""
_ADD = """
    INSERT INTO agentloop_words (session_id, seq, part, is_whole, words)
    SELECT %s::text, seq, part, is_whole, words::tsvector
    FROM ROWS FROM (pg_catalog.unnest(%s::int8[]), pg_catalog.unnest(%s::int4[]),
        pg_catalog.unnest(%s::boolean[]), pg_catalog.unnest(%s::text[])) AS new (seq, part, is_whole, words)
    ON CONFLICT (session_id, seq, part) DO UPDATE
    SET is_whole = excluded.is_whole, words = excluded.words"""
"""What was there already is written again: then the index had forgotten how far it was."""
_DONE = "UPDATE agentloop_indexed SET seq = %s::int8 WHERE session_id = %s::text"
_FOUND = f"""
    WITH place AS (
        SELECT session_id, seq FROM agentloop_words WHERE is_whole AND words @@ %(all)s::tsquery
        UNION
        SELECT session_id, seq FROM agentloop_words, pg_catalog.unnest(%(each)s::text[]) AS phrase
        WHERE NOT is_whole AND words @@ %(any)s::tsquery AND words @@ phrase::tsquery
        GROUP BY session_id, seq
        HAVING pg_catalog.count(DISTINCT phrase) = pg_catalog.cardinality(%(each)s::text[]))
    SELECT session_id, seq, (
        SELECT {BODY} FROM agentloop_events AS said
        WHERE said.session_id = found.session_id AND said.seq = found.seq)
    FROM (
        SELECT place.session_id, place.seq
        FROM place JOIN agentloop_sessions AS line ON line.id = place.session_id
        WHERE {_SCOPE}
        ORDER BY line.updated DESC, line.id, place.seq DESC) AS found"""
"""The bodies are fetched behind the sorting, so that only those that are looked at are read."""

Part = tuple[int, int, bool, str]


async def search(link: Link, query: Query, scope: SessionScope, most: int) -> tuple[Found, ...]:
    """The newest `most` records that hold what is looked for, in the sessions of the scope."""
    for name in await link.run(partial(_sessions_to_index, scope)):
        while await link.run(partial(_index, name)):
            pass
    return await link.run(partial(_found, scope, query, most))


def _values(scope: SessionScope) -> dict[str, Any]:
    """The scope as the statements take it."""
    return {"id": scope.session_id, "folder": to_bytes(scope.folder), "owner": to_bytes(scope.owner)}


async def _sessions_to_index(scope: SessionScope, connection: AsyncConnection) -> list[str]:
    rows = await (await connection.execute(_TO_INDEX, _values(scope))).fetchall()
    return [name for (name,) in rows]


async def _index(session_id: str, connection: AsyncConnection) -> bool:
    """Add the next records of the session; whether there are more. Who deletes or indexes it waits."""
    async with connection.transaction():
        if await _number(connection, _HOLD, (session_id,)) is None:
            return False
        await connection.execute(_BEGIN, (session_id,))
        after = await _number(connection, _INDEXED, (session_id,)) or 0
        length = await _number(connection, _HOLD, (session_id,)) or 0  # not below what others indexed by now
        after = after if 0 <= after <= length else 0
        end = min(after + _INDEXED_AT_ONCE, length)
        rows = await (await connection.execute(_NEW, (session_id, Int8(after), Int8(end)))).fetchall()
        if rows and rows[-1][2] >= _BYTES_AT_ONCE:
            end = rows[-1][0]
        if not rows:
            behind = await _number(connection, _BEHIND_GAP, (session_id, Int8(end)))
            if behind is None:
                return False  # the line says more than there is, which reading the log tells of
            end = behind - 1
        if parts := await in_thread(_parts, session_id, rows):
            await connection.execute(_ADD, (session_id, *map(list, zip(*parts, strict=True))))
        await connection.execute(_DONE, (Int8(end), session_id))
    return end < length


async def _number(connection: AsyncConnection, statement: str, values: Sequence[Any]) -> int | None:
    row = await (await connection.execute(statement, values)).fetchone()
    return int(row[0]) if row else None


def _parts(session_id: str, rows: Sequence[tuple[int, str, int]]) -> list[Part]:
    found: list[Part] = []
    for seq, body, _ in rows:
        record = if_whole(partial(record_of, "", session_id, seq, body))
        texts = vectors(words_in(record)) if record else ()
        found += [(seq, part, len(texts) == 1, text) for part, text in enumerate(texts)]
    return found


async def _found(
    scope: SessionScope, query: Query, most: int, connection: AsyncConnection
) -> tuple[Found, ...]:
    each = list(dict.fromkeys(map(phrase_query, query.phrases[:MOST_PHRASES])))
    terms = [f"({term})" for term in each]
    values = {**_values(scope), "each": each, "all": " & ".join(terms), "any": " | ".join(terms)}
    found: list[Found] = []
    async with connection.transaction(), connection.cursor(name="agentloop_found") as cursor:
        await cursor.execute(_FOUND, values)
        while len(found) < most and (rows := await cursor.fetchmany(_LOOKED_AT_ONCE)):
            found += await in_thread(_looked_at, rows, query)
    return tuple(found[:most])


def _looked_at(rows: Sequence[tuple[str, int, str | None]], query: Query) -> list[Found]:
    """Those that are what was looked for, of sessions, positions and bodies; None for one that is gone."""
    there = ((name, seq, body) for name, seq, body in rows if body is not None)
    records = ((row[0], if_whole(partial(record_of, "", *row))) for row in there)
    return list(found_among(records, query))


def vectors(words: Sequence[str]) -> tuple[str, ...]:
    """The words, with their places, as the texts of one or more vectors; none for no words.

    >>> vectors(["to", "be", "or", "not", "to", "be"])
    ("'to':1,5 'be':2,6 'or':3 'not':4",)
    """
    return tuple(map(_vector, _cut(words)))


def phrase_query(phrase: Sequence[str]) -> str:
    """What PostgreSQL is asked for one phrase.

    >>> phrase_query(("connection", "refused"))
    "'connection' <-> 'refused'"
    """
    return " <-> ".join(map(_quoted, phrase[: OVERLAP + 1]))


def _cut(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words in parts that each go into one vector, as nearly every text does whole."""
    start, counts, size = 0, Counter[str](), 0
    for place, word in enumerate(words):
        length = len(word.encode()) + 16
        if counts[word] >= MOST_PLACES_OF_A_WORD or place - start >= MOST_WORDS or size + length > MOST_BYTES:
            yield words[start:place]
            start = max(start + 1, place - OVERLAP)
            counts = Counter(words[start:place])
            size = sum(len(each.encode()) + 16 for each in words[start:place])
        counts[word] += 1
        size += length
    if start < len(words):
        yield words[start:]


def _vector(words: Sequence[str]) -> str:
    places: dict[str, str] = {}
    for place, word in enumerate(words, start=1):
        places[word] = f"{places[word]},{place}" if word in places else str(place)
    return " ".join([f"{_quoted(word)}:{found}" for word, found in places.items()])


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
