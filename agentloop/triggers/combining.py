"""Triggers made of triggers."""

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from typing import TypeAlias

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import called
from agentloop.context import Budget, Context
from agentloop.errors import UsageError
from agentloop.triggers.base import Fired, Trigger, threshold_of

Parts: TypeAlias = tuple[Trigger, ...]


def any_of(*triggers: Trigger) -> Trigger:
    """Fires when at least one of these does; says why of all that do.

    Example:
        >>> from agentloop.triggers import TokenCount, TurnCount
        >>> either = any_of(TokenCount(80_000), TurnCount(20))
        >>> either(Context(), Budget(window=128_000, fixed=81_204, model="m")).why
        'tokens 81,204 >= 80,000'

    Raises:
        UsageError: none is given, or one of them is no trigger.
    """
    return AnyOf(_checked("any_of", triggers))


def all_of(*triggers: Trigger) -> Trigger:
    """Fires when all of these do; those behind one that does not are not asked.

    Example:
        >>> from agentloop.triggers import NeedsFollowUp, On, TokenCount
        >>> busy = all_of(TokenCount(80_000), any_of(NeedsFollowUp(), On("request")))
        >>> busy(Context(), Budget(window=128_000, fixed=81_204, model="m"))  # nothing waits for the model

    Raises:
        UsageError: none is given, or one of them is no trigger.
    """
    return AllOf(_checked("all_of", triggers))


def not_(trigger: Trigger) -> Trigger:
    """Fires when this one does not.

    Example:
        >>> from agentloop.triggers import NeedsFollowUp
        >>> not_(NeedsFollowUp())(Context(), Budget(window=8_000, fixed=100, model="m")).why
        'not NeedsFollowUp()'

    Raises:
        UsageError: it is no trigger.
    """
    return Not(*_checked("not_", (trigger,)))


@dataclass(frozen=True, slots=True)
class AnyOf:
    """What `any_of` makes."""

    parts: Parts

    def threshold(self, budget: Budget, /) -> int | None:
        """The least of its parts' thresholds, in tokens."""
        return min(_thresholds(self.parts, budget), default=None)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        answers = [trigger(context, budget) for trigger in self.parts]
        return _together([fired for fired in answers if fired])


@dataclass(frozen=True, slots=True)
class AllOf:
    """What `all_of` makes."""

    parts: Parts

    def threshold(self, budget: Budget, /) -> int | None:
        """The largest of its parts' thresholds, in tokens."""
        return max(_thresholds(self.parts, budget), default=None)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        answers: list[Fired] = []
        for trigger in self.parts:
            fired = trigger(context, budget)
            if not fired:
                return None
            answers.append(fired)
        return _together(answers)


@dataclass(frozen=True, slots=True)
class Not:
    """What `not_` makes."""

    trigger: Trigger

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        return None if self.trigger(context, budget) else Fired(f"not {_name(self.trigger)}")


def _together(answers: Sequence[Fired]) -> Fired | None:
    if not answers:
        return None
    idle = any(fired.reason == "idle" for fired in answers)
    return Fired(" and ".join(fired.why for fired in answers), reason="idle" if idle else "threshold")


def _thresholds(parts: Parts, budget: Budget) -> list[int]:
    found = (threshold_of(trigger, budget) for trigger in parts)
    return [threshold for threshold in found if threshold is not None]


def _checked(name: str, triggers: Parts) -> Parts:
    if not triggers:
        raise UsageError(f"{name} needs at least 1 trigger, not 0")
    for trigger in triggers:
        called(f"each trigger of {name}", trigger)
    return triggers


def _name(trigger: Trigger) -> str:
    return repr(trigger) if is_dataclass(trigger) else name_of(trigger)
