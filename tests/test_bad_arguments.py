"""Bad arguments of every public name that takes numbers: a UsageError that names the argument and its range.

The table is held against the signatures: a public name that takes a number and is not in it is found.
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from types import ModuleType
from typing import Any

import pytest

import agentloop
from agentloop import compaction, strategies, testing, triggers
from agentloop.errors import BadAnswerError, UsageError
from agentloop.stores import InMemoryStore
from agentloop.strategies import Scope
from agentloop.testing import FailingModel, ScriptedModel
from agentloop.tools import Tool
from tests.nets.surface import names_of

pytestmark = pytest.mark.whole

MODULES: tuple[ModuleType, ...] = (agentloop, compaction, strategies, testing, triggers)

VALUES = {
    *("Answer", "Retry", "ModelRequest", "CompactionRequest", "CompactionResult", "CompactionPreview"),
    *("Letter", "RunResult", "Usage", "Context", "context_of", "Cut", "ConflictError"),
    *("ContextOverflowError", "ContextTooLongError", "ModelRefusedError", "ModelUnavailableError"),
}
"""What the library or a model makes, and nobody configures: their figures are what was measured."""

STATE = {"Budget", "Guard"}
"""What a run makes anew while it goes on, from figures that servers say: checking must never end a run."""

PLACES = {"cut_of"}
"""Functions that take a position and put it where it may be, whatever it is."""


@dataclass(frozen=True, slots=True)
class Range:
    """What an argument may be: bad values, good ones, and how its range is told."""

    bad: tuple[Any, ...]
    good: tuple[Any, ...]
    told: str


NO_NUMBER = (nan, -1, True, False, "some", [], object())
NO_WHOLE = (*NO_NUMBER, inf, -inf, 1.5, "3")
NONE = (None,)


def whole(least: int, *, good: int | None = None) -> Range:
    bad = (*NO_WHOLE, *NONE, least - 1, -(10**30))
    return Range(bad, (least if good is None else good,), rf"at least {least:,}|from {least} ")


def whole_or_none(least: int) -> Range:
    return Range((*NO_WHOLE, least - 1), (None, least), f"at least {least}")


def share(most: float = 1.0) -> Range:
    return Range((*NO_NUMBER, *NONE, 0, most + 0.01, 90, inf, "0.5"), (most, most / 2), "above 0 and at most")


def share_or_none() -> Range:
    return Range((*NO_NUMBER, 0, 1.01, 90, inf), (None, 1.0, 0.2), "above 0 and at most 1")


def above_zero() -> Range:
    return Range((*NO_NUMBER, *NONE, 0, -0.5, -inf, "3"), (0.01, 7), "above 0|more than 0")


def above_zero_or_none() -> Range:
    return Range((*NO_NUMBER, 0, -0.5, inf, "3"), (None, 0.01, 7), "above 0")


def not_negative() -> Range:
    return Range((*NO_NUMBER, *NONE, -0.5, -inf, "3"), (0, 0.5), "at least 0|0 or more")


def tokens() -> Range:
    bad = (*NO_NUMBER, *NONE, 0, -0.5, 1.5, inf, 10**12, "", "0", "many", "1.5.k")
    return Range(bad, (2_000, "128k"), "from 1 to 1,000,000,000 tokens")


def tokens_or_none() -> Range:
    every = tokens()
    return Range(tuple(bad for bad in every.bad if bad is not None), (None, *every.good), every.told)


def compacted(**given: Any) -> object:
    return agentloop.compact_messages([{"role": "user", "content": "hi"}], **{"window": "8k", **given})


def compacted_async(**given: Any) -> object:
    said = [{"role": "user", "content": "hi"}]
    return asyncio.run(agentloop.compact_messages_async(said, **{"window": "8k", **given}))


def tool_of(**given: Any) -> object:
    def read() -> str:
        """Read."""
        return ""

    return Tool.of(agentloop.tool(**given)(read))


def a_tool(**given: Any) -> object:
    return Tool(name="read", description="Read.", parameters={}, function=lambda: "", **given)


def given_to(make: Callable[..., object], name: str, bad: object) -> object:
    fixed = {} if make is agentloop.RetryPolicy else {"model": "some-model"}
    return make(**fixed, **{name: bad})


def runner(**given: Any) -> object:
    return agentloop.Runner(agentloop.Agent(ScriptedModel([])), **given)


def sync_runner(**given: Any) -> object:
    with agentloop.SyncRunner(agentloop.Agent(ScriptedModel([])), **given) as made:
        return made


def failing(**given: Any) -> object:
    both = {"times": 1, **given}
    then = None if both["times"] is None else ScriptedModel([])
    return FailingModel(BadAnswerError("no"), then=then, **both)


def agent(**given: Any) -> object:
    return agentloop.Agent(ScriptedModel([]), **given)


def price(**given: Any) -> object:
    return agentloop.Price(**{"input": 1.0, "output": 1.0, **given})


def chat(**given: Any) -> object:
    return agentloop.OpenAIChat("some-model", base_url="http://localhost:1/v1", **given)


def responses(**given: Any) -> object:
    return agentloop.OpenAIResponses("some-model", base_url="http://localhost:1/v1", **given)


def scripted(**given: Any) -> object:
    return ScriptedModel([], **given)


def finite() -> Range:
    return Range((*NO_NUMBER, *NONE, -0.5, inf, "3"), (0, 0.5), "number of at least 0")


def finite_or_none() -> Range:
    return Range((*NO_NUMBER, -0.5, inf, "3"), (None, 0, 0.5), "number of at least 0")


TABLE: dict[str, tuple[Callable[..., object], dict[str, Range]]] = {
    "Agent": (agent, {"max_steps": whole(1)}),
    "Compaction": (agentloop.Compaction, {"summary_share": share(0.5), "summary_seconds": above_zero()}),
    "EventFilter": (
        agentloop.EventFilter,
        {
            "first": whole_or_none(1),
            "last": whole_or_none(1),
            "newest": whole_or_none(0),
            "skip": whole(0),
            "most": whole_or_none(0),
        },
    ),
    "Limits": (
        agentloop.Limits,
        {
            "steps": whole_or_none(1),
            "tokens": whole_or_none(1),
            "seconds": above_zero_or_none(),
            "cost": above_zero_or_none(),
            "repeats": whole_or_none(2),
        },
    ),
    "MicroCompact": (
        agentloop.MicroCompact,
        {
            "keep_messages": whole(0),
            "max_chars": whole(0),
            "max_argument_chars": whole(0),
            "min_gain_tokens": whole_or_none(0),
        },
    ),
    "OfflineModel": (agentloop.OfflineModel, {"window": tokens_or_none(), "side_by_side": whole(1)}),
    "OpenAIChat": (
        chat,
        {
            "window": tokens_or_none(),
            "max_output_tokens": tokens_or_none(),
            "timeout_seconds": above_zero(),
            "temperature": finite_or_none(),
        },
    ),
    "OpenAIResponses": (
        responses,
        {
            "window": tokens_or_none(),
            "max_output_tokens": tokens_or_none(),
            "timeout_seconds": above_zero(),
            "temperature": finite_or_none(),
        },
    ),
    "Price": (price, {"input": finite(), "output": finite(), "cached_input": finite_or_none()}),
    "RetryPolicy": (
        agentloop.RetryPolicy,
        {
            "attempts": whole(1),
            "first_wait_seconds": not_negative(),
            "longest_wait_seconds": not_negative(),
            "jitter_seconds": not_negative(),
            "longest_total_seconds": above_zero(),
        },
    ),
    "Leases": (agentloop.Leases, {"seconds": above_zero()}),
    "Runner": (runner, {"callback_seconds": above_zero(), "ttl_seconds": above_zero_or_none()}),
    "SyncRunner": (sync_runner, {"callback_seconds": above_zero(), "ttl_seconds": above_zero_or_none()}),
    "Tool": (a_tool, {"timeout_seconds": above_zero()}),
    "tool": (tool_of, {"timeout_seconds": above_zero()}),
    "recall_tools": (partial(agentloop.recall_tools, InMemoryStore()), {"max_tokens": whole(100)}),
    "compact_messages": (compacted, {"window": tokens()}),
    "compact_messages_async": (compacted_async, {"window": tokens()}),
    "ScriptedModel": (scripted, {"window": tokens_or_none(), "max_output_tokens": whole_or_none(1)}),
    "FailingModel": (failing, {"window": tokens_or_none(), "times": whole_or_none(0)}),
    "TurnCount": (triggers.TurnCount, {"turns": whole(0)}),
    "TokenCount": (triggers.TokenCount, {"tokens": whole(1)}),
    "WindowFraction": (triggers.WindowFraction, {"fraction": share()}),
    "Headroom": (triggers.Headroom, {"at": share(), "below": share(0.9)}),
    "Buffer": (
        triggers.Buffer,
        {"slack_tokens": whole(0), "large_window": whole(0), "share": share()},
    ),
    "Every": (triggers.Every, {"seconds": above_zero()}),
    "Idle": (triggers.Idle, {"seconds": above_zero()}),
    "SlidingWindow": (strategies.SlidingWindow, {"max_events": whole(1)}),
    "TurnWindow": (strategies.TurnWindow, {"max_turns": whole(1)}),
    "TokenWindow": (strategies.TokenWindow, {"max_tokens": tokens()}),
    "RecursiveSummary": (
        strategies.RecursiveSummary,
        {
            "keep": whole(1, good=3),
            "overlap": Range((*NO_WHOLE, None, 10, 10**9), (0, 9), "at least 0"),
            "max_tokens": whole_or_none(20),
        },
    ),
    "KeepUserMessages": (strategies.KeepUserMessages, {"max_tokens": whole(1)}),
    "KeepRecentFraction": (
        strategies.KeepRecentFraction,
        {"fraction": Range((*NO_NUMBER, None, 1, 1.5, 30, inf, "0.3"), (0, 0.99), "at least 0 and below 1")},
    ),
    "KeepRecentTurns": (
        strategies.KeepRecentTurns,
        {
            "turns": whole(1),
            "share": share(),
            "least_tokens": whole(1),
            "most_tokens": Range((*NO_WHOLE, None, 1_999), (2_000, 10**6), "at least 2000"),
        },
    ),
    "Blocks": (
        strategies.Blocks,
        {
            "keep_first_turns": whole(0),
            "keep_recent_turns": whole(0),
            "max_summary_tokens": whole(20),
            "tool_output_max_lines": whole(1),
        },
    ),
    "Scope.fixed": (Scope.fixed, {"n": whole(1)}),
    "Scope.token_budget": (
        Scope.token_budget,
        {"max_tokens": whole_or_none(1), "summary_tokens": whole(20)},
    ),
    "Tiered": (
        strategies.Tiered,
        {
            "keep": whole(1),
            "max_chars": whole(0),
            "chunk_share": share(),
            "least_chunk_share": share(0.4),
            "chunk_tokens": whole(20),
            "message_chars": whole(100),
            "target": share_or_none(),
        },
    ),
    "Reduce": (
        strategies.Reduce,
        {
            "tool_output_max_lines": whole(1),
            "keep_turns": whole(1),
            "max_summary_tokens": whole(20),
            "target": share_or_none(),
        },
    ),
    "ClearResults": (strategies.ClearResults, {"keep_tokens": whole(0), "least_tokens": whole(0)}),
    "then": (lambda **given: strategies.then(strategies.TurnWindow(1), **given), {"target": share_or_none()}),
    "Chain": (
        lambda **given: strategies.Chain((strategies.TurnWindow(1),), **given),
        {"target": share_or_none()},
    ),
    "Digest": (compaction.Digest, {"max_tokens": whole_or_none(20)}),
    "Lines": (compaction.Lines, {"max_tokens": whole_or_none(20)}),
    "Summary": (
        compaction.Summary,
        {
            "max_tokens": whole_or_none(20),
            "chunk_tokens": whole_or_none(20),
            "message_chars": whole_or_none(100),
        },
    ),
    "LastLines": (compaction.LastLines, {"lines": whole(1)}),
    "CapToolText": (compaction.CapToolText, {"max_tokens": whole(0)}),
    "MarkOldResults": (compaction.MarkOldResults, {"keep": whole(0)}),
}


def raises(text: str) -> str:
    raise KeyError(text)


async def later(text: str) -> str:
    return text


NO_REDACTION = (5, "text", agentloop.Secrets, lambda: "", lambda text: None, str.encode, raises, later)


@pytest.mark.parametrize("make", [runner, sync_runner])
def test_a_redaction_that_is_none_is_refused_at_once(make: Callable[..., object]) -> None:
    for bad in NO_REDACTION:
        with pytest.raises(
            UsageError, match=r"redact must (be a function from text|take any text|give a text)"
        ):
            make(redact=bad)
    for good in (None, agentloop.Secrets(), str.lower):
        assert make(redact=good) is not None


TABLE["Task"] = (
    lambda **given: agentloop.Task(**{"id": 1, "subject": "Dig", **given}),
    {
        "id": Range((*NO_WHOLE, *NONE, 0, 1_001), (1, 1_000), "from 1 to 1000"),
        "since": Range((*NO_NUMBER, inf, "3"), (None, 0, 0.5), "from 0 to"),
    },
)
TABLE["Background"] = partial(agentloop.Background, workdir="."), {"most_running": whole(1)}
TABLE["Todo"] = agentloop.Todo, {"remind_after": whole_or_none(1)}

CASES = [(name, argument) for name, (_, ranges) in TABLE.items() for argument in ranges]


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_bad_number_is_refused_by_its_name_and_range(name: str, argument: str) -> None:
    make, ranges = TABLE[name]
    for bad in ranges[argument].bad:
        with pytest.raises(UsageError) as caught:
            make(**{argument: bad})
        text = str(caught.value)
        assert re.search(rf"\b{argument}\b", text), f"{bad!r}: {text}"
        assert re.search(ranges[argument].told, text), f"{bad!r}: {text}"
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_the_ends_of_the_range_are_taken(name: str, argument: str) -> None:
    make, ranges = TABLE[name]
    for good in ranges[argument].good:
        assert make(**{argument: good}) is not None


def test_every_public_name_with_a_number_is_in_the_table() -> None:
    taken = {name: set(ranges) for name, (_, ranges) in TABLE.items()}
    found = {name: numbers_of(value) for name, value in public()}
    exempt = VALUES | STATE | PLACES
    assert {name: numbers for name, numbers in found.items() if numbers and name not in exempt} == taken
    assert {name for name in exempt if not found.get(name)} == set(), "nothing is exempt that takes no number"


def public() -> Iterator[tuple[str, Any]]:
    """Every public name, and the class methods that make one."""
    for module in MODULES:
        for name in names_of(module.__name__):
            value = getattr(module, name)
            if not callable(value):
                continue
            yield name, value
            if inspect.isclass(value):
                yield from (
                    (f"{name}.{maker}", getattr(value, maker))
                    for maker, kind in vars(value).items()
                    if isinstance(kind, classmethod) and not maker.startswith("_") and name == "Scope"
                )


NUMBER = re.compile(r"\b(int|float)\b")


def numbers_of(value: Any) -> set[str]:
    """The names of the parameters that take a number."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {each.name for each in parameters if is_number(each.annotation)}


