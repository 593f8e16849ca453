"""Errors and values go to other processes and back: each is pickled and copied with all that it says."""

import asyncio
import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest

import agentloop
from agentloop import (
    Agent,
    Message,
    ModelRefusedError,
    OpenAIChat,
    Runner,
    RunResult,
    ToolCall,
    Usage,
    UsageError,
)
from agentloop.compaction import CompactedMessages
from agentloop.errors import AgentLoopError
from agentloop.events import Event, Record
from agentloop.models import Answer, ModelRequest, Price, Retry, TextPart
from agentloop.results import CompactionPreview
from agentloop.stream import CompactionRequest, CompactionResult, ContextStatus, StreamEvent
from tests.nets.surface import FRAMEWORKS
from tests.strict_provider import StrictProvider
from tests.strict_replies import Fault

pytestmark = pytest.mark.whole

KEY = "sk-test-0123456789abcdefghij"
SAMPLES: dict[Any, Any] = {
    str: "what went wrong",
    int: 7,
    float: 2.5,
    bool: True,
    object: {"error": {"message": "no"}},
    Any: {"key": ["a value"]},
    BaseException: KeyError("raised"),
    OSError: OSError(28, "No space left on device"),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda value: pickle.loads(pickle.dumps(value)),
    "pickled as before": lambda value: pickle.loads(pickle.dumps(value, protocol=0)),
    "copied": copy.copy,
    "deeply copied": copy.deepcopy,
}


def classes() -> Iterator[type]:
    """All classes of the package."""
    for module in walk_packages(agentloop.__path__, "agentloop."):
        if not module.name.endswith("__main__") and module.name not in FRAMEWORKS:
            found = vars(import_module(module.name)).values()
            yield from (each for each in found if isinstance(each, type) and each.__module__ == module.name)


def under(base: type) -> list[type]:
    """The class and all of the package below it."""
    return sorted({each for each in classes() if issubclass(each, base)}, key=lambda each: each.__qualname__)


def sample(hint: Any) -> Any:
    """A value of a type: one that is not None, of a dataclass with all its fields."""
    parts = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is tuple:
        return tuple(sample(each) for each in parts if each is not Ellipsis)
    if get_origin(hint) is Mapping:
        return {"key": ["a value"]}
    if parts:
        return sample(parts[0])
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return cast("type", hint)(
            **{each.name: sample(hints[each.name]) for each in fields(hint) if each.init}
        )
    return SAMPLES.get(hint, hint)


def made(kind: type[BaseException]) -> BaseException:
    """An error of this class with a value for each field, and a note."""
    hints = get_type_hints(kind.__init__)
    names = [name for name in inspect.signature(kind.__init__).parameters if name in hints]
    given = {name: sample(hints[name]) for name in names}
    error = kind(**given) if given else kind("what went wrong")
    error.add_note("while it was tried")
    assert None not in vars(error).values()
    return error


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", under(BaseException), ids=lambda kind: kind.__name__)
def test_every_error_keeps_its_type_its_text_and_its_fields(kind: type[BaseException], way: str) -> None:
    error = made(kind)
    again = WAYS[way](error)
    assert (type(again), str(again), repr(again)) == (kind, str(error), repr(error))
    assert repr(vars(again)) == repr(vars(error))


def test_an_error_of_a_users_own_keeps_its_fields() -> None:
    error = OwnError("first", more=[1])
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.more) == (OwnError, "own: first", [1])


class OwnError(UsageError):
    """One with an `__init__` that takes something else than its text."""

    def __init__(self, what: str, *, more: list[int]) -> None:
        super().__init__(f"own: {what}")
        self.more = more


async def test_what_caused_an_error_stays_behind() -> None:
    says = Fault(status=401, body={"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with StrictProvider(lambda _: says) as server, pytest.raises(ModelRefusedError) as raised:
        await ask(server.url)
    pickled = pickle.dumps(raised.value)
    assert KEY.encode() not in pickled
    assert (str(pickle.loads(pickled)), pickle.loads(pickled).__cause__) == (str(raised.value), None)


@pytest.mark.deep
def test_a_refusal_comes_out_of_a_process_pool() -> None:
    says = Fault(status=400, body={"error": {"message": "no such thing"}})
    context = multiprocessing.get_context("spawn")
    with StrictProvider(lambda _: says) as server, ProcessPoolExecutor(1, mp_context=context) as pool:
        errors = [pool.submit(ask_here, server.url).exception() for _ in range(2)]
    assert [(type(each), getattr(each, "status", None)) for each in errors] == [(ModelRefusedError, 400)] * 2
    assert all("no such thing" in str(each) for each in errors)


def ask_here(url: str) -> str:
    """One run in this process."""
    return asyncio.run(ask(url)).output


async def ask(url: str) -> RunResult:
    """One run on this server."""
    agent = Agent(OpenAIChat("strict", base_url=url, api_key=KEY))
    return await Runner(agent, transcripts=None).run("Say it")


VALUES = [
    *(Message, ToolCall, Usage, RunResult, Answer, ModelRequest, Price, Retry, TextPart, Record),
    *(CompactionPreview, CompactionRequest, CompactionResult, ContextStatus, CompactedMessages),
    *under(Event),
    *under(StreamEvent),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_every_value_is_pickled_and_copied(kind: type, way: str) -> None:
    value = sample(kind)
    assert WAYS[way](value) == value


def test_all_errors_of_the_tree_are_looked_at() -> None:
    assert {AgentLoopError, ModelRefusedError} <= set(under(BaseException))
