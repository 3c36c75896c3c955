"""The rule for an argument, the memory allocated while reading it, and the errors for invalid input.

Messages name the parameter, the rule, a type and a row number. No value from the batch may get into one, nor into an
exception chained to it: callers leave an ``except`` block before they raise the errors made here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch
from panstream.primitives.inputs._columns import Strings
from panstream.primitives.memory.scratch import clear_registers, wipe

_HINTS = {
    "float": "; floats are not exact: convert to int or str first",
    "bool": "; convert booleans to int first if they are meant as numbers",
    "time": "; convert dates and times to int or str first, at the resolution that counts",
    "table": "; pass one column of the table",
}
_CONTAINERS = "a list, tuple, NumPy array, Arrow array, pandas Series or polars Series"


@dataclass(slots=True)
class InputColumn:
    """One chunk as read: numbers of any machine type or strings, with codes if it was dictionary-encoded."""

    values: NDArray[Any] | Strings
    codes: NDArray[Any] | None = None


@dataclass(slots=True)
class ArgumentReader:
    """The rule for one argument, and the arrays made while reading it.

    As a context manager it wipes those arrays if the block raises.

    ``kinds`` are those accepted among integer, float, str and bytes; ``span`` is the range allowed, in words;
    ``wraps`` says whether integers from 2**63 to 2**64 - 1 may keep their bits; ``start`` is the number of
    rows in the chunks already read; ``has_rows`` is false while reading the entries of a dictionary, whose
    positions are not rows.
    """

    name: str
    rule: str
    kinds: frozenset[str]
    span: str
    wraps: bool = False
    has_rows: bool = True
    start: int = 0
    owned: list[NDArray[Any]] = field(default_factory=list)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.wipe()

    def register(self, array: NDArray[Any]) -> NDArray[Any]:
        """Register a new array to be wiped at the end, and return it."""
        self.owned.append(array)
        return array

    def wipe(self, spare: NDArray[Any] | None = None) -> None:
        """Overwrite all registered arrays, but not the memory of ``spare``."""
        for array in self.owned:
            if spare is None or not np.may_share_memory(array, spare):
                wipe(array)
        clear_registers()

    def convert(self, array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return ``array`` itself if kernels can read it as ``dtype``, else a registered copy."""
        if array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned:
            return array
        return self.register(array.astype(dtype, order="C", copy=True))

    def entries(self) -> ArgumentReader:
        """Return a reader for the entries of a dictionary, which registers its arrays with this one."""
        return replace(self, name=f"the categories of {self.name}", has_rows=False, start=0)

    def check_codes(self, codes: NDArray[Any], size: int) -> None:
        """Raise InvalidBatch for dictionary codes that are not below ``size``."""
        if int(codes.min()) < 0 or int(codes.max()) >= size:
            row = int(np.argmax((codes < 0) | (codes >= size)))
            raise self.refuse("must have dictionary codes within the dictionary", row)

    def refuse(self, fault: str, row: int | None = None) -> InvalidBatch:
        """Return the error for a fault, in ``row`` of the current chunk if given."""
        absolute_row = None if row is None or not self.has_rows else row + self.start
        return InvalidBatch(f"{self.name} {fault}", row=absolute_row)

    def refuse_null(self, row: int) -> InvalidBatch:
        """Return the error for a missing value."""
        return self.refuse("must not be null (None, NaN, NA, NaT)", row)

    def refuse_kind(self, got: str, kind: str, row: int | None = None) -> InvalidBatch:
        """Return the error for values of the wrong kind; ``got`` names their type."""
        return self.refuse(f"must be {self.rule}, got {got}{_HINTS.get(kind, '')}", row)

    def refuse_range(self, row: int) -> InvalidBatch:
        """Return the error for an integer outside the allowed range."""
        return self.refuse(f"must be {self.span}", row)

    def refuse_surrogate(self, row: int) -> InvalidBatch:
        """Return the error for a str that has no UTF-8 form."""
        return self.refuse("must be valid Unicode, got a str with a lone surrogate", row)

    def refuse_container(self, data: object) -> InvalidBatch:
        """Return the error for an object that is not a batch at all."""
        got = type(data).__name__
        if isinstance(data, str | bytes | bytearray | memoryview):
            hint = f"; pass a list: a single {got} would be read letter by letter"
        elif isinstance(data, int | float | np.generic) or data is None:
            hint = "; pass a list, even for a single row"
        elif hasattr(type(data), "__iter__"):
            hint = f"; list(...) makes one of a {got}"
        else:
            hint = ""
        return self.refuse(f"must be {_CONTAINERS} of {self.rule}, got {got}{hint}")


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that kernels are compiled for one kind of input and not for both."""
    view = array.view()
    view.flags.writeable = False
    return view
