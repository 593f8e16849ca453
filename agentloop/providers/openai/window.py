"""Asking the server for its model's window, without sending it a prompt.

Its list of models names it on most servers that are not OpenAI's: vLLM and SGLang `max_model_len`, llama.cpp
`meta.n_ctx`, OpenRouter, Together and SambaNova `context_length`, Groq `context_window`, Mistral
`max_context_length`. llama.cpp tells what one request may have under `/props`
(https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md), and LM Studio what it has loaded
in a list of its own (https://lmstudio.ai/docs/developer/rest/endpoints). Ollama cuts longer prompts without a
word, and tells the window of a model once that is loaded, before that only where its own file sets one
(https://github.com/ollama/ollama/blob/main/docs/api.md).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import httpx2

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import lenient_value
from agentloop.errors import UsageError
from agentloop.messages import Json
from agentloop.models import is_anyones, known_window
from agentloop.providers.openai.connections import LoopClients
from agentloop.providers.openai.fields import believed_window, tokens_in
from agentloop.providers.openai.server import Server, is_openai

ASKING_SECONDS = 3.0
"""So long a server may take to answer all questions about its window."""

_WINDOWS = (
    "max_model_len",
    "n_ctx",
    "context_length",
    "context_window",
    "loaded_context_length",
    "max_context_length",
)
_WITHIN = ("meta", "top_provider")


async def ask_server(http: httpx2.AsyncClient, server: Server, *, seconds: float) -> tuple[int | None, bool]:
    """The window that the server names for its model, None where it names none in time. Never raises.

    Beside it stands whether it is to be asked again, once it has answered.
    """
    found, is_named_later = None, False
    with suppress(TimeoutError, httpx2.HTTPError, httpx2.InvalidURL):
        async with asyncio.timeout(seconds):
            listed = await _answer(http, _beside(server, "models"))
            found = listed_window(listed, server.model)
            is_llama = any(entry.get("owned_by") == "llamacpp" for entry in _entries(listed))
            if found is None or is_llama:
                props = f"props?model={quote(server.model, safe='')}&autoload=false"
                found = props_window(await _answer(http, _above(server, props))) or found
            if found is None:
                found = listed_window(await _answer(http, _above(server, "api/v0/models")), server.model)
            if found is None:
                loaded = await _answer(http, _above(server, "api/ps"))
                is_named_later = isinstance(loaded, Mapping) and isinstance(loaded.get("models"), list)
                found = loaded_window(loaded, server.model)
            if found is None and is_named_later:
                asked = {"model": server.model}
                found = shown_window(await _answer(http, _above(server, "api/show"), asked))
    return found, is_named_later


def listed_window(listed: object, model: str) -> int | None:
    """The window that a list of models names for this one; of several figures the smallest.

    A model that stands in the list alone counts, whatever its name there: what is asked for is served by it.
    """
    entries = _entries(listed)
    named = [entry for entry in entries if model in _names(entry)]
    return _smallest(named or (entries if len(entries) == 1 else []))


def props_window(props: object) -> int | None:
    """The window that llama.cpp's `/props` tells: what one request and its answer may have together."""
    settings = props.get("default_generation_settings") if isinstance(props, Mapping) else None
    return _tokens(settings.get("n_ctx")) if isinstance(settings, Mapping) else None


def loaded_window(loaded: object, model: str) -> int | None:
    """The window that Ollama's `/api/ps` names for this model, None while it is not loaded."""
    names = (model, f"{model}:latest")
    return _smallest(entry for entry in _entries(loaded) if any(name in names for name in _names(entry)))


def shown_window(shown: object) -> int | None:
    """The window that a model's own file sets for Ollama, as its `/api/show` has it in a text."""
    told = shown.get("parameters") if isinstance(shown, Mapping) else None
    found = _NUM_CTX.search(told) if isinstance(told, str) else None
    return _tokens(found[1]) if found else None


_NUM_CTX = pattern(r"(?m)^num_ctx\s+([0-9]{1,9})$")


def _entries(listed: object) -> list[Mapping[str, Any]]:
    if isinstance(listed, Mapping):
        listed = listed.get("data") or listed.get("models")
    return [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []


def _names(entry: Mapping[str, Any]) -> list[Any]:
    aliases = entry.get("aliases")
    return [entry.get("id"), entry.get("name"), *(aliases if isinstance(aliases, list) else ())]


def _smallest(entries: Iterable[Mapping[str, Any]]) -> int | None:
    places = (place for entry in entries for place in (entry, *(entry.get(name) for name in _WITHIN)))
    known = (place for place in places if isinstance(place, Mapping))
    figures = (_tokens(place.get(name)) for place in known for name in _WINDOWS)
    return min((tokens for tokens in figures if tokens is not None), default=None)


def _tokens(figure: object) -> int | None:
    return believed_window(tokens_in(figure))


def _beside(server: Server, path: str) -> str:
    """A path of the API."""
    parts = urlsplit(server.base_url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def _above(server: Server, path: str) -> str:
    """A path of the server, beside its API."""
    parts = urlsplit(server.base_url)
    root = parts.path.rstrip("/").removesuffix("/v1")
    path, _, asked = path.partition("?")
    query = "&".join(each for each in (parts.query, asked) if each)
    return urlunsplit(parts._replace(path=f"{root}/{path}", query=query))


async def _answer(http: httpx2.AsyncClient, url: str, asked: Json | None = None) -> object:
    """The JSON that stands there; None where there is none, or more than a list of models can have."""
    method, headers = "GET" if asked is None else "POST", {"accept": "application/json"}
    response = await http.request(method, url, json=asked, headers=headers, follow_redirects=False)
    return lenient_value(response.content) if response.status_code == 200 else None


class ModelWindow:
    """The window of one model in tokens, found out step by step.

    A server is asked once, and once more after its first answer where it names the window only then.

    `given` goes before all others; a server is waited for `ASKING_SECONDS` or `timeout_seconds`, whichever
    is shorter.
    """

    def __init__(self, model: str, given: int | None, *, timeout_seconds: float) -> None:
        self._model = model
        self._found = given
        self._is_anyones = given is None and is_anyones(model)
        self._seconds = min(ASKING_SECONDS, timeout_seconds)
        self._looked_up = False
        self._asks_left = 2
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return str(self._found)

    @property
    def tokens(self) -> int | None:
        """The one given, else the one published for a model of that name, else what the server said.

        Of a model that anybody may serve the published one counts once the server was asked and named none.
        """
        if self._found is None and not self._looked_up and not (self._asks_left and self._is_anyones):
            self._looked_up = True
            self._found = known_window(self._model)
        return self._found

    async def ask(self, server: Callable[[], Server], clients: LoopClients) -> int | None:
        """The window; where `tokens` has none, the server is asked for it. Never raises."""
        if self.tokens is None:
            async with self._asking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                if self._asks_left:
                    self._found, is_named_later = await self._offered(server, clients)
                    self._asks_left = self._asks_left - 1 if is_named_later else 0
        return self.tokens

    async def _offered(self, server: Callable[[], Server], clients: LoopClients) -> tuple[int | None, bool]:
        try:
            asked = server()
            if is_openai(asked.base_url):
                return None, False
            http = (await clients.connection(asked)).http
        except UsageError:
            return None, False
        return await ask_server(http, asked, seconds=self._seconds)
