"""Public names of a package that are imported on first use.

A package that imports all its exports makes every import of one of its modules as slow as importing all of them. Type
checkers do not see these names: a package lists them again under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its ``__name__``.
        modules: The module of every public name.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        collects = gc.isenabled()
        gc.disable()  # the collector would scan the new modules again and again: an eighth of the time
        try:
            return getattr(importlib.import_module(modules[name]), name)
        finally:
            if collects:
                gc.enable()

    return load, lambda: sorted(modules)
