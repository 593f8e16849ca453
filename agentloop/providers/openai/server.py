"""The server: which address, which key, which model; by what was given, or by the environment.

`wipe_secrets`, at the end, keeps the key and the credentials of headers and of an address out of every text.
"""

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

from agentloop._plumbing.checks import headers_or_none, shown, text_or_none
from agentloop.errors import UsageError
from agentloop.redaction import secrets_in_address, secrets_in_header, without_credentials

OPENAI_URL = "https://api.openai.com/v1"
_AUTHORIZATION = "authorization"
_PLACEHOLDER = "Bearer no-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where requests go, and to which model there; the key and the headers are kept out of every text.

    The `headers` are all that the user has sent with a request, the one with the key among them.
    """

    model: str
    base_url: str = field(repr=False)
    key: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    @property
    def place(self) -> str:
        return place_of(self.base_url)

    @property
    def lets_in(self) -> bool:
        """Whether a key, a login or an `Authorization` goes with each request."""
        return self.headers.get(_AUTHORIZATION, _PLACEHOLDER) != _PLACEHOLDER

    @property
    def query(self) -> Mapping[str, str]:
        """The query of the base URL, such as `api-version`: it goes behind the path of each request."""
        return dict(parse_qsl(urlsplit(self.base_url).query, keep_blank_values=True))

    def wipe_secrets(self, text: str) -> str:
        """The text without the key, parts of it, and the credentials in the headers and the base URL."""
        given = (secret for each in self.headers.items() for secret in secrets_in_header(*each))
        return wipe_secrets(text, (self.key, *given), self.base_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoice:
    """A model and where it is, as far as that was given; the environment says the rest when it is asked.

    `headers` go with each request to that address, and to no other; an `Authorization` among them stands in
    place of the key.

    Raises:
        UsageError: the model's name, the base URL, the key or a header is none.
    """

    model: str
    base_url: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        text_or_none("base_url", self.base_url)
        text_or_none("api_key", self.api_key)
        if not isinstance(self.model, str):
            raise UsageError(f"model must be the name of a model, a text, not {shown(self.model)}")
        if not self.model.strip() or not self.model.isprintable():
            raise UsageError(f"bad model name {self.model!r}: name one that the server offers")
        object.__setattr__(self, "base_url", _checked_url(self.base_url) if self.base_url else None)
        object.__setattr__(self, "headers", headers_or_none("headers", self.headers))

    @property
    def place(self) -> str | None:
        """The base URL as far as it was given, without any credentials in it."""
        return None if self.base_url is None else place_of(self.base_url)

    @property
    def url(self) -> str:
        """The base URL that holds, the environment's or OpenAI's own where none was given."""
        return self.base_url or _url_of_environment() or OPENAI_URL

    def server(self) -> Server:
        """The server that was given, or where that is None the environment's.

        Raises:
            UsageError: there is neither a key nor a base URL, or one that cannot be used.
        """
        url = self.base_url or _url_of_environment()
        key = (self.api_key or os.environ.get("OPENAI_API_KEY", "")).strip()
        given = {name.lower(): value for name, value in (self.headers or {}).items()}
        if not url and not key and _AUTHORIZATION not in given:
            raise UsageError("no key and no server: set OPENAI_API_KEY, or give a base URL")
        if not key.isascii() or any(not letter.isprintable() or letter == " " for letter in key):
            raise UsageError("the API key holds characters that no key has: check OPENAI_API_KEY")
        address = _checked_url(url or OPENAI_URL)
        headers = _authorization(address, key, given) | given
        return Server(model=self.model, base_url=address, key=key, headers=headers)


def _authorization(url: str, key: str, given: Mapping[str, str]) -> dict[str, str]:
    """The header that lets in: the login in the URL, else the key; a placeholder where no header is given."""
    login = urlsplit(url).netloc.rpartition("@")[0]
    if login:
        user, _, password = login.partition(":")
        said = f"{unquote(user)}:{unquote(password)}"
        return {_AUTHORIZATION: "Basic " + b64encode(said.encode()).decode()}
    if key or not given:
        return {_AUTHORIZATION: f"Bearer {key}" if key else _PLACEHOLDER}
    return {}


def _url_of_environment() -> str:
    return os.environ.get("OPENAI_BASE_URL", "").strip()


def place_of(url: str) -> str:
    """The URL without credentials, query and fragment; so is one that is none, as far as that can be told."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return without_credentials(url)


