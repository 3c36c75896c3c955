"""Columns as found, Arrow or text, to columns as declared; rows that do not fit are set aside by number and reason.

pyarrow's own messages quote the value that did not convert, so its errors are caught here and never passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, compute, missing, pa, truth_of, words_of
from panstream.engine.memory import NONE_LENT, Lent, wipe_array, wipe_unused
from panstream.engine.rows import RowSchema, SourceError, arrow_type
from panstream.engine.sources.layouts import check_layout, is_text
from panstream.engine.stored_ids import StoredIds

__all__ = [
    "FALSE_WORDS",
    "TRUE_WORDS",
    "Faults",
    "Piece",
    "from_arrow",
    "from_text",
    "joined",
    "settle",
    "with_unread",
]

TRUE_WORDS = ["true", "True", "TRUE", "1"]
FALSE_WORDS = ["false", "False", "FALSE", "0"]
_RULES = {
    "int": "is not a whole number of 64 bits",
    "double": "is not a finite number",
    "string": "is not valid UTF-8",
    "binary": "is not binary",
    "bool": "is not true or false",
    "timestamp": "is not a time such as 2024-12-31 23:59:59",
    "date": "is not a date such as 2024-12-31",
}
# What may convert at all, so that hopeless fields cost no exception each; pyarrow has the last word.
_FORMS = {
    "int": r"^(-?[0-9]+|0[xX][0-9a-fA-F]+)$",
    "double": r"^[-+]?(\.?[0-9]|[iInN])[0-9a-zA-Z.+-]*$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}


@dataclass(slots=True)
class Faults:
    """Rows that do not fit, by position; the first fault of a row counts."""

    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, positions: NDArray[np.int64], reason: str) -> None:
        """Note the same fault for several rows."""
        for position in positions.tolist():
            self.reasons.setdefault(position, reason)


@dataclass(slots=True)
class Piece:
    """Rows just read: the good ones as a record batch, the others by position and reason, in order.

    Where ``ids`` are still in their pages, the user column is not among ``columns``, and there are no bad rows.
    """

    columns: Any
    rows: int
    bad: list[tuple[int, str]]
    ids: StoredIds | None = None
    lent: Lent = NONE_LENT

    def wipe(self) -> None:
        """Overwrite the rows, but for memory that was lent."""
        for column in self.columns.columns:
            wipe_array(column, self.lent)
        if self.ids is not None:
            self.ids.wipe()

    def with_ids(self, schema: RowSchema) -> Piece:
        """Return the same rows with the user column among the columns; this piece must not be used any more.

        Bad rows, which are no longer among the columns, are left out of the user column too.
        """
        if self.ids is None:
            return self
        good = np.ones(self.rows, bool)
        good[[position for position, _ in self.bad]] = False
        try:
            ids = self.ids.chosen(good)
        finally:
            self.ids.wipe()
        arrays = [ids if name == schema.user else self.columns.column(name) for name in schema.columns]
        columns = pa.RecordBatch.from_arrays(arrays, names=list(schema.columns))
        return Piece(columns, self.rows, self.bad, lent=self.lent)


def from_arrow(batch: Any, schema: RowSchema, *, owned: bool = True, place: str = "the input") -> Piece:
    """Return the declared columns of an Arrow record batch, converted to their declared types.

    What had to be copied of a batch that is ``owned`` is overwritten; another's memory is lent, and never written on.
    """
    found = [batch.column(name) for name in schema.columns]
    _check(found, place)
    lent = NONE_LENT if owned else Lent.of(found)
    faults = Faults()
    columns = {}
    for array, (name, kind) in zip(found, schema.columns.items(), strict=True):
        columns[name], bad = _convert(array, kind, is_user=name == schema.user)
        faults.add(bad, f"column {name} {_RULES[kind]}")
    piece = settle(columns, batch.num_rows, schema, faults, lent=lent)
    wipe_unused(found, piece.columns.columns, lent)
    return piece


def _check(arrays: list[Any], place: str) -> None:
    """Refuse arrays that would lead a kernel astray, wherever they come from."""
    try:
        for array in arrays:
            check_layout(array)
        return
    except pa.ArrowException:
        pass
    raise SourceError(f"{place} could not be read: a column points outside its data")


def from_text(texts: Mapping[str, Any], rows: int, schema: RowSchema) -> Piece:
    """Return the declared columns, given as arrays of bytes that are ours, parsed as their declared types."""
    faults = Faults()
    columns = {}
    for name, kind in schema.columns.items():
        columns[name], bad = _parse(texts[name], kind)
        faults.add(bad, f"column {name} {_RULES[kind]}")
    piece = settle(columns, rows, schema, faults)
    wipe_unused(texts.values(), piece.columns.columns)
    return piece


def settle(
    columns: Mapping[str, Any], rows: int, schema: RowSchema, faults: Faults, *, lent: Lent = NONE_LENT
) -> Piece:
    """Check what no conversion checks (missing ids, infinite numbers), then take the bad rows out."""
    for name, kind in schema.columns.items():
        if name == schema.user and columns[name].null_count:
            faults.add(_positions(columns[name].is_null()), f"column {name}, the user, is missing")
        if kind == "double" and not compute.all(compute.is_finite(columns[name]), min_count=0).as_py():
            faults.add(_positions(compute.invert(compute.is_finite(columns[name]))), f"column {name} {_RULES[kind]}")
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if not faults.reasons:
        return Piece(batch, rows, [], lent=lent)
    good = np.ones(rows, bool)
    good[list(faults.reasons)] = False
    kept = batch.filter(arrow_mask(good))
    wipe_unused(batch.columns, kept.columns, lent)
    return Piece(kept, rows, sorted(faults.reasons.items()), lent=lent)


def with_unread(piece: Piece, unread: list[int], reason: str) -> Piece:
    """Count in the rows, by their positions in the input, that the reader itself left out."""
    if not unread:
        return piece
    rows = piece.rows + len(unread)
    places = np.delete(np.arange(rows), unread)
    bad = [(int(places[position]), why) for position, why in piece.bad]
    return Piece(piece.columns, rows, sorted(bad + [(position, reason) for position in unread]), lent=piece.lent)


def joined(parts: Sequence[Piece]) -> Piece:
    """Return one piece with the rows of all, which must not be used any more: what was only theirs is overwritten."""
    if len(parts) == 1:
        return parts[0]
    batches = [part.columns for part in parts]
    table = pa.Table.from_batches(_one_encoding(batches)).unify_dictionaries().combine_chunks()
    columns = table.to_batches()[0] if table.num_rows else batches[0].slice(0, 0)
    bad: list[tuple[int, str]] = []
    start = 0
    for part in parts:
        wipe_unused(part.columns.columns, columns.columns, part.lent)
        bad += [(start + position, reason) for position, reason in part.bad]
        start += part.rows
    stored = [part.ids for part in parts if part.ids is not None]
    lent = reduce(or_, (part.lent for part in parts), NONE_LENT)
    return Piece(columns, start, bad, StoredIds.joined(stored) if stored else None, lent)


def _one_encoding(batches: list[Any]) -> list[Any]:
    """Give every batch the schema of the first: a column may be dictionary-encoded in some and plain in others."""
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return batches
    plain = []
    for batch in batches:
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
        plain.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    return plain


def _positions(mask: Any) -> NDArray[np.int64]:
    return np.flatnonzero(truth_of(mask))


def _convert(array: Any, kind: str, *, is_user: bool) -> tuple[Any, NDArray[np.int64]]:
    target, is_ = arrow_type(kind), pa.types
    array = getattr(array, "storage", array)
    if is_.is_dictionary(array.type):
        if kind == "string" and not is_user:
            return _dictionary(array)
        array = _decoded(array)
    if is_.is_decimal32(array.type) or is_.is_decimal64(
        array.type
    ):  # pyarrow casts the narrow ones to integers wrongly
        array = compute.cast(array, pa.decimal128(array.type.precision, array.type.scale))
    if is_.is_float16(array.type):  # of which pyarrow can do little else
        array = compute.cast(array, pa.float32())
    found = array.type
    if kind == "int" and is_user and is_.is_uint64(found):
        return array, _NONE
    if kind == "int" and is_.is_floating(found):
        whole = compute.and_(compute.is_finite(array), compute.equal(compute.trunc(array), array))
        whole = compute.and_(whole, compute.less(compute.abs(array), 2.0**63))
        return _cast(*_drop(array, whole), lambda part: compute.cast(part, target))
    if found == target:
        # Ids are only ever compared and hashed as bytes, so those need no check of their letters.
        return _valid(array) if kind == "string" and not is_user else (array, _NONE)
    if kind in ("timestamp", "date") and is_text(found):
        return _parse(array, kind)
    narrowing = kind == "double" or (is_.is_timestamp(found) and found.unit == "ns")
    cast = _cast(array, _NONE, lambda part: compute.cast(part, target, safe=not narrowing))
    return _valid(cast[0]) if kind == "string" else cast


def _decoded(array: Any) -> Any:
    words = getattr(array.dictionary, "storage", array.dictionary)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(
        words.type
    )  # pyarrow cannot take from views
    return (words if plain is None else compute.cast(words, plain)).take(array.indices)


def _dictionary(array: Any) -> tuple[Any, NDArray[np.int64]]:
    words, codes = array.dictionary, array.indices
    plain = words.type == pa.string() and codes.type == pa.int32()
    words, broken = _valid(words if words.type == pa.string() else compute.cast(words, pa.string()))
    if plain and not words.null_count:
        return array, _NONE
    codes = compute.cast(codes, pa.int32())
    bad = _positions(compute.is_in(codes, pa.array(broken, pa.int32()))) if broken.size else _NONE
    absent = compute.is_in(codes, pa.array(_positions(words.is_null()), pa.int32()))
    codes = compute.if_else(absent, missing(pa.int32()), codes)
    words = compute.coalesce(words, words_of([""])[0])  # dictionaries with nulls cannot be joined
    return pa.DictionaryArray.from_arrays(codes, words, safe=False), bad


def _valid(array: Any) -> tuple[Any, NDArray[np.int64]]:
    """Check UTF-8, which nothing before may have done."""

    def checked(part: Any) -> Any:
        part.validate(full=True)
        return part

    return _cast(array, _NONE, checked)


def _parse(array: Any, kind: str) -> tuple[Any, NDArray[np.int64]]:
    target = arrow_type(kind)
    if kind == "binary":
        return array, _NONE
    text, bad = _valid(_cast(array, _NONE, lambda part: compute.cast(part, pa.string(), safe=False))[0])
    if kind == "string":
        return text, bad
    if kind == "bool":
        yes = compute.is_in(text, words_of(TRUE_WORDS))
        known = compute.or_(yes, compute.is_in(text, words_of(FALSE_WORDS)))
        yes = compute.if_else(compute.and_(known, text.is_valid()), yes, missing(pa.bool_()))
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
    return (compute.if_else(good, array, missing(array.type)), bad) if bad.size else (array, bad)


def _cast(array: Any, bad: NDArray[np.int64], convert: Callable[[Any], Any]) -> tuple[Any, NDArray[np.int64]]:
    """Convert the array whole, or by halves until the rows that do not convert stand alone; those become null."""
    whole = _attempt(array, convert)
    if whole is not None:
        return whole, bad
    parts, failed = [], []
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
