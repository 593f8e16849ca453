"""Words as PostgreSQL's text search takes them.

Its own parsers and dictionaries are not used: what a word is stands in `words`, the same for every store. A
vector keeps at most 255 places of a word and 16,383 in all, and holds less than 1 MB
(https://www.postgresql.org/docs/current/textsearch-limitations.html): a longer text is cut into parts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

MOST_PLACES_OF_A_WORD = 255
MOST_WORDS = 16_000
MOST_BYTES = 400_000
OVERLAP = 16
"""So many words end one part and begin the next, so that a phrase of one more stands whole in one of them."""
MOST_PHRASES = 32
"""Of more, and of longer phrases than overlap, PostgreSQL is asked for the beginning; the rest is looked at
in what it finds."""


def vectors(words: Sequence[str]) -> tuple[str, ...]:
    """The words, with their places, as the texts of one or more vectors; none for no words.

    >>> vectors(["to", "be", "or", "not", "to", "be"])
    ("'to':1,5 'be':2,6 'or':3 'not':4",)
    """
    return tuple(_vector(part) for part in _parts(words))


def phrase_query(phrase: Sequence[str]) -> str:
    """What PostgreSQL is asked for one phrase.

    >>> phrase_query(("connection", "refused"))
    "'connection' <-> 'refused'"
    """
    return " <-> ".join(map(_quoted, phrase[: OVERLAP + 1]))


def _parts(words: Sequence[str]) -> Iterator[Sequence[str]]:
    return iter([words] if words else []) if _is_one(words) else _cut(words)


def _is_one(words: Sequence[str]) -> bool:
    """Whether all goes into one vector, as nearly every text does; a character has four bytes at most."""
    if len(words) > MOST_WORDS or 16 * len(words) + 4 * sum(map(len, words)) > MOST_BYTES:
        return False
    return len(words) <= MOST_PLACES_OF_A_WORD or max(Counter(words).values()) <= MOST_PLACES_OF_A_WORD


def _cut(words: Sequence[str]) -> Iterator[Sequence[str]]:
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
