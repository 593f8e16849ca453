"""What stands behind the many kinds of things that can be called."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def without_partials(function: Any) -> Any:
    """What `functools.partial` was given, through any number of them; anything else is itself."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def inner_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function behind partials, decorators, bound methods and callable objects."""
    called = without_partials(function)
    if not inspect.isroutine(called):
        called = type(called).__call__
    inner: Callable[..., Any] = inspect.unwrap(getattr(called, "__func__", called))
    return inner


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function behind its partials, or of the class of an object to call."""
    called = without_partials(function)
    name: str = getattr(called, "__name__", type(called).__name__)
    return name


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine or an async generator, as far as can be seen before calling."""
    called = without_partials(function)
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(is_one(each) for is_one in kinds for each in (called, type(called).__call__))
