"""Decorators for kernels that import numba when the first of them runs, and for functions that only kernels call.

Importing numba takes longer than the rest of panstream, and many commands run no kernel.

Numba counts references to an array on every call that passes one, which takes longer than most functions that only
kernels call. They do not count (``_nrt=False``), which is safe because the caller of a kernel holds its arrays until it
returns. Arguments must have one type everywhere: called with 0 and with ``np.int64(0)``, a function is compiled twice.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from panstream.primitives.fast_import import import_numba, without_gc

if TYPE_CHECKING:
    from numba import njit as njit


class _Kernel:
    """A function that numba compiles, or loads from its cache, at the first call.

    Other kernels can call it: numba takes its type from ``_numba_type_``. All other attributes are the dispatcher's.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._options = options
        self._is_loaded = False

    @functools.cached_property
    def _dispatcher(self) -> Any:
        numba = sys.modules["numba"] if "numba.np.arraymath" in sys.modules else import_numba()
        return numba.njit(**self._options)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        return self._dispatcher._numba_type_

    def __call__(self, *args: Any) -> Any:
        if self._is_loaded:
            return self._dispatcher(*args)
        with without_gc():
            result = self._dispatcher(*args)
        self._is_loaded = True
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._dispatcher, name)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)


class _Instruction:
    """An intrinsic that is defined when the first kernel that uses it is compiled."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    @functools.cached_property
    def _numba_type_(self) -> Any:
        define = getattr(importlib.import_module(self._module), self._name)
        defined = importlib.import_module("numba.extending").intrinsic(define)
        typing = importlib.import_module("numba.core.registry").cpu_target.typing_context
        typing.refresh()  # numba learns of it
        return typing.resolve_value_type(defined)


def instruction(module: str, name: str) -> Any:
    """Return the intrinsic that a function of a module defines, which is imported when a kernel is compiled.

    Args:
        module: Name of the module.
        name: Name of the function: it takes numba's typing context, which numba's annotations do not know, and types.
    """
    return _Instruction(module, name)


if not TYPE_CHECKING:

    def njit(**options: Any) -> Callable[[Callable[..., Any]], _Kernel]:
        """Compile a function by numba at its first call; options are those of `numba.njit`."""
        return lambda function: _Kernel(function, options)


_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}  # _nrt is missing from numba's type stubs
part: Any = njit(**_OPTIONS, forceinline=True)
rare_part: Any = njit(**_OPTIONS)  # not inlined: code that seldom runs would make its callers too large to inline
