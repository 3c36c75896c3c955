"""Lists, NumPy, Arrow, pandas and polars in; canonical arrays out.

::

    items(data)                             ids: integers, strings or bytes -> Items of parts
    integers(data, name=, lower=, upper=)   weights, ids of a universe      -> int64 array, whether ours
    numbers(data, name=)                    finite values                   -> float64 array, whether ours

A batch is taken or refused as a whole: ``InvalidBatch`` carries the first offending row, never its content.
What need not be copied is looked at in place, through read-only arrays; what is copied is wiped if the batch
is refused, and by ``ItemBatch.wipe()`` otherwise. What pandas and polars themselves copy while exporting stays
theirs.

Python and NumPy input, and pandas columns that NumPy backs, need no further package. Arrow, polars and
Arrow-backed pandas columns need ``panstream[arrow]``.
"""

from __future__ import annotations

from panstream.primitives.inputs._columns import Dictionary, Integers, ItemBatch, Part, Strings
from panstream.primitives.inputs._readers import integers, items, numbers

__all__ = ["Dictionary", "Integers", "ItemBatch", "Part", "Strings", "integers", "items", "numbers"]
