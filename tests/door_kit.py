"""What the tests of doors share: a tool, a provider that asks for it sixty times, and what must hold."""

import os
import re
import subprocess
import sys
from itertools import count, pairwise
from pathlib import Path

from tests.strict_provider import StrictProvider
from tests.strict_replies import Call, Reply

STEPS = 60
SCRIPT_STEPS = 20
"""Enough for a documentation's script to outgrow the window: its results are long."""
WINDOW = 8_000
TASK = "Look at every number, one after the other. The door is green."


def look(number: int) -> str:
    """Look at a number."""
    return f"number {number} is fine. " + "It was looked at with care. " * 30


def provider(steps: int = STEPS, *, says: str = "", thinks: str | None = None) -> StrictProvider:
    """A server with a small window, whose model looks at so many numbers, `thinks` and `says` something.

    strands leaves the `content` of a message out that has calls and no text, which this server does not take.
    """
    calls = (Call(id=f"call_{at}", name="look", arguments=f'{{"number": {at}}}') for at in count())
    steps = [Reply(text=says, calls=(next(calls),), reasoning=thinks) for _ in range(steps)]
    return StrictProvider([*steps, "all is seen", "nothing more"], window=WINDOW)


def check(server: StrictProvider) -> None:
    """No request was invalid or too large, the task stayed in sight, and the history was compacted."""
    assert server.refusals == []
    assert len(server.requests) == STEPS + 2
    assert all(TASK in str(body) for body in server.bodies)
    sizes = lengths(server)
    assert max(sizes) < STEPS
    assert any(after < before for before, after in pairwise(sizes))


def lengths(server: StrictProvider) -> list[int]:
    """How many messages each request had, without thoughts."""
    asked = [body.get("messages") or body["input"] for body in server.bodies]
    return [sum(item.get("type") != "reasoning" for item in items) for items in asked]


def printed(door: str) -> str:
    """What the documentation's script of a door prints, in a process of its own."""
    page = (Path(__file__).parent.parent / "docs" / "integrations.md").read_text()
    scripts = re.findall(r"^```python framework\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (script,) = (each for each in scripts if f"agentloop.integrations.{door}" in each)
    with provider(SCRIPT_STEPS, says="I look.") as server:
        keys = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True)
    assert (done.returncode, server.refusals) == (0, []), done.stderr
    assert any(after < before for before, after in pairwise(lengths(server)))
    return done.stdout
