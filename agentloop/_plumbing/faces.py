"""Faces of packages that load what a name needs when the name is first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loaded_later(
    face: str, names: Mapping[str, str], *, public: str = "", submodules: str = ""
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, the `__getattr__` and the `__dir__` of a face.

    `names` are those that each module of its package has; `submodules` are modules that users name. `public`
    are the names that `import *` gives: all that are loaded later, where none are said. For type checkers the
    face imports each name, a public one `as` itself, so that they know what it is.
    """
    homes = {name: module for module, given in names.items() for name in given.split()}
    modules = submodules.split()

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{face}.{name}")
        if name not in homes:
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        value = getattr(import_module(f"{face}.{homes[name]}"), name)
        setattr(sys.modules[face], name, value)
        return value

    all_names = public.split() or sorted([*modules, *homes])
    return all_names, load, lambda: sorted({*vars(sys.modules[face]), *modules, *homes})
