"""What a model is: anything that answers a request with parts, the whole answer last.

A model may yield any number of `TextPart`, `OutputPart` and `Retry`, then yields exactly one `Answer`. It
raises the `ModelError`s of `errors` and nothing else. Streaming is the only way in: a model that does not
stream yields its `Answer` alone.

Behind that stands what is known of models without asking anybody, their windows and prices: the one door to
genai-prices. The figures are those bundled with the installed package, never fetched. Loading them takes
about 150 ms, so that is done when one is first asked for.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from agentloop._plumbing.checks import at_least, at_least_or_none, shown
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError
from agentloop.events import RunSetup
from agentloop.messages import Json, Message, Usage

Purpose: TypeAlias = Literal["agent", "summary", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request: messages and tool schemas in wire form, valid for a strict provider.

    `max_output_tokens` is the most the answer may have; None leaves it to the model. `answer_schema` is the
    JSON schema of an object that the answer is to fit, None for text. Where the purpose is not
    the agent's, tools stand there for the provider's prompt cache, and none is to be called.

    `needs_tools` is false where the request can do without its tools. `answer_words` ask for JSON of the
    answer's schema, for servers that take neither the tools nor the format that would; None for any text.
    """

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] = ()
    purpose: Purpose = "agent"
    max_output_tokens: int | None = None
    answer_schema: Json | None = None
    needs_tools: bool = True
    answer_words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A piece of the answer's text, as it comes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPart:
    """A piece of the arguments of a call, as they come; it gives an answer of a type by this `tool`."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A try failed and another follows after `wait_seconds`; other parts so far are void."""

    attempt: int
    wait_seconds: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The whole answer.

    `finish` is the server's finish reason, in OpenAI's words where they say the same; `usage` is None where
    it reported none, and so is `cost` (US dollars) where no price is known.
    """

    message: Message
    usage: Usage | None = None
    finish: str | None = None
    cost: float | None = None


CUT_SHORT = frozenset({"length", "content_filter"})
"""Finish reasons of answers that ended too early: calls in them may lack what was still to come."""

PassingPart: TypeAlias = TextPart | OutputPart | Retry
"""What comes before an answer, and is shown."""

ModelPart: TypeAlias = PassingPart | Answer


class ChatModel(Protocol):
    """Anything that answers requests.

    `window` is the most tokens a request and its answer may have together, None where it is not known.
    `max_output_tokens` is what each answer is limited to, None for no limit of ours.
    """

    @property
    def name(self) -> str: ...

    @property
    def window(self) -> int | None: ...

    @property
    def max_output_tokens(self) -> int | None: ...

    def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """Answer the request: any number of parts, then one `Answer`."""
        ...


def check_model(name: str, value: object) -> None:
    """Refuse what is no model: it has no name, or nothing to stream answers with.

    Raises:
        UsageError: with the name of the argument and what it takes.
    """
    streams = callable(getattr(value, "stream", None))
    has_all = all(hasattr(value, name) for name in ("name", "window", "max_output_tokens"))
    if isinstance(value, type) or not (streams and has_all):
        wanted = "a model with name, window, max_output_tokens and stream(request)"
        raise UsageError(f"{name} must be {wanted}, such as OpenAIChat(…), not {shown(value)}")


@runtime_checkable
class AsksWindow(Protocol):
    """A model that can ask its server how much it takes."""

    async def ask_window(self) -> int | None:
        """The window in tokens, None where nobody says; `window` is this from then on.

        It is asked for before a run and behind each answer while it is None: who asks a server asks it once,
        or once more where that may know by then. Never raises, and never waits for long.
        """
        ...


@runtime_checkable
class TellsMedia(Protocol):
    """A model that knows whether it takes images and files; of any other it is supposed."""

    @property
    def takes_media(self) -> bool: ...


@runtime_checkable
class TellsSetup(Protocol):
    """A model that can say how one like it is made."""

    def setup(self) -> RunSetup:
        """The API, the server and the window that it was made with; never a secret. Never raises."""
        ...


@runtime_checkable
class Priced(Protocol):
    """A model that knows what it costs."""

    def price(self, usage: Usage, /) -> float | None:
        """What this usage costs in US dollars, None where no price is known. Never raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs, in US dollars for a million tokens.

    Input read from the provider's cache costs `cached_input`, where it is None as much as other input.

    Example:
        >>> Price(input=2.5, output=10, cached_input=1.25).of(Usage(input_tokens=1_000_000))
        2.5

    Raises:
        UsageError: one of them is no finite number of at least 0.
    """

    input: float
    output: float
    cached_input: float | None = None

    def __post_init__(self) -> None:
        at_least("input", self.input, 0)
        at_least("output", self.output, 0)
        at_least_or_none("cached_input", self.cached_input, 0)

    def of(self, usage: Usage) -> float:
        """What this usage costs in US dollars."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_input = self.input if self.cached_input is None else self.cached_input
        fresh = (usage.input_tokens - cached) * self.input
        return (fresh + cached * cached_input + usage.output_tokens * self.output) / 1_000_000


