"""Known windows and prices: from bundled data alone, and never an exception."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agentloop._plumbing.amounts import amount_of
from agentloop.errors import UsageError
from agentloop.messages import Usage
from agentloop.models import ChatModel, Price, known_window, price
from agentloop.providers.offline import OfflineModel
from agentloop.providers.openai import OpenAIChat
from agentloop.testing import FailingModel, ScriptedModel

USED = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=800_000)


@pytest.mark.parametrize(
    ("model", "window"),
    [("gpt-4o", 128_000), ("gpt-4o-2024-08-06", 128_000), ("o1", 200_000), ("openai/gpt-4o", 128_000)],
)
def test_known_windows(model: str, window: int) -> None:
    assert known_window(model) == window


@pytest.mark.parametrize(
    ("window", "models"),
    [
        (
            1_048_576,
            "gemini-2.0-flash gemini-2.0-flash-001 models/gemini-2.0-flash google/gemini-2.0-flash-001",
        ),
        (2_097_152, "gemini-1.5-pro gemini-1.5-pro-002 google/gemini-pro-1.5"),
        (131_072, "qwen-plus qwen/qwen-plus"),
        (128_000, "llama-3.3-70b llama-3.3-70b-versatile llama3.3 llama3.3:70b llama3.3:latest"),
        (128_000, "meta-llama/Llama-3.3-70B-Instruct meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        (128_000, "accounts/fireworks/models/llama-v3p3-70b-instruct us.meta.llama3-3-70b-instruct-v1:0"),
        (None, "llama-3.3-8b qwen-plus-next r1-distill-llama-70b"),
    ],
)
def test_known_windows_of_our_own(window: int | None, models: str) -> None:
    for model in models.split():
        assert known_window(model) == window, model


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
        "from agentloop.models import known_window, price\n"
        "print(known_window('gpt-4o'), price('gpt-4o', Usage(input_tokens=4_000_000)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("128000 10.0\n", "")


MODELS: list[Callable[..., ChatModel]] = [
    lambda **options: OpenAIChat("m", api_key="k", **options),
    OfflineModel,
    lambda **options: ScriptedModel([], **options),
    lambda **options: FailingModel(ValueError(), **options),
]


@pytest.mark.parametrize("made", MODELS)
def test_a_window_is_read_as_people_write_it(made: Callable[..., ChatModel]) -> None:
    windows = [made(window=window).window for window in ("128k", "0.5m", 4_096, "4,096")]
    assert windows == [128_000, 500_000, 4_096, 4_096]
    assert made().window is None
    for wrong in ("many", 0, -1, True, "1e3"):
        with pytest.raises(UsageError, match="no number of tokens"):
            made(window=wrong)


def test_a_failing_model_has_the_window_of_its_successor_unless_told() -> None:
    then = ScriptedModel(["up"], window="4k")
    assert FailingModel(ValueError(), times=1, then=then).window == 4_000
    assert FailingModel(ValueError(), times=1, then=then, window="8k").window == 8_000


def test_a_price_of_ones_own() -> None:
    dear = Price(input=2, output=10, cached_input=1)
    assert dear.of(USED) == pytest.approx(0.2 * 2 + 0.8 * 1 + 0.1 * 10)
    assert Price(input=2, output=10).of(USED) == pytest.approx(2 + 0.1 * 10)
    more_cached_than_sent = Usage(input_tokens=1_000_000, cached_tokens=9_000_000)
    assert dear.of(more_cached_than_sent) == pytest.approx(1)
    assert Price(input=0, output=0).of(USED) == 0


@pytest.mark.parametrize("field", ["input", "output", "cached_input"])
@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), True, "2"])
def test_a_price_that_is_none_is_refused(field: str, wrong: Any) -> None:
    prices: dict[str, Any] = {"input": 1, "output": 1, field: wrong}
    with pytest.raises(UsageError, match=f"{field} must be a number of at least 0"):
        Price(**prices)
    with pytest.raises(UsageError, match="price must be a Price"):
        OpenAIChat("m", price=wrong)


def test_a_model_says_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    here = "http://127.0.0.1:8080/v1"
    assert OpenAIChat("gpt-4o", api_key="k").price(USED) == price("gpt-4o", USED)
    assert OpenAIChat("gpt-4o", api_key="k", price=Price(input=1, output=0)).price(USED) == 1
    assert OpenAIChat("gpt-4o", base_url=here).price(USED) is None
    assert OpenAIChat("mine", base_url=here, price=Price(input=3, output=0)).price(USED) == 3
    assert OpenAIChat("gpt-4o").price(USED) is None
    assert OfflineModel().price(USED) == 0


def test_amounts_as_people_write_them() -> None:
    assert [amount_of(text, unit="dollars") for text in ("2", " 0.5 ", ".25", "3.")] == [2, 0.5, 0.25, 3]
    for wrong in ("", "0", "0.0", "-1", "nan", "inf", "1e3", "1_0", "$2", "two", "９", "9" * 400):
        with pytest.raises(UsageError, match="is no number of dollars above 0"):
            amount_of(wrong, unit="dollars")
