"""How much room a request has, and what an overflow teaches of it.

`Budget` is a value: the window, the fixed part, what is kept free for the answer.
`learn_from_overflow` and those below it make the next one of what a server refused.
"""

from dataclasses import dataclass, field, replace
from math import ceil

from agentloop._plumbing.amounts import LEAST_WINDOW
from agentloop.context.context import Context
from agentloop.context.entries import Entry, Growing
from agentloop.context.reports import PromptCuts
from agentloop.context.request import NO_TOOL, RequestPrefix
from agentloop.context.tokens import (
    REQUEST_OVERHEAD,
    TokenCounter,
    count_message,
    count_schema,
    count_tools,
    estimate_tokens,
)
from agentloop.errors import ContextOverflowError, ContextTooLongError
from agentloop.messages import Message
from agentloop.models import ChatModel

DEFAULT_WINDOW = 128_000
"""The window of a model that names none, until its server says otherwise."""

TARGET = 0.5
"""Where clearing and compaction bring a request to: this share of the largest that may be sent."""

BELOW_THRESHOLD = 0.7
"""Where the trigger's own threshold is lower, compaction aims at this share of it."""

SHARE_OF_TASK = 0.1
"""The session's first user message stays verbatim while it takes at most this share of the window."""

SHARE_NAMED = 0.1
"""A message that takes less of a request that does not fit is not named as what is too big."""

MOST_RATIO_PROVED = 4.0
"""No tokenizer in use counts so much more than another: a refusal that says more is about something else."""

USUAL_RESERVE, SMALL_SHARE = 4_096, 1 / 8
"""Kept free for an answer without a limit: so many tokens (3,000 words), of a small window this share."""

