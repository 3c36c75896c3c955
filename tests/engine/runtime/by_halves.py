"""Text to columns as it was done first: by pyarrow's casts alone, and by halves where they refuse. Slow, and the
oracle of tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, boolean_bytes, null_of, string_array
from panstream.engine.rows.row_batch import arrow_type

TRUE_WORDS = ["true", "True", "TRUE", "1"]
FALSE_WORDS = ["false", "False", "FALSE", "0"]
# What may convert at all; pyarrow has the last word.
_FORMS = {
    "int": r"^(-?[0-9]+|0[xX][0-9a-fA-F]+)$",
    "double": r"^[-+]?(\.?[0-9]|[iInN])[0-9a-zA-Z.+-]*$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}


def _positions(mask: Any) -> NDArray[np.int64]:
    return np.flatnonzero(boolean_bytes(mask))


def _valid(array: Any) -> tuple[Any, NDArray[np.int64]]:
    """Check UTF-8, which nothing before may have done."""

    def checked(part: Any) -> Any:
        part.validate(full=True)
        return part

    return _cast(array, _NONE, checked)


def parse(array: Any, kind: str) -> tuple[Any, NDArray[np.int64]]:
    target = arrow_type(kind)
    if kind == "binary":
        return array, _NONE
    text, bad = _valid(_cast(array, _NONE, lambda part: compute.cast(part, pa.string(), safe=False))[0])
    if kind == "string":
        return text, bad
    if kind == "bool":
        yes = compute.is_in(text, string_array(TRUE_WORDS))
        known = compute.or_(yes, compute.is_in(text, string_array(FALSE_WORDS)))
        yes = compute.if_else(compute.and_(known, text.is_valid()), yes, null_of(pa.bool_()))
        return yes, np.union1d(bad, _positions(compute.and_(text.is_valid(), compute.invert(known))))
    if kind != "timestamp":  # as pyarrow's CSV reader does
        text = compute.ascii_trim(text, " \t")
    text, misfits = _drop(text, compute.match_substring_regex(text, _FORMS[kind]))
    bad = np.union1d(bad, misfits)
    if kind == "timestamp":
        return _timestamps(text, bad)
    return _cast(text, bad, lambda part: compute.cast(part, target))


def _timestamps(text: Any, bad: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64]]:
    """Parse times without a zone, which count as UTC, then those with one, then those with nanoseconds."""
    target = arrow_type("timestamp")
    values, failed = _cast(text, _NONE, lambda part: compute.cast(part, target))
    for form in (pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        if not failed.size:
            break
        again, still = _cast(
            text.take(pa.array(failed)),
            _NONE,
            lambda part, form=form: compute.cast(compute.cast(part, form), target, safe=False),  # type: ignore[misc]
        )
        mask = np.zeros(len(text), bool)
        mask[failed] = True
        values = compute.replace_with_mask(values, arrow_mask(mask), again)
        failed = failed[still]
    return values, np.union1d(bad, failed)


_NONE: NDArray[np.int64] = np.empty(0, np.int64)


def _drop(array: Any, good: Any) -> tuple[Any, NDArray[np.int64]]:
    """Return the array with null where ``good`` is false, and where that was."""
    bad = _positions(compute.invert(good))
    return (compute.if_else(good, array, null_of(array.type)), bad) if bad.size else (array, bad)


def _cast(array: Any, bad: NDArray[np.int64], convert: Callable[[Any], Any]) -> tuple[Any, NDArray[np.int64]]:
    """Convert the array whole, or by halves until the rows that do not convert stand alone; those become null."""
    whole = _attempt(array, convert)
    if whole is not None:
        return whole, bad
    parts = []
    failed = []
    spans = [(0, len(array))]
    while spans:
        start, stop = spans.pop()
        part = _attempt(array.slice(start, stop - start), convert)
        if part is None and stop - start > 1:
            middle = (start + stop) // 2
            spans += [(middle, stop), (start, middle)]
            continue
        if part is None:
            failed.append(start)
            part = convert(pa.nulls(1, array.type))
        parts.append(part)
    return pa.concat_arrays(parts), np.union1d(bad, np.array(failed, np.int64))


def _attempt(array: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(array)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