def is_openai(url: str) -> bool:
    """Whether the URL names OpenAI's own API: by https, at its own port."""
    parts, own = urlsplit(url), urlsplit(OPENAI_URL)
    return (parts.scheme, parts.hostname, parts.port or 443) == (own.scheme, own.hostname, 443)


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    """The URL itself, without blanks around it.

    Raises:
        UsageError: it is no http or https URL.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        known = (
            url.isprintable()
            and " " not in url
            and parts.scheme in ("http", "https")
            and parts.hostname
            and parts.port != 0
        )
    except ValueError:
        known = False
    if not known:
        raise UsageError(
            f"bad base URL {without_credentials(url)!r}: write one such as http://localhost:8080/v1"
        )
    return url


WIPED = "***"
_LEAST_PART = 8
"""So many characters of a key in a row are a part of it: prefixes such as `sk-proj-` are no longer."""

_LEAST_SECRET = 3
"""What is shorter than this stands in too many words to be wiped."""

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_MASK = re.compile(r"\*{2,}|\.{3,}|…|•{2,}|[xX]{4,}")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"'<>]{1,300}@")
_EDGE = re.compile(r"[\s\"'`<>:=]")
_MOST_EDGE = 300
"""So far to each side of a mask is looked: longer than keys in use are, and linear in the text."""


def wipe_secrets(text: str, keys: Sequence[str], url: str) -> str:
    """The text with three stars for the keys, for longer parts of them, and for credentials of the URL.

    Each goes in any case of its letters, and as it stands in a URL; so does what `secrets_in_address` finds.
    A key that a server masked in the middle, as in `sk-ab***yz`, goes whole.
    """
    text = _CREDENTIALS.sub(f"{WIPED}@", text)
    forms = {form for each in (*keys, *secrets_in_address(url)) for form in _forms(each)}
    for secret in sorted((form for form in forms if len(form) >= _LEAST_SECRET), key=len, reverse=True):
        text = _without(text, secret)
    for key in keys:
        text = _without_masked(text, key)
    return text


def _forms(secret: str) -> tuple[str, ...]:
    return secret, unquote(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)


def _without(text: str, secret: str) -> str:
    """Without each run of the secret's characters that is long enough to be no chance."""
    width = min(_LEAST_PART, len(secret))
    lowered, secret = _lower(text), _lower(secret)
    parts = {secret[at : at + width] for at in range(len(secret) - width + 1)}
    found = sorted(at for part in parts for at in _places(lowered, part))
    pieces: list[str] = []
    end = 0
    for at in found:
        if at > end or not pieces:
            pieces += (text[end:at], WIPED)
        end = at + width
    return "".join((*pieces, text[end:]))


def _lower(text: str) -> str:
    """The text with its letters A to Z small, as long as it was; other alphabets have no keys."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _without_masked(text: str, key: str) -> str:
    pieces: list[str] = []
    end = 0
    for mask in _MASK.finditer(text):
        before = text[max(end, mask.start() - _MOST_EDGE) : mask.start()]
        after = text[mask.end() : mask.end() + _MOST_EDGE]
        head, tail = _EDGE.split(before)[-1], _EDGE.split(after)[0].rstrip(".,;)]}")
        if len(head) + len(tail) >= _LEAST_SECRET and key.startswith(head) and key.endswith(tail):
            pieces += (text[end : mask.start() - len(head)], WIPED)
            end = mask.end() + len(tail)
    return "".join((*pieces, text[end:])) if pieces else text
