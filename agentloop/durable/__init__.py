"""Runs that survive their machine: put in a queue, done by any worker, taken over when it dies.

    async with RunQueue("postgresql://db.example/agents") as queue:
        run_id = await queue.submit("Count the words of README.md.")
        print((await queue.wait(run_id)).state, await queue.answer(run_id))

    await Worker(agent, "postgresql://db.example/agents").run()      # on as many machines as you like

Needs the extra `durable`: DBOS (https://docs.dbos.dev/python) schedules, limits, retries and recovers; what
was said and done stands in the session's log, in the same database.
"""

from agentloop.extras import missing_extra

try:
    import dbos  # it, and what it needs, can be loaded
except ImportError as error:
    raise missing_extra("durable runs need", "durable") from error

from agentloop.durable.engine import not_lost
from agentloop.durable.orders import QUEUE, QueuedRun, QueueLimits, Rate, RunState
from agentloop.durable.queue import AnswerLostError, RunQueue
from agentloop.durable.worker import CONCURRENCY, Worker

__all__ = ["QUEUE", "QueueLimits", "QueuedRun", "Rate", "RunQueue", "RunState", "Worker"]
