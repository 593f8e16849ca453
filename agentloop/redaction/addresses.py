"""The secrets that stand in an address, of a model's server or of a database."""

import re
from collections.abc import Iterator
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

_SECRET_NAMES = re.compile(r"key|token|secret|pass|sig|auth|code", re.IGNORECASE)
"""In a query the values of such names are secret, however short."""

_FORM = re.compile(r"((?:[a-z][\w+.-]*://)?)([^/?#]*)([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)

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
    try:
        parts = urlsplit(url)
        _ = parts.port
        found = list(_in_parts(parts))
    except ValueError:
        before = url.partition("://")[2].rpartition("@")[0]
        found = [before, before.partition(":")[2]]
    forms = (form for each in found for form in (unquote_plus(each), unquote(each), each))
    return tuple(dict.fromkeys(form for form in forms if form))


def without_credentials(url: str) -> str:
    """What is to be a URL without login, query and fragment; its scheme alone where they can't be told.

    Example:
        >>> without_credentials("https://me:secret@ho st/v1?key=b"), without_credentials("https://me:a#b@host")
        ('https://ho st/v1', 'https://…')
    """
    scheme, login, path, rest = _FORM.fullmatch(url).groups()  # type: ignore[union-attr]
    return f"{scheme}…" if "@" in path + rest else f"{scheme}{login.rpartition('@')[2]}{path}"


def _in_parts(parts: SplitResult) -> Iterator[str]:
    login = parts.netloc.rpartition("@")[0]
    if parts.password or not parts.scheme.startswith("postgres"):
        yield from (parts.password or "", login)
    for pair in re.split("[&;]", f"{parts.query}&{parts.fragment}"):
        name, named, value = pair.partition("=")
        if not named:
            name, value = "", name
        is_plain = unquote_plus(name).lower() in _PLAIN_NAMES
        if not is_plain and (len(value) >= _LEAST_CHARS or _SECRET_NAMES.search(name)):
            yield value
