"""Known windows and prices: from bundled data alone, and never an exception."""

import subprocess
import sys

import pytest

from agentloop.messages import Usage
from agentloop.windows import known_window, price

USED = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=800_000)


@pytest.mark.parametrize(
    ("model", "window"),
    [("gpt-4o", 128_000), ("gpt-4o-2024-08-06", 128_000), ("o1", 200_000), ("openai/gpt-4o", 128_000)],
)
def test_known_windows(model: str, window: int) -> None:
    assert known_window(model) == window


@pytest.mark.parametrize("model", ["my-local-7b:q4", "offline", "", "/", "a/b/c", "\ud800", "x" * 10_000])
def test_unknown_models_have_neither_window_nor_price(model: str) -> None:
    assert known_window(model) is None
    assert price(model, USED) is None


def test_cached_input_has_its_own_price() -> None:
    # gpt-4o, US dollars a million tokens: input 2.50, cached input 1.25, output 10.
    assert price("gpt-4o", USED) == pytest.approx(0.2 * 2.50 + 0.8 * 1.25 + 0.1 * 10)
    assert price("gpt-4o", Usage(input_tokens=1_000_000)) == pytest.approx(2.50)


def test_nothing_used_costs_nothing() -> None:
    assert price("gpt-4o", Usage()) == 0


def test_the_server_decides_whose_price_it_is() -> None:
    assert price("gpt-4o", USED, "https://api.openai.com/v1") == price("gpt-4o", USED)
    assert price("gpt-4o", USED, "http://127.0.0.1:8080/v1") is None


def test_usage_that_makes_no_sense_has_no_price_or_a_sound_one() -> None:
    assert price("gpt-4o", Usage(input_tokens=-5)) is None
    more_cached_than_sent = price("gpt-4o", Usage(input_tokens=1_000_000, cached_tokens=9_000_000))
    assert more_cached_than_sent == pytest.approx(1.25)


def test_no_network_is_touched() -> None:
    script = (
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'):\n"
        "        raise SystemExit(f'network: {event}')\n"
        "sys.addaudithook(refuse)\n"
        "from agentloop.messages import Usage\n"
        "from agentloop.windows import known_window, price\n"
        "print(known_window('gpt-4o'), price('gpt-4o', Usage(input_tokens=4_000_000)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("128000 10.0\n", "")