DOUBT = 0.02
"""So much of the window is left for what the server counts more: beside an answer, and after an overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a request may hold.

    `window` is the most tokens the model takes, answer included; `fixed` the size of instructions, tool
    schemas and overhead, by our own count, and `recall_tools` that of the tools of recall. `model` names
    whose reports sizes rest on; `counter` counts our own tokens, `counter_ratio` is what it makes of one
    token of our own count: 1 but for a strategy that counts by itself. `threshold` is where the trigger
    fires, in tokens, where it has such a place, and `record` what stands instead takes at most.

    The others are learnt from the server. `least_ratio` is its count over ours that an overflow has proved.
    `lowered_reserve` is kept free for the answer where that is less, once it refused what would fit with a
    shorter answer: it counts the longest one in, and each request asks for what is left. `doubt` is kept free
    beside that. `answered` is the largest request that was ever answered, by our own count; `cuts` is what
    the reports of those answered tell of a server that cuts them.
    """

    window: int
    fixed: int
    model: str
    max_output_tokens: int | None = None
    least_ratio: float = 1.0
    counter: TokenCounter = field(default=estimate_tokens, compare=False)
    threshold: int | None = None
    record: int = 0
    lowered_reserve: int | None = None
    doubt: int = 0
    answered: int = field(default=0, compare=False)
    counter_ratio: float = 1.0
    recall_tools: int = 0
    cuts: PromptCuts = field(default_factory=PromptCuts, compare=False)

    @classmethod
    def of(cls, model: ChatModel, prefix: RequestPrefix, counter: TokenCounter) -> "Budget":
        """The budget of requests that begin so, before anything was learnt of the model's server."""
        system = Message(role="system", content=prefix.instructions)
        spoken = count_message(system, counter) if prefix.instructions else 0
        return cls(
            window=model.window or DEFAULT_WINDOW,
            fixed=REQUEST_OVERHEAD
            + spoken
            + count_tools(prefix.schemas or (NO_TOOL,), counter)
            + count_schema(prefix.answer_schema, counter),
            model=model.name,
            max_output_tokens=model.max_output_tokens,
            counter=counter,
            recall_tools=count_tools(prefix.recall, counter),
        )

    @property
    def recall(self) -> int:
        """What the tools of recall take once something was hidden.

        0, and none is offered, where they and the fixed part would take more than compaction aims at.
        """
        most = TARGET * self.limit * self.counter_ratio
        return self.recall_tools if self.fixed + self.recall_tools <= most else 0

    @property
    def reserve(self) -> int:
        """What is kept free for the answer: its limit where it has one, else an eighth, up to 4,096."""
        planned = min(self.max_output_tokens or self.usual_reserve, self.window // 2)
        return planned if self.lowered_reserve is None else min(planned, self.lowered_reserve)

    @property
    def usual_reserve(self) -> int:
        """What is kept free for an answer without a limit."""
        return min(USUAL_RESERVE, int(self.window * SMALL_SHARE))

    @property
    def limit(self) -> int:
        """The largest request that may be sent."""
        return self.window - self.reserve - self.doubt

    @property
    def target(self) -> int:
        """Where compaction brings a request to: below what fits, and below where the trigger fires."""
        target = int(TARGET * self.limit)
        return target if self.threshold is None else min(target, int(BELOW_THRESHOLD * self.threshold))

    @property
    def task_tokens(self) -> int:
        """Up to this length the session's first user message stays verbatim."""
        return int(self.window * SHARE_OF_TASK * self.counter_ratio)

    def counted(self, context: Context) -> int:
        """The next request by our own count."""
        return self.fixed_beside(context) + context.tokens

    def fixed_beside(self, context: Context) -> int:
        """The fixed part of the request that this context makes."""
        return self.fixed + self.recall if context.has_hidden else self.fixed

    def size(self, context: Context) -> int:
        """The next request, resting on the provider's last count where that still holds.

        What was added since, or everything where no report holds, is our count, raised by the ratio by
        which this provider was last seen to count more than we do.
        """
        counted, ratio = self.counted(context), self.ratio(context)
        report = context.anchor(self.model)
        if report and counted >= report.counted:
            return report.measured + ceil(ratio * (counted - report.counted))
        return ceil(ratio * counted)

    def least_size(self, context: Context, saved: int) -> int:
        """The next request once so many of our tokens are saved, whatever is to stand for them left out."""
        return ceil(self.ratio(context) * (self.counted(context) - saved))

    def size_of_rewritten(self, before: Context, after: Context) -> int:
        """The next request once `before` became `after`, by the measure of the size before.

        That may rest on a provider that counts less than we do, which no report says of what comes after.
        """
        measured = self.size(before) * self.counted(after) // self.counted(before)
        return min(self.size(after), measured)

    def fits(self, context: Context) -> bool:
        """Whether the next request may be sent."""
        return self.size(context) <= self.limit

    def room(self, context: Context) -> int:
        """What the limit leaves for the context beside the fixed part, in tokens of our own count."""
        return max(0, self.own(self.limit, context) - self.fixed_beside(context))

    def longest_answer(self, context: Context) -> int | None:
        """The limit to ask for beside this context, in tokens; None for none.

        Where the server counts it in, it is what is left, less some doubt of how much the server counts.
        """
        if self.lowered_reserve is None:
            return self.max_output_tokens
        left = self.window - self.size(context) - int(self.window * DOUBT)
        return max(1, min(self.max_output_tokens or left, max(left, self.reserve)))

    def own(self, tokens: int, context: Context) -> int:
        """A number of the provider's tokens in tokens of our own count."""
        return int(tokens * self.counter_ratio / self.ratio(context))

    def ratio(self, context: Context) -> float:
        """By how much the provider counts more than we do; never below 1."""
        return max(1.0, self.least_ratio, context.ratio(self.model))

    def measured(self, context: Context) -> bool:
        """Whether `size` rests on the provider's count of this very context."""
        return context.anchor(self.model) is not None

    def doubted(self) -> "Budget":
        """This budget with less room, by some doubt of how much the server counts of what is left.

        It was refused a whole request: of the rest it may count more, for each of our own tokens.
        """
        return replace(self, doubt=int(self.window * DOUBT))

    def having_answered(self, counted: int, measured: int) -> "Budget":
        """This budget once a request was answered of that length by our own count, and by the server's.

        The latter is 0 where nothing was reported. A window to which the server cuts in silence is kept to
        where it leaves room beside the fixed part.
        """
        cuts = self.cuts.after(counted, measured)
        heard = replace(self, answered=max(counted, self.answered), cuts=cuts)
        cut = replace(heard, window=min(heard.window, cuts.window or heard.window))
        return cut if cut._has_room else heard

    @property
    def _has_room(self) -> bool:
        """Whether the fixed part leaves room in the window."""
        return self.least_ratio * self.fixed < self.limit

    def narrowed(self, other: "Budget") -> "Budget":
        """This budget with what another one, of the same requests, knows to be less."""
        return replace(
            self,
            window=min(self.window, other.window),
            least_ratio=max(self.least_ratio, other.least_ratio),
            lowered_reserve=min(filter(None, (self.lowered_reserve, other.lowered_reserve)), default=None),
        )

    def keeping(self, other: "Budget") -> "Budget":
        """This budget with what another run of the same agent learnt; a window without room is forgotten."""
        ratio = min(MOST_RATIO_PROVED, other.least_ratio)
        narrowed = self.narrowed(replace(other, least_ratio=ratio))
        narrowed = replace(narrowed, answered=max(self.answered, other.answered), cuts=other.cuts)
        if narrowed._has_room:
            return narrowed
        return replace(self, answered=narrowed.answered, cuts=other.cuts)

    def check(self, context: Context, *, prevented: str | None = None) -> None:
        """Say why the next request does not fit, if it does not.

        `prevented` says what kept it from being compacted, and what to do about that.

        Raises:
            ContextOverflowError: with the largest part named.
        """
        if self.fits(context):
            return
        size = self.size(context)
        raise ContextOverflowError(
            f"the context cannot be made to fit: {size:,} tokens, and the window of {self.window:,} leaves "
            f"{self.limit:,}; {prevented or self._largest(context)}, or use a larger window",
            tokens=size,
            window=self.window,
        )

    def _largest(self, context: Context) -> str:
        there = (entry for entry in context.visible if entry.kind == "said")
        entry = max(there, key=lambda entry: entry.tokens, default=None)
        fixed = ceil(self.ratio(context) * self.fixed_beside(context))
        if entry is None or fixed > self.limit // 2:
            return f"instructions and tool schemas take {fixed:,} tokens: shorten them"
        if entry.tokens < SHARE_NAMED * self.size(context):
            return "no single message is to blame: let compaction act, shorten what stays"
        said = f"the {entry.message.role} message at position {entry.seq}"
        who = "the prompt" if entry is context.newest_user else said
        return f"{who} has {entry.tokens:,} tokens: shorten it"


def recounted(context: Context, budget: Budget, counter: TokenCounter) -> tuple[Context, Budget]:
    """Both with all lengths by this counter; what is not in sight is taken to differ as much as what is."""
    visible = [replace(each, tokens=count_message(each.message, counter)) for each in context.visible]
    before, after = (sum(entry.tokens for entry in entries) for entries in (context.visible, visible))
    ratio = after / before if before and after else 1.0
    there = {entry.seq: entry for entry in visible if entry.kind == "said"}

    def by_it(entry: Entry) -> Entry:
        return there.get(entry.seq) or replace(entry, tokens=ceil(ratio * entry.tokens))

    context = replace(
        context,
        visible=Growing(visible),
        said=Growing(map(by_it, context.said)),
        tokens=after + ceil(ratio * context.filler.tokens),
        task=context.task and by_it(context.task),
    )
    fixed, tools = (ceil(ratio * tokens) for tokens in (budget.fixed, budget.recall_tools))
    return context, replace(budget, counter=counter, counter_ratio=ratio, fixed=fixed, recall_tools=tools)


UNTOLD_OVERFLOW = 0.85
"""Where an overflow names no limit, the window is taken to be this share of the request refused."""

USEFUL_ANSWER = 1_024
"""An answer of so many tokens is worth asking for; in small windows one of `SMALL_SHARE`."""


def learn_from_overflow(budget: Budget, context: Context, error: ContextTooLongError) -> Budget:
    """The budget after what an overflow said: the window, and how much more the server counts."""
    counted, size = budget.counted(context), budget.size(context)
    told = _named_prompt(budget, error)
    if not (error.window or told) and not _may_guess(budget, context):
        return budget
    ratio = told / counted if told > size else 1.0
    window = error.window or budget.window
    if error.window is None and told <= max(size, budget.limit):
        window = _guess(told or size)
    taught = budget.narrowed(replace(budget, window=window, least_ratio=ratio))
    if not taught.fits(context):
        return taught
    # What was said of the sizes explains no refusal: the server counts more than we do.
    ratio = taught.limit / (counted * UNTOLD_OVERFLOW)
    return replace(taught, least_ratio=max(taught.least_ratio, min(ratio, MOST_RATIO_PROVED)))


def too_small_for(budget: Budget, context: Context) -> Budget:
    """The budget; where a context that was refused fits it all the same, one that it does not fit.

    The provider may count less than we do of what it last reported, and more of what was added since.
    """
    if not budget.fits(context):
        return budget
    return replace(budget, window=_guess(budget.size(context)))


def is_believed(budget: Budget, context: Context, error: ContextTooLongError) -> bool:
    """Whether the context is to be made smaller for it: a size is named, or the request is long enough."""
    return bool(error.window or _named_prompt(budget, error)) or _guess(budget.size(context)) >= LEAST_WINDOW


def with_shorter_answer(budget: Budget, context: Context, error: ContextTooLongError) -> Budget | None:
    """The budget in which the same messages fit beside a shorter answer than the one refused.

    None where the server did not name the answer and the window apart, and where less than a useful
    answer is left beside the prompt: `USEFUL_ANSWER`, or an eighth of a window that is small. Where it
    named no prompt, our own size of it counts.
    """
    if not (error.window and error.output_tokens):
        return None
    prompt = max(0, (error.tokens or 0) - error.output_tokens)
    window = min(error.window, budget.window)
    ratio = prompt / budget.counted(context) if prompt > budget.size(context) else 1.0
    taught = budget.narrowed(replace(budget, window=window, least_ratio=ratio))
    left = window - max(prompt, taught.size(context))
    if left < min(USEFUL_ANSWER, int(window * SMALL_SHARE)):
        return None
    lowered = replace(taught, lowered_reserve=min(left, taught.usual_reserve))
    return lowered if (lowered.longest_answer(context) or 0) < error.output_tokens else None


def overflow_error(error: ContextTooLongError, budget: Budget, context: Context) -> ContextOverflowError:
    """The server's refusal as the error of a run that cannot go on."""
    return ContextOverflowError(
        f"{error}; a new session, a larger window or compaction helps",
        tokens=error.tokens or budget.size(context),
        window=error.window or budget.window,
    )


def _may_guess(budget: Budget, context: Context) -> bool:
    """Whether a refusal without any size tells of the window: others fail so for reasons of their own.

    A request as large was answered before, or what would be left is less than the fixed part alone.
    """
    guessed = replace(budget, window=_guess(budget.size(context)))
    return budget.counted(context) > budget.answered and guessed.fixed < guessed.limit


def _guess(tokens: int) -> int:
    """The window guessed from the size of a request refused."""
    return max(1, int(tokens * UNTOLD_OVERFLOW))


def _named_prompt(budget: Budget, error: ContextTooLongError) -> int:
    """The prompt's tokens as the server named them; 0 where it named none that can be."""
    told = (error.tokens or 0) - (error.output_tokens or 0)
    return told if told > budget.fixed else 0
