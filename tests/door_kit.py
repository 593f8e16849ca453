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
WINDOW = 8_000
TASK = "Look at every number, one after the other. The door is green."


def look(number: int) -> str:
    """Look at a number."""
    return f"number {number} is fine. " + "It was looked at with care. " * 30


def provider() -> StrictProvider:
    """A server with a small window, whose model looks at sixty numbers."""
    calls = (Call(id=f"call_{at}", name="look", arguments=f'{{"number": {at}}}') for at in count())
    steps = [Reply(calls=(next(calls),)) for _ in range(STEPS)]
    return StrictProvider([*steps, "all is seen", "nothing more"], window=WINDOW)


def check(server: StrictProvider) -> None:
    """No request was invalid or too large, the task stayed in sight, and the history was compacted."""
    assert server.refusals == []
    assert len(server.requests) == STEPS + 2
    assert all(TASK in str(body) for body in server.bodies)
    sizes = [len(body.get("messages", body.get("input"))) for body in server.bodies]
    assert max(sizes) < STEPS
    assert any(after < before for before, after in pairwise(sizes))


def printed(door: str) -> str:
    """What the documentation's script of a door prints, in a process of its own."""
    page = (Path(__file__).parent.parent / "docs" / "integrations.md").read_text()
    scripts = re.findall(r"^```python framework\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (script,) = (each for each in scripts if f"agentloop.integrations.{door}" in each)
    with provider() as server:
        keys = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True)
    assert (done.returncode, server.refusals) == (0, []), done.stderr
    return done.stdout
