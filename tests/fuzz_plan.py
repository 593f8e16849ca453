"""What one fuzzed conversation is: dialect, faults, history, turns and cuts, all drawn from one number."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Literal, TypeAlias

from agentloop.strategies import MicroCompact, Strategy
from agentloop.triggers import Trigger
from tests.fuzz_application import Wants
from tests.fuzz_policies import micro, strategy, trigger
from tests.fuzz_texts import ORDERS, SCRIPTS
from tests.strict_overflows import OVERFLOWS
from tests.strict_shapes import PLAIN, Shape

Where: TypeAlias = Literal["event", "request", "tool", "append"]
Kind: TypeAlias = Literal["say", "compact", "compact-undo", "undo", "due", "preview"]

USAGES = ("absent", "zeros", "output-only", "first-only", "half", "double", "cumulative", "unasked")
REFUSED = ((), (), (), ("max_tokens",), ("stream_options",), ("max_tokens", "stream_options"))
ANSWER_FAULTS = (
    "500", "503", "429", "429-soon", "408", "409", "drop", "reset", "error-event", "error-object",
    "empty", "length", "length-calls", "arguments", "ids", "unknown-tool", "two-choices", "parts",
    "reasoning-only", "stop-with-calls", "calls-without-any", "odd-text", "refusal",
)  # fmt: skip
FATAL_FAULTS = ("400", "401", "403", "404", "422", "429-later")
SUMMARISERS = ("facts", "none", "gist", "echo", "fair", "failing")
"""Who writes summaries: a model that names every fact, nobody, or one of these kinds."""
SUMMARY_FAULTS = ("blank", "huge", "error-text", "400", "call", "500", "drop", "length", "echo", "same")
CHAT_FAULTS = frozenset({"error-event", "two-choices", "parts", "reasoning-only", "refusal"})
CHAT = ("chat",)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a run is cut off: at the `at`th of these since the turn began, by cancelling or by closing."""

    where: Where
    at: int
    closes: bool


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One thing to do: say a prompt of so many words and let the model call `batches`, or another act."""

    kind: Kind = "say"
    watched: bool = True
    words: int = 5
    script: str = "words"
    batches: tuple[int, ...] = ()
    cut: Cut | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One conversation.

    `apis` are taken in turn, the next one by each new runner. `window` is the server's; `told` what the
    client is told of it, None for nothing. `order` is how the results of the history stand, "" for odd
    messages of all kinds.
    """

    seed: int
    apis: tuple[str, ...]
    modes: tuple[str, ...]
    overflow: str
    usage: str
    factor: float
    refuses: tuple[str, ...]
    window: int
    told: int | None
    listed: bool
    streams: bool
    whole: bool
    shape: Shape
    max_output_tokens: int | None
    attempts: int
    instructions: str | None
    store: Literal["memory", "sqlite"]
    trigger: Trigger | None
    strategy: Strategy
    micro: MicroCompact | None
    scripts: tuple[str, ...]
    faults: tuple[str, ...]
    fault_rate: float
    summariser: str
    summary_faults: tuple[str, ...]
    odd_callback: str
    max_steps: int
    result_words: tuple[int, ...]
    history: int
    order: str
    turns: tuple[Turn, ...]
    wants: Wants

    def __str__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.name != "seed")
        return " ".join(shown)

    @property
    def is_plain(self) -> bool:
        """Whether window, usage and text leave no doubt of a request's size, once one was answered."""
        scripts = {*self.scripts, *(turn.script for turn in self.turns)}
        told = self.told == self.window or (self.told is None and self.listed)
        texts_alone = scripts == {"words"} and not self.history and not self.wants.images
        return told and self.reports and texts_alone

    @property
    def reports(self) -> bool:
        """Whether each answer comes with its true usage."""
        unasked = self.streams and "stream_options" in self.refuses
        return self.usage == "unasked" or (self.usage == "right" and not unasked)

    @classmethod
    def of(cls, seed: int) -> "Plan":
        """The conversation of this seed."""
        draw = Random(seed)
        window = draw.choice([draw.randrange(300, 3_000), draw.randrange(3_000, 12_000)])
        apis = draw.choice([CHAT, CHAT, CHAT, ("responses",), ("chat", "responses"), ("responses", "chat")])
        known = ANSWER_FAULTS if apis == CHAT else [each for each in ANSWER_FAULTS if each not in CHAT_FAULTS]
        faults = draw.sample(known, draw.choice([0, 1, 2, 4]))
        order = Random(f"{seed} order").choice(ORDERS) if seed % 5 == 3 else ""
        shape = draw.choice([PLAIN, Shape.drawn(draw)])
        faults += draw.sample(FATAL_FAULTS, draw.choice([0, 0, 0, 1]))
        return cls(
            seed=seed,
            apis=apis,
            modes=_modes(draw, shape, faults),
            overflow=draw.choice(sorted(OVERFLOWS)),
            usage=draw.choice(["right"] * 8 + list(USAGES)),
            factor=draw.choice([1.0, 1.0, round(draw.uniform(0.5, 2.5), 2)]),
            refuses=draw.choice(REFUSED),
            window=window,
            told=draw.choice([window, window, window * draw.choice([2, 10]), None]),
            listed=draw.random() < 0.5,
            streams=draw.random() < 0.7,
            whole=draw.random() < 0.7,
            shape=shape,
            max_output_tokens=draw.choice([None, None, 300]),
            attempts=draw.choice([1, 2, 5]),
            instructions=draw.choice([None, "Be brief.", "Be brief. FACT-000001 " + "Mind the rules. " * 40]),
            store=draw.choice(["memory", "memory", "sqlite"]),
            trigger=trigger(draw),
            strategy=strategy(draw),
            micro=micro(draw),
            scripts=("words", *draw.sample(sorted(SCRIPTS), draw.choice([0, 0, 1, 3]))),
            faults=tuple(faults),
            fault_rate=draw.choice([0.05, 0.2, 0.4]),
            summariser=draw.choice(SUMMARISERS),
            summary_faults=tuple(draw.sample(SUMMARY_FAULTS, draw.choice([0, 0, 1, 2]))),
            odd_callback=draw.choice(["", "", "", "", "raises", "focus", "veto", "replace"]),
            max_steps=draw.choice([3, 12, 40]),
            result_words=tuple(draw.choice([10, 200, 600, 2_000, 8_000]) for _ in range(3)),
            history=draw.choice([0, 0, draw.randrange(1, 25)]) or 12 * bool(order),
            order=order,
            turns=tuple(_turns(draw)),
            wants=Wants.of(seed),
        )


