"""How much a model behind a server takes: what was given, what is published, or what its server says."""

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from agentloop.errors import UsageError
from agentloop.models import known_window
from agentloop.openai_api.clients import LoopClients
from agentloop.openai_api.offered import ASKING_SECONDS, offered_window
from agentloop.openai_api.server import Server, is_openai


class ModelWindow:
    """The window of one model in tokens, found out step by step; each source is asked once
    for each event loop at most.

    `given` goes before all others; a server is waited for `ASKING_SECONDS` or `timeout_seconds`, whichever
    is shorter.
    """

    def __init__(self, model: str, given: int | None, *, timeout_seconds: float) -> None:
        self._model = model
        self._found = given
        self._seconds = min(ASKING_SECONDS, timeout_seconds)
        self._looked_up = False
        self._asked = False
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return str(self._found)

    @property
    def tokens(self) -> int | None:
        """The one given, else the one published for a model of that name, else what the server said."""
        if self._found is None and not self._looked_up:
            self._looked_up = True
            self._found = known_window(self._model)
        return self._found

    async def ask(self, server: Callable[[], Server], clients: LoopClients) -> int | None:
        """The window; where none is given nor published, the server is asked for it. Never raises."""
        if self.tokens is None:
            async with self._asking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                if not self._asked:
                    self._found = await self._offered(server, clients)
                    self._asked = True
        return self._found

    async def _offered(self, server: Callable[[], Server], clients: LoopClients) -> int | None:
        try:
            asked = server()
            if is_openai(asked.base_url):
                return None
            http = (await clients.connection(asked)).http
        except UsageError:
            return None
        return await offered_window(http, asked, seconds=self._seconds)