_OPEN_WEIGHTS = pattern(r"(?:.*\.)?(?:meta-)?llama-?v?3[.p-]3(?:[-:]70b[\w.:-]*|:latest)?")
"""Llama 3.3 70B (https://github.com/meta-llama/llama-models/blob/main/models/llama3_3/MODEL_CARD.md), by the
names that hosts, Bedrock and Ollama give it."""

_WINDOWS = (
    # https://ai.google.dev/gemini-api/docs/models/gemini-2.0-flash
    (pattern(r"gemini-2\.0-flash[\w.-]*"), 1_048_576),
    # https://ai.google.dev/gemini-api/docs/models; the second is OpenRouter's name
    (pattern(r"gemini-1\.5-pro[\w.-]*|gemini-pro-1\.5"), 2_097_152),
    # https://www.alibabacloud.com/help/en/model-studio/models; dated ones differ
    (pattern(r"qwen-plus"), 131_072),
    (_OPEN_WEIGHTS, 128_000),
)
"""Go before the published ones, which have these models' windows too small, too large or not at all."""


def known_window(model: str) -> int | None:
    """The most tokens the model takes, answer included; None where it is not known. Never raises.

    A name with a maker in front, such as `openai/gpt-4o`, is also looked up as OpenRouter's.
    """
    name = _bare(model)
    for names, tokens in _WINDOWS:
        if names.fullmatch(name):
            return tokens
    for provider in (None, "openrouter") if "/" in model else (None,):
        try:
            snapshot = _published().data_snapshot.get_snapshot()
            _, found = snapshot.find_provider_model(model, None, provider, None)
        except Exception:  # noqa: BLE001 — a name nobody knows, or data of another shape: not known
            continue
        if found.context_window:
            return int(found.context_window)
    return None


def is_anyones(model: str) -> bool:
    """Whether it is a known model that anybody may serve, with a smaller window than its own."""
    return bool(_OPEN_WEIGHTS.fullmatch(_bare(model)))


def _bare(model: str) -> str:
    """The model's name without its maker's, in lower case."""
    return model.rpartition("/")[2].lower()


def price(model: str, usage: Usage, base_url: str | None = None) -> float | None:
    """What the usage costs in US dollars, cached input at its own price; None where no price is known.

    `base_url` names the provider, and a server nobody knows has no price; without it the provider is found
    by the model's name. Never raises.
    """
    cached = min(usage.cached_tokens, usage.input_tokens)
    try:
        tokens = _published().Usage(
            input_tokens=usage.input_tokens, cache_read_tokens=cached, output_tokens=usage.output_tokens
        )
        found = _published().calc_price(tokens, model, provider_api_url=base_url or None)
        return float(found.total_price)
    except Exception:  # noqa: BLE001 — a name nobody knows, or data of another shape: not known
        return None


def _published() -> ModuleType:
    import genai_prices.data_snapshot

    return genai_prices