def is_number(annotation: object) -> bool:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return bool(NUMBER.search(text)) and not re.search(r"Callable|\[", text)


def runner(**given: Any) -> object:
    return agentloop.Runner(agentloop.Agent(ScriptedModel([])), **given)


NAMES: dict[str, tuple[Callable[[Any], object], tuple[Any, ...], str]] = {
    "On": (triggers.On, ("", "messages", None, 3), "kind"),
    "Fired": (triggers.Fired, ("", " ", None, 3), "why"),
    "Fired.reason": (lambda bad: triggers.Fired("now", bad), ("", "manual", None), "reason"),
    "then": (strategies.then, (None, "TurnWindow", 3, strategies.TurnWindow), "then"),
    "first_of": (strategies.first_of, (None, "TurnWindow", 3, strategies.TurnWindow), "first_of"),
    "replaced_by": (
        lambda bad: strategies.replaced_by(strategies.TurnWindow(1), bad),
        (None, "digest", 3, compaction.Digest),
        "instead",
    ),
    "any_of": (triggers.any_of, (None, "Overflow", 3, triggers.Overflow), "any_of"),
    "all_of": (triggers.all_of, (None, "Overflow", 3, triggers.Overflow), "all_of"),
    "not_": (triggers.not_, (None, "Overflow", 3, triggers.Overflow), "not_"),
    "TokenCount.counter": (
        lambda bad: triggers.TokenCount(1, counter=bad),
        ("len", 3, dict),
        "counter must be a function that gives the tokens of a text",
    ),
    "Every.clock": (lambda bad: triggers.Every(60, bad), (None, 1.0), "clock must be a function"),
    "Idle.clock": (lambda bad: triggers.Idle(60, bad), (None, 1.0), "clock must be a function"),
    "Compaction.micro": (
        lambda bad: agentloop.Compaction(micro=bad),
        (3, True, "off", agentloop.MicroCompact),
        "micro must be a MicroCompact.* or None",
    ),
    "Compaction.trigger": (
        lambda bad: agentloop.Compaction(trigger=bad),
        (0.8, "x", triggers.Overflow),
        r"trigger must be a function of a context and a budget.*: write one such as (TokenCount|Overflow)\(",
    ),
    "Compaction.strategy": (
        lambda bad: agentloop.Compaction(strategy=bad),
        (None, "x", strategies.KeepRecentFraction),
        r"strategy must be a function of a context and a budget.*: write one such as KeepRecent\w+\(",
    ),
    "Compaction.model": (
        lambda bad: agentloop.Compaction(model=bad),
        ("gpt-5-mini", 3, agentloop.OfflineModel, object()),
        r"model must be a model with name, window, max_output_tokens and stream\(request\)",
    ),
    "compact_messages.model": (
        lambda bad: compacted(model=bad),
        ("gpt-5-mini", agentloop.OfflineModel, object()),
        r"model must be a model with name, window, max_output_tokens and stream\(request\)",
    ),
    "compact_messages.trigger": (lambda bad: compacted(trigger=bad), ("x", 0.8), "trigger must be"),
    "compact_messages.strategy": (
        lambda bad: compacted(strategy=bad),
        ("x", strategies.TurnWindow),
        "strategy must be",
    ),
    "EventFilter.branch": (lambda bad: agentloop.EventFilter(branch=bad), (5, b"a"), "branch must be a text"),
    "EventFilter.run_id": (lambda bad: agentloop.EventFilter(run_id=bad), (5, b"a"), "run_id must be a text"),
    "OpenAIChat.price": (lambda bad: chat(price=bad), (2.5, "free"), "price must be a Price"),
    "OpenAIChat.extra_body": (
        lambda bad: chat(extra_body=bad),
        ({"top_p": nan}, {"stop": {"a"}}),
        "extra_body cannot be sent as JSON",
    ),
    **{
        f"{make.__name__}.{name}": (partial(given_to, make, name), bads, name)
        for make in (agentloop.OpenAIChat, agentloop.OpenAIResponses)
        for name, bads in {
            "retry": (5, None, agentloop.RetryPolicy),
            "stream": ("no", None, 1),
            "extra_body": (4, "x", ["a"]),
            "base_url": (4, b"http://localhost/v1"),
            "api_key": (4, b"sk"),
            "headers": (4, "X-A: b", [("X-A", "b")], {"X-A": 4}, {4: "b"}, {"X A": "b"}, {"X-A": "b\nc"}),
        }.items()
    },
    "OpenAIChat.model": (agentloop.OpenAIChat, (None, 3, "", " "), "model"),
    "OpenAIResponses.model": (agentloop.OpenAIResponses, (None, 3, "", " "), "model"),
    **{
        f"RetryPolicy.{name}": (
            partial(given_to, agentloop.RetryPolicy, name),
            ("x", None, 3),
            f"{name} must be a function",
        )
        for name in ("sleep", "clock", "chance", "now")
    },
    "Runner.folder": (lambda bad: runner(folder=bad), (3, b"a"), "folder must be a text"),
    "Runner.transcripts": (
        lambda bad: runner(transcripts=bad),
        (3, "", __file__),
        "transcripts must be the path of a folder",
    ),
    "Blocks": (lambda bad: strategies.Blocks(scope=bad), (None, "fixed", 3), "scope"),
    "Scope": (Scope, (None, "fixed", 3), "rule must be that of Scope.fixed or Scope.token_budget"),
    "Summary.trims": (lambda bad: compaction.Summary(trims=bad), (None, "DropOldest", (3,)), "trims"),
    "Summary.system": (lambda bad: compaction.Summary(system=bad), ("", " ", 3), "system must be a text"),
    "Summary.on_failure": (
        lambda bad: compaction.Summary(on_failure=bad),
        ("digest", 3, compaction.Digest),
        "on_failure must be a Digest, Lines, a Note, None, or a function of an error",
    ),
    "Agent.recall": (
        lambda bad: agent(recall=bad),
        ("yes", "false", 1, None),
        "recall must be True or False",
    ),
    "Compaction.tool": (
        lambda bad: agentloop.Compaction(tool=bad),
        ("yes", 0, None),
        "tool must be True or False",
    ),
    "OpenAIChat.stream": (
        lambda bad: agentloop.OpenAIChat("m", api_key="sk", stream=bad),
        ("no", 1, None),
        "stream must be True or False",
    ),
    "EventFilter": (lambda bad: agentloop.EventFilter(kinds=[bad]), ("", "message", None, 3), "kind"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_name_or_part_is_refused(name: str) -> None:
    make, bads, word = NAMES[name]
    for bad in bads:
        with pytest.raises(UsageError, match=word):
            make(bad)
