"""The first bytes of an answer: whether it comes as events or in one piece, whatever it is called."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from agentloop.openai_api.patience import SIGNS_OF_LIFE_FACTOR, too_silent
from agentloop.openai_api.server_events import BYTE_ORDER_MARK, FIELDS

_BLANKS = b" \t\r\n"
_OF_JSON = (b"{", b"[")
_ENOUGH_BYTES = max(map(len, (*FIELDS, BYTE_ORDER_MARK)))


async def opening(data: AsyncIterator[bytes], silence_seconds: float) -> bytes:
    """The first bytes behind all blanks, enough to tell what they begin; fewer where no more come.

    Blanks are signs of life: some servers send them for as long as they work.

    Raises:
        ModelUnavailableError: nothing but signs of life came for too long.
    """
    begun, longest = b"", silence_seconds * SIGNS_OF_LIFE_FACTOR
    try:
        async with asyncio.timeout(longest):
            async for piece in data:
                begun = (begun + piece).lstrip(_BLANKS)
                if len(begun) >= _ENOUGH_BYTES or begun.startswith((b":", *_OF_JSON)):
                    break
    except TimeoutError:
        raise too_silent(longest) from None
    return begun


def begins_events(begun: bytes, content_type: str, *, asked: bool) -> bool:
    """Whether an answer that begins so is a stream of events.

    What it is called counts only where its first bytes do not tell; `asked` is whether events were asked for.
    """
    if begun.removeprefix(BYTE_ORDER_MARK).startswith(FIELDS):
        return True
    return "event-stream" in content_type or (asked and "json" not in content_type)


async def rejoined(begun: bytes, data: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """These bytes, and those behind them."""
    yield begun
    async for piece in data:
        yield piece
