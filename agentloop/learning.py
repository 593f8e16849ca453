"""What a server's refusals of requests that are too long teach of how much room there is."""

from dataclasses import replace

from agentloop._plumbing.checks import LEAST_WINDOW
from agentloop.budget import MOST_RATIO_PROVED, SMALL_SHARE, Budget
from agentloop.context import Context
from agentloop.errors import ContextOverflowError, ContextTooLongError

UNTOLD_OVERFLOW = 0.85
"""Where an overflow names no limit, the window is taken to be this share of the request refused."""

USEFUL_ANSWER = 1_024
"""An answer of so many tokens is worth asking for; in small windows one of `SMALL_SHARE`."""


def learnt(budget: Budget, context: Context, error: ContextTooLongError) -> Budget:
    """The budget after what an overflow said: the window, and how much more the server counts."""
    counted, size = budget.counted(context), budget.size(context)
    told = _told(budget, error)
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


def refusing(budget: Budget, context: Context) -> Budget:
    """The budget; where a context that was refused fits it all the same, one that it does not fit.

    The provider may count less than we do of what it last reported, and more of what was added since.
    """
    if not budget.fits(context):
        return budget
    return replace(budget, window=_guess(budget.size(context)))


def is_believed(budget: Budget, context: Context, error: ContextTooLongError) -> bool:
    """Whether the context is to be made smaller for it: a size is named, or the request is long enough."""
    return bool(error.window or _told(budget, error)) or _guess(budget.size(context)) >= LEAST_WINDOW


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


def _told(budget: Budget, error: ContextTooLongError) -> int:
    """The prompt's tokens as the server named them; 0 where it named none that can be."""
    told = (error.tokens or 0) - (error.output_tokens or 0)
    return told if told > budget.fixed else 0
