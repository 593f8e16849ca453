"""The one event loop of a call, and how a signal ends what it does."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from agentloop.cli.process import first_to, on_signals

T = TypeVar("T")

_THREADS = 32


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop of its own.

    The first signal cancels it, a second one ends the process at once. Threads that a tool has left behind
    are not waited for.

    Raises:
        KeyboardInterrupt: a signal came, and `work` let the cancellation through.
    """
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="agentloop")
    loop.set_default_executor(threads)
    task = loop.create_task(work)
    try:
        with on_signals(first_to(lambda *_: loop.call_soon_threadsafe(task.cancel))):
            result = loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_asyncgens())
        return result
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        loop.close()
