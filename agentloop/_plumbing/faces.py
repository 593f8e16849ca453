"""Faces of packages that load what a name needs when the name is first used."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def loaded_later(face: str, **names: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a face: `names` are those that each module of its package has.

    The face imports them for type checkers alone, so that these know what each is.
    """
    homes = {name: module for module, given in names.items() for name in given.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        value = getattr(import_module(f"{face}.{homes[name]}"), name)
        setattr(sys.modules[face], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[face]), *homes})
