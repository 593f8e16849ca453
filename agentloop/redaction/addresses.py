"""Secrets inside of addresses: of servers, of proxies and of databases; and inside of headers."""

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from agentloop._plumbing.patterns import pattern

_SECRET_NAMES = pattern(r"key|token|secret|pass|sig|auth|code|cookie|credential", re.IGNORECASE)
"""In a query and in headers the values of such names are secret, however short."""

_FORM = pattern(r"((?:[a-z][\w+.-]*://)?)([^/?#]*)([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)

_LEAST_CHARS = 8
"""So many characters of a value may be a key, whatever it is called."""

_PLAIN_NAMES = frozenset(
    {"api-version", "api_version", "version", "model", "deployment", "region", "project", "location"}
    # https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
    | {"host", "hostaddr", "port", "dbname", "user", "passfile", "require_auth", "channel_binding"}
    | {"connect_timeout", "client_encoding", "options", "application_name", "fallback_application_name"}
    | {"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
    | {"sslmode", "sslnegotiation", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir", "sslsni"}
    | {"gssencmode", "krbsrvname", "service", "target_session_attrs", "load_balance_hosts", "replication"}
)
"""In a query the values of these names are none, though they are long."""

_PASSWORD_NAME = pattern(r"passw|passphrase|pwd", re.IGNORECASE)
_KEY_NAME = pattern(
    r"(?:^|[^a-z]|api|access|subscription|account|secret|auth)"
    r"(?:keys?|tokens?|secrets?|pass|sig|signature|credentials?)(?:$|[^a-z])",
    re.IGNORECASE,
)
_HUMP = pattern(r"(?<=[a-z])(?=[A-Z])")
_WORDS = pattern(r"(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15})(?:[-_.:/ ](?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15}))*")
"""Words of letters alone, each no longer than words are."""

_SCHEME = pattern(r"^(?:bearer|basic|token|apikey|key|digest) +", re.IGNORECASE)
_PARTS = pattern(r"[^\s;,=\"]+")
_PLAIN_VALUE = pattern(r"[0-9.,:-]+|[a-z+]+://[^@?]*", re.IGNORECASE)
"""Numbers and addresses."""

_LONG = pattern(r"[A-Za-z0-9]{16,}")
_DIGITS = pattern(r"[0-9]+(?=[A-Za-z])")
_LEAST_NUMBERS = 3
"""So often digits and then letters follow one another in a key: in a date, a size or a UUID they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What must not be shown; `is_known` says that it is a secret without a doubt."""

    value: str
    is_known: bool


def secrets_in_address(url: str) -> tuple[str, ...]:
    """What must not be shown of an address, as it stands there and decoded; nothing where all of it may be.

    It is the password, all that stands before the `@`, and in the query what has a name such as `key` or is
    as long as a key. The name of a database's user alone is no secret. Where the address is none it is what
    stands before the last `@`.

    Example:
        >>> secrets_in_address("https://host/v1?api-version=2024-10-21&sig=a%2Bb")
        ('a+b', 'a%2Bb')
        >>> secrets_in_address("postgresql://ann@host/database?sslmode=verify-full")
        ()
    """
    return _in_every_form(each.value for each in _in(url))


def known_in_address(url: str) -> tuple[str, ...]:
    """Those of `secrets_in_address` that are secrets without a doubt, and may be taken out of any text.

    They are the password, unless it says what the address says in plain sight; in the query what has the name
    of a secret, unless it is words of letters alone; and what has the form of a key, whatever it is called.

    Example:
        >>> known_in_address("https://host/v1?env=production&sig=a%2Bb5")
        ('a+b5', 'a%2Bb5')
        >>> known_in_address("postgresql://postgres:postgres@host/database")
        ()
    """
    return _in_every_form(each.value for each in _in(url) if each.is_known)


def secrets_in_header(name: str, value: str) -> tuple[str, ...]:
    """What must not be shown of a header: its value, less the scheme before it, and its parts.

    Under a name that says nothing of a secret, words of letters alone, numbers and addresses are none.

    Example:
        >>> secrets_in_header("Authorization", "Bearer word"), secrets_in_header("X-Team", "gw-4f1c-a77e")
        (('word',), ('gw-4f1c-a77e',))
        >>> secrets_in_header("X-Title", "My application"), secrets_in_header("Referer", "https://my.example/")
        ((), ())
    """
    bare = _SCHEME.sub("", value)
    is_named = _SECRET_NAMES.search(name)
    if not is_named and (len(bare) < _LEAST_CHARS or _PLAIN_VALUE.fullmatch(bare) or _WORDS.fullmatch(bare)):
        return ()
    parts = (
        part for part in _PARTS.findall(bare) if len(part) >= _LEAST_CHARS and not _WORDS.fullmatch(part)
    )
    return tuple(dict.fromkeys((bare, *parts)))


def without_credentials(url: str) -> str:
    """What is to be a URL without login, query and fragment; its scheme alone where they can't be told.

    Example:
        >>> without_credentials("https://me:secret@ho st/v1?key=b"), without_credentials("https://me:a#b@host")
        ('https://ho st/v1', 'https://…')
    """
    scheme, login, path, rest = _FORM.fullmatch(url).groups()  # type: ignore[union-attr]
    return f"{scheme}…" if "@" in path + rest else f"{scheme}{login.rpartition('@')[2]}{path}"


def _in_every_form(values: Iterable[str]) -> tuple[str, ...]:
    forms = (form for each in values for form in (unquote_plus(each), unquote(each), each))
    return tuple(dict.fromkeys(form for form in forms if form))


def _in(url: str) -> Iterator[_Found]:
    try:
        parts = urlsplit(url)
        _ = parts.port
        plain = _in_plain_sight(parts.scheme, parts.username, parts.hostname, parts.path)
        yield from _in_login(parts, plain)
        yield from _in_query(f"{parts.query}&{parts.fragment}", plain)
    except ValueError:
        before, _, behind = url.partition("://")[2].rpartition("@")
        user, _, password = before.partition(":")
        yield _Found(value=before, is_known=False)
        yield _Found(value=password, is_known=unquote(password).lower() not in _in_plain_sight(user, behind))


def _in_plain_sight(*parts: str | None) -> frozenset[str]:
    """What can be no secret, as the address says it beside, or as it is the word that stands for any."""
    said = " ".join(part for part in parts if part).lower()
    return frozenset({"postgres", "password", *re.findall(r"[^\W_]+", said), *re.split("[ /]", said)})


def _in_login(parts: SplitResult, plain: Set[str]) -> Iterator[_Found]:
    login = parts.netloc.rpartition("@")[0]
    if password := parts.password:
        yield _Found(value=password, is_known=unquote(password).lower() not in plain)
    if password or not parts.scheme.startswith("postgres"):
        yield _Found(value=login, is_known=not password and _is_key(unquote(login)))


def _in_query(query: str, plain: Set[str]) -> Iterator[_Found]:
    for pair in re.split("[&;]", query):
        name, named, value = pair.partition("=")
        if not named:
            name, value = "", name
        name = unquote_plus(name)
        is_plain = name.lower() in _PLAIN_NAMES
        if not is_plain and (len(value) >= _LEAST_CHARS or _SECRET_NAMES.search(name)):
            yield _Found(value=value, is_known=_is_known(name, unquote_plus(value), plain))


def _is_known(name: str, value: str, plain: Set[str]) -> bool:
    """Whether a value of the query is a secret without a doubt."""
    if _PASSWORD_NAME.search(name):
        return value.lower() not in plain
    is_named = _KEY_NAME.search(_HUMP.sub("_", name))
    return not _WORDS.fullmatch(value) if is_named else _is_key(value)


def _is_key(value: str) -> bool:
    """Whether letters and digits are mixed in it as in nothing that people write."""
    return any(len(_DIGITS.findall(run)) >= _LEAST_NUMBERS for run in _LONG.findall(value))