def _modes(draw: Random, shape: Shape, faults: Sequence[str]) -> tuple[str, ...]:
    """Rules of some servers; whose calls have no ids of their own cannot ask for the reasoning of each."""
    modes = [mode for mode in ("V8", "V9", "V11", "content-never-null") if draw.random() < 0.3]
    if shape.ids in ("missing", "empty", "repeated", "new_each") or "ids" in faults:
        modes = [mode for mode in modes if mode != "V11"]
    return tuple(modes)


def _turns(draw: Random) -> Sequence[Turn]:
    turns: list[Turn] = []
    for _ in range(draw.randrange(1, 5)):
        cut = cut_of(draw) if draw.random() < 0.3 else None
        turns.append(
            Turn(
                watched=draw.random() < 0.7 or cut is not None,
                words=draw.choice([1, 5, 50, 50, 300]),
                script=draw.choice(["words", "words", draw.choice(sorted(SCRIPTS))]),
                batches=tuple(draw.choice([1, 1, 2, 3, 4]) for _ in range(draw.choice([0, 1, 2, 4]))),
                cut=cut,
            )
        )
        if draw.random() < 0.25:
            turns.append(Turn(kind=draw.choice(["compact", "compact-undo", "undo", "due", "preview"])))
    return turns


def cut_of(draw: Random) -> Cut:
    """Where a run is cut off."""
    most: dict[Where, int] = {"event": 40, "request": 6, "tool": 5, "append": 10}
    where = draw.choice(list(most))
    at = draw.randrange(1, most[where])
    return Cut(where=where, at=at, closes=draw.random() < 0.5)
