"""Lists, NumPy, Arrow, pandas and polars in; canonical arrays out.

::

    items(data)                             ids: integers, strings or bytes -> ItemBatch of parts
    integers(data, name=, lower=, upper=)   weights, ids of a universe      -> int64 array, whether a copy
    numbers(data, name=)                    finite values                   -> float64 array, whether a copy

A batch is accepted or rejected as a whole: ``InvalidBatch`` carries the first invalid row number, never its content.
Where possible the caller's memory is read in place, through read-only arrays; copies are wiped if the batch is
rejected, and by ``ItemBatch.wipe()`` otherwise. Copies that pandas and polars make while exporting are not wiped.

Python and NumPy input, and pandas columns that NumPy backs, need no further package. Arrow, polars and
Arrow-backed pandas columns need ``panstream[arrow]``.
"""

from __future__ import annotations

from panstream.primitives.inputs._columns import Dictionary, Integers, ItemBatch, Part, Strings
from panstream.primitives.inputs._readers import integers, items, numbers

__all__ = ["Dictionary", "Integers", "ItemBatch", "Part", "Strings", "integers", "items", "numbers"]
