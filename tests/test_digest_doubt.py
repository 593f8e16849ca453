"""What the record may not leave out, and not call mended: where it is in doubt, the older word stands."""

import json

import pytest

from agentloop.compaction.digest import digest
from agentloop.messages import Message, ToolCall
from tests.kit import COUNTER, context_of

U, A = Message.user, Message.assistant


def record(*messages: Message) -> str:
    """The digest of these messages with room for all."""
    return digest(list(context_of(list(messages)).said), max_tokens=2_000, counter=COUNTER)


BOTH_HOLD = [
    ("30s", "The timeout is 30s.", "The connect timeout is now 5s."),
    ("10.0.0.5", "The server is at 10.0.0.5.", "Now the backup server is at 10.0.0.9."),
    ("a@x.org", "My email is a@x.org.", "My mother's email is b@y.org now."),
    ("a@x.org", "My email is a@x.org.", "Your email is b@y.org now."),
    ("6.25%", "The tax rate in Texas is 6.25%.", "The tax rate in Ohio is now 5.75%."),
    ("4411", "In Berlin, the office code is 4411.", "In Paris, the office code is now 7722."),
    ("4410", "Server alpha runs build 4410.", "Server beta now runs build 4522."),
    ("0.2", "Lower bound is 0.2.", "Upper bound is now 0.8."),
    ("0.2", "The lower bound is 0.2.", "The bound is now 0.8."),
    ("10s", "The update interval is 10s.", "The interval is now 5s."),
    ("30s", "The default timeout is 30s.", "The timeout is now 5s."),
    ("10MB", "The max size is 10MB for images.", "Actually the max size is 50MB for videos."),
    ("3.11", "The project must use Python 3.11.", "The old project was moved from Python 3.8 to Python 3.9."),
    ("8080", "Our server uses port 8080.", "Bob's server moved from 8080 to 9090."),
    ("Use tabs", "Use tabs.", "In the docs folder use spaces instead of tabs."),
    ("5512", "Ship order 5512 to Berlin.", "Change order 7731 to ship to Rome."),
    ("ABC-123", "Ticket: ABC-123", "Ticket: ABC-456"),
    ("1001", "Invoice number is 1001.", "Invoice number is 1002."),
    ("100", "The limit is 100 requests.", "Suppose the limit were changed to 50 requests: would that help?"),
    ("100", "The limit is 100 requests.", "If the limit is now 50 requests, what happens?"),
    ("100", "The limit is 100 requests.", "Is the limit now 50 requests?"),
    ("100", "The limit is 100 requests.", "Do not change the limit to 50 requests."),
    ("100", "The limit is 100 requests.", "The limit was 50 requests."),
]


@pytest.mark.parametrize(("value", "one", "other"), BOTH_HOLD)
@pytest.mark.parametrize("between", [0, 6])
def test_a_value_stays_while_nothing_says_that_it_is_another(
    value: str, one: str, other: str, between: int
) -> None:
    talk = [
        part
        for at in range(between)
        for part in (U(f"Please look at module m{at} as well."), A("It is fine."))
    ]
    text = record(U("Let us work on the project."), U(one), A("Noted."), *talk, U(other), A("Noted."))
    assert value in text
    assert other in text


@pytest.mark.parametrize(
    ("value", "one", "other"),
    [
        ("30s", "The timeout is 30s.", "Actually, the timeout is now 5s."),
        ("8080", "The port is 8080.", "Change the port from 8080 to 9090."),
        ("1500", "The limit is 1500 requests.", "We lowered the limit to 1200 requests."),
        ("6.25%", "The tax rate in Texas is 6.25%.", "The tax rates in Texas are now 5.75%."),
        ("requests", "Use requests.", "Use httpx instead of requests."),
        ("2026-03-01", "The deadline is 2026-03-01.", "The deadline was moved to 2026-04-02."),
    ],
)
def test_a_new_value_of_the_very_same_thing_still_replaces_it(value: str, one: str, other: str) -> None:
    text = record(U("Let us work on the project."), U(one), A("Noted."), U(other), A("Noted."))
    assert text.count(value) == other.count(value)
    assert other in text


def met(failing: str, passing: str) -> str:
    """The record of a command that failed and of one that then went well."""
    first = ToolCall(id="a", name="shell", arguments=json.dumps({"command": failing}))
    second = ToolCall(id="b", name="shell", arguments=json.dumps({"command": passing}))
    return record(
        U("Make it work."),
        A("", [first]),
        Message.tool("a", "Error: it broke\nexit code 1"),
        A("", [second]),
        Message.tool("b", "all is well"),
    )


@pytest.mark.parametrize(
    ("failing", "passing"),
    [
        ("npm run test", "npm run lint"),
        ("make", "make clean"),
        ("make clean", "make"),
        ("kubectl apply -f db.yaml", "kubectl apply -f web.yaml"),
        ("curl -X POST http://a/x", "curl -X POST http://a/y"),
        ("pytest", "pytest tests/test_a.py"),
        ("pytest tests/test_b.py", "pytest tests/test_a.py"),
        ("pytest tests/test_a.py", "pytest -k other"),
        ("cd one && make", "cd two && make"),
    ],
)
def test_another_command_mends_nothing(failing: str, passing: str) -> None:
    text = met(failing, passing)
    assert "not seen mended" in text
    assert "later succeeded" not in text


@pytest.mark.parametrize(
    ("failing", "passing"),
    [
        ("npm run test", "npm run test"),
        ("pytest -q", "pytest -v"),
        ("pytest tests/test_a.py", "pytest"),
        ("pytest tests/test_a.py::test_x", "pytest tests/test_a.py -q"),
        ("pytest tests/test_a.py", "pytest tests"),
        ("make 2>&1 | tail -20", "make"),
    ],
)
def test_the_same_command_or_the_whole_of_which_it_was_part_mends_it(failing: str, passing: str) -> None:
    text = met(failing, passing)
    assert "later succeeded" in text
    assert "not seen mended" not in text
