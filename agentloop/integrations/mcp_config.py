"""Which MCP servers there are, and how each is reached: the `mcpServers` that other programs read too."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from agentloop._plumbing.checks import headers_or_none, shown
from agentloop._plumbing.files import read_path, text_of
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import strict_value
from agentloop.errors import UsageError

Source: TypeAlias = str | Path | Mapping[str, Any]
"""The path of a JSON file, or what stands in one."""

_KEYS = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled")
_TYPES = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}
_VARIABLE = pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server: a `command` to start, or the `url` of one that listens."""

    name: str
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def servers_in(sources: Iterable[Source]) -> list[McpServer]:
    """The servers of these sources that are not disabled, in order.

    Raises:
        UsageError: a file cannot be read, an entry is none, a variable is not set, or a name stands twice.
    """
    found: dict[str, McpServer] = {}
    for source in sources:
        for name, entry in entries_in(source).items():
            if name in found:
                raise UsageError(f"two MCP servers are called {name!r}: rename one of them")
            if not _of(name, entry, "disabled", bool, False):
                found[name] = _server(name, entry)
    return list(found.values())


def entries_in(source: Source) -> Mapping[str, Mapping[str, Any]]:
    """What a source says of each server, by name, as it stands there.

    Raises:
        UsageError: it cannot be read, or says nothing of servers.
    """
    if not isinstance(source, str | Path | Mapping):
        raise UsageError(f"an MCP configuration is the path of a file, or a mapping, not {shown(source)}")
    where = "the MCP configuration" if isinstance(source, Mapping) else f"MCP file {str(source)!r}"
    said: Any = source
    try:
        if not isinstance(source, Mapping):
            said = strict_value(text_of(read_path(source)))
    except UsageError as error:
        raise UsageError(f"MCP file: {error}") from error
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}") from error
    servers = said.get("mcpServers") if isinstance(said, Mapping) else None
    if not isinstance(servers, Mapping):
        raise UsageError(f'{where} names no servers: write {{"mcpServers": {{"NAME": {{"command": …}}}}}}')
    for name, entry in servers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{where}: {shown(name)} is no name of a server: use letters, digits, _ and -")
        if not isinstance(entry, Mapping):
            raise UsageError(f"{where}: MCP server {name!r} must be an object, not {shown(entry)}")
    return servers


def _server(name: str, entry: Mapping[str, Any]) -> McpServer:
    """One entry, held to what is known; keys of other programs are passed over."""
    for key in entry.keys() - {*_KEYS}:
        if meant := get_close_matches(str(key), _KEYS, n=1, cutoff=0.75):
            raise _fault(name, f"there is no key {key!r}: did you mean {meant[0]!r}?")
    command, url = (_of(name, entry, key, str, "") for key in ("command", "url"))
    kind = _of(name, entry, "type", str, "stdio" if command else "http")
    if bool(command) == bool(url):
        raise _fault(name, "give it either a command or a url")
    if kind not in _TYPES or not entry.get(_TYPES[kind]):
        way = "use stdio with a command, or http with a url"
        raise _fault(name, f"its type cannot be {kind!r}: {way}")
    if url and not _filled(name, "url", url).startswith(("http://", "https://")):
        raise _fault(name, "its url must begin with http:// or https://")
    headers = _texts(name, entry, "headers")
    headers_or_none(f"MCP server {name!r}: headers", headers)
    return McpServer(
        name=name,
        command=_filled(name, "command", command),
        args=tuple(_filled(name, "args", each) for each in _list(name, entry)),
        env=_texts(name, entry, "env"),
        cwd=_filled(name, "cwd", _of(name, entry, "cwd", str, "")) or None,
        url=_filled(name, "url", url),
        headers=headers,
    )


def _list(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    for each in _of(name, entry, "args", list, []):
        if not isinstance(each, str):
            raise _fault(name, f"args must be a list of texts, not of {shown(each)}")
        yield each


def _texts(name: str, entry: Mapping[str, Any], key: str) -> dict[str, str]:
    """The texts by name that stand at this key, which no fault repeats."""
    texts = _of(name, entry, key, Mapping, {})
    for each, value in texts.items():
        if not isinstance(value, str) or "\0" in value or not each or "=" in each or "\0" in each:
            raise _fault(name, f"{key} must be texts by name, and {shown(each)} is none")
    return {each: _filled(name, key, value) for each, value in texts.items()}


def _of(name: str, entry: Mapping[str, Any], key: str, kind: type, otherwise: Any) -> Any:
    value = entry.get(key, otherwise)
    if not isinstance(value, kind) or (isinstance(value, str) and "\0" in value):
        words = {str: "a text", list: "a list of texts", bool: "true or false"}.get(kind, "an object")
        raise _fault(name, f"{key} must be {words}, not {type(value).__name__}")
    return value


def _filled(name: str, key: str, text: str) -> str:
    """The text with each `${NAME}` and `${NAME:-default}` replaced by that variable of the environment."""

    def value(found: re.Match[str]) -> str:
        given = os.environ.get(found[1])
        if found[2] is not None:
            return given or found[2]
        if given is None:
            way = f"set it, or write ${{{found[1]}:-default}}"
            raise _fault(name, f"{key} names the variable {found[1]}, which is not set: {way}")
        return given

    return _VARIABLE.sub(value, text)


def _fault(name: str, words: str) -> UsageError:
    return UsageError(f"MCP server {name!r}: {words}")
