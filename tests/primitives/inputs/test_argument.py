"""Rejected input: the row and the message, which never quotes the data."""

from __future__ import annotations

import datetime
import decimal
import enum
import itertools
import traceback
from collections import deque

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidBatch
from panstream.primitives.inputs import integers, items, numbers
from panstream.primitives.inputs.argument import ArgumentReader

CANARY = 7316902845131
DAY = datetime.date(2026, 5, 9)
NULL = "must not be null"
KIND = "must be integers, str or bytes, got "
LONE = "lone surrogate"


class Colour(enum.Enum):
    RED = 1


def message_of(call, *args, **keywords) -> tuple[str, int | None]:
    """The text and row of the refusal, once everything reachable from the error is known to hold no canary."""
    with pytest.raises(InvalidBatch) as caught:
        call(*args, **keywords)
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    lines = traceback.format_exception_only(error)
    text = " ".join([*lines, str(error), repr(error), repr(error.args), repr(vars(error))])
    assert str(CANARY) not in text
    assert "canary" not in text
    assert set(vars(error)) == {"row"}
    return str(error), error.row


ROWS = [
    # what, data, row, words
    ("None", [CANARY, None], 1, NULL),
    ("None first", [None, CANARY], 0, NULL),
    ("NaN", ["canary", float("nan")], 1, NULL),
    ("NumPy NaN", ["canary", np.float32("nan")], 1, NULL),
    ("NA", ["canary", pd.NA], 1, NULL),
    ("NaT", ["canary", pd.NaT], 1, NULL),
    ("NumPy NaT", ["canary", np.datetime64("NaT")], 1, NULL),
    ("masked", [CANARY, np.ma.masked], 1, NULL),
    ("float", [CANARY, CANARY + 0.5], 1, KIND + "float; floats"),
    ("integral float", [float(CANARY)], 0, KIND + "float; floats"),
    ("NumPy float", [np.float64(CANARY)], 0, KIND + "float64; floats"),
    ("bool", [CANARY, True], 1, KIND + "bool; convert booleans"),
    ("only bools", [True, False], 0, KIND + "bool; convert booleans"),
    ("NumPy bool", [CANARY, np.True_], 1, KIND + "bool"),
    ("date", [CANARY, DAY], 1, KIND + "date; convert dates and times"),
    ("datetime", [pd.Timestamp(DAY)], 0, KIND + "Timestamp; convert dates and times"),
    ("timedelta", [np.timedelta64(3, "s")], 0, KIND + "timedelta64; convert dates and times"),
    ("str after int", [CANARY, CANARY, "canary"], 2, "must be all of one kind, got str after int"),
    ("int after str", ["canary", CANARY], 1, "must be all of one kind, got int after str"),
    ("str after bytes", [b"canary", "canary"], 1, "must be all of one kind, got str after bytes"),
    ("list", [["canary"]], 0, KIND + "list"),
    ("bytearray", [b"canary", bytearray(b"canary")], 1, KIND + "bytearray"),
    ("decimal", [decimal.Decimal(CANARY)], 0, KIND + "Decimal"),
    ("enum", ["canary", Colour.RED], 1, KIND + "Colour"),
    ("complex", [CANARY * 1j], 0, KIND + "complex"),
    ("too large", [1, CANARY * 10**9], 1, "must be between -2**63 and 2**64 - 1"),
    ("too small", [1, 2**64 - 1, -CANARY * 10**9], 2, "must be between -2**63 and 2**64 - 1"),
    ("just too large", [2**64 - 1, 2**64], 1, "must be between"),
    ("just too small", [-(2**63), -(2**63) - 1], 1, "must be between"),
    ("range up", range(2**64 - 2, 2**64 + 5), 2, "must be between"),
    ("range up by 3", range(2**64 - 2, 2**64 + 5, 3), 1, "must be between"),
    ("range down", range(-(2**63) + 1, -(2**63) - 9, -1), 2, "must be between"),
    ("range outside", range(2**64, 2**64 + 5), 0, "must be between"),
    ("surrogate", ["canary", "canary\ud800"], 1, LONE),
    ("surrogate in U", np.array(["canary", "\udfffcanary"]), 1, LONE),
    ("surrogate in object", np.array(["canary", "\udfffcanary"], object), 1, LONE),
    ("surrogate far on", ["canary"] * 9000 + ["\ud800"], 9000, LONE),
    ("object None", np.array([CANARY, None], object), 1, NULL),
    ("object mixed", np.array([CANARY, "canary"], object), 1, "got str after int"),
    ("float array", np.array([float(CANARY)]), None, KIND + "an array of dtype float64; floats"),
    ("float array, NaN", np.array([CANARY, np.nan]), 1, NULL),
    ("NaT array", np.array([DAY, "NaT"], "datetime64[D]"), 1, NULL),
    ("time array", np.array([DAY], "datetime64[D]"), None, "dtype datetime64[D]; convert dates and times"),
    ("bool array", np.array([True]), None, "dtype bool; convert booleans"),
    ("complex array", np.array([CANARY * 1j]), None, "dtype complex128"),
    ("structured array", np.array([(CANARY,)], [("canary", "i8")]), None, "dtype void64"),
    ("masked structured", np.ma.array([(CANARY,)], dtype=[("canary", "i8")]), None, "dtype void64"),
    ("new strings", np.array(["canary"], np.dtypes.StringDType()), None, "use .astype('U')"),
    ("two dimensions", np.array([[CANARY]]), None, "must be one-dimensional, got an array of 2 dimensions"),
    ("two empty dimensions", np.empty((0, 2), int), None, "must be one-dimensional"),
    ("no dimension", np.array(CANARY), None, "must be one-dimensional, got a single int64"),
    ("masked array", np.ma.array([CANARY, CANARY], mask=[False, True]), 1, NULL),
    ("arrow null", pa.array([CANARY, None]), 1, NULL),
    ("arrow slice", pa.array([None, CANARY, None])[1:], 1, NULL),
    ("arrow chunks", pa.chunked_array([["canary"], [], ["canary", None]]), 2, NULL),
    ("arrow nulls", pa.nulls(3), 0, NULL),
    ("arrow view", pa.array(["canary", None], pa.string_view()), 1, NULL),
    ("arrow float", pa.array([CANARY + 0.5]), None, KIND + "Arrow type double; floats"),
    ("arrow bool", pa.array([True]), None, KIND + "Arrow type bool; convert booleans"),
    ("arrow date", pa.array([DAY]), None, KIND + "Arrow type date32[day]; convert dates"),
    ("arrow time", pa.array([1], pa.timestamp("s")), None, "Arrow type timestamp[s]; convert dates"),
    ("arrow duration", pa.array([1], pa.duration("s")), None, "Arrow type duration[s]; convert dates"),
    ("arrow decimal", pa.array([decimal.Decimal(CANARY)]), None, "Arrow type decimal128"),
    ("arrow list", pa.array([["canary"]]), None, "Arrow type list<"),
    ("arrow bool8", pa.array([True]).cast(pa.int8()).cast(pa.bool8()), None, "Arrow type extension<arrow.bool8>"),
    ("arrow struct", pa.array([{"x": CANARY}]), None, "got StructArray; pass one column"),
    ("arrow table", pa.table({"x": [CANARY]}), None, "got Table; pass one column"),
    ("arrow record batch", pa.record_batch({"x": [CANARY]}), None, "got RecordBatch; pass one column"),
    ("arrow empty table", pa.table({"x": pa.array([], pa.int8())}), None, "got Table; pass one column"),
    ("arrow scalar", pa.scalar(CANARY), None, "got Int64Scalar"),
    ("arrow type", pa.int64(), None, "got DataType"),
    ("dictionary null code", pa.array(["canary", None]).dictionary_encode(), 1, NULL),
    ("dictionary null entry", pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array([None, "canary"])), 1, NULL),
    ("dictionary of nulls", pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.nulls(1)), 0, NULL),
    ("dictionary of floats", pa.array([CANARY + 0.5]).dictionary_encode(), None, "the categories of ids must be"),
    ("pandas None", pd.Series(["canary", None], dtype=object), 1, NULL),
    ("pandas missing str", pd.Series(["canary", None]), 1, NULL),
    ("pandas NA", pd.Series(["canary", None], dtype="string[python]"), 1, NULL),
    ("pandas missing integer", pd.Series([CANARY, None]), 1, NULL),
    ("pandas nullable", pd.Series([CANARY, None], dtype="Int64"), 1, NULL),
    ("pandas arrow", pd.Series([CANARY, None], dtype="int64[pyarrow]"), 1, NULL),
    ("pandas category", pd.Series(["canary", None], dtype="category"), 1, NULL),
    ("pandas mixed category", pd.Series(["canary", CANARY], dtype="category"), None, "categories of ids must be all"),
    ("pandas float category", pd.Series([CANARY + 0.5], dtype="category"), None, "categories of ids must be integ"),
    ("pandas surrogate", pd.Categorical.from_codes([0], pd.Index(["\ud800canary"], dtype=object)), None, LONE),
    ("pandas bool", pd.Series([True]), None, "dtype bool"),
    ("pandas nullable bool", pd.Series([True], dtype="boolean"), None, "dtype bool"),
    ("pandas time", pd.Series([pd.Timestamp(DAY)]), None, "dtype datetime64"),
    ("pandas zoned time", pd.Series([pd.Timestamp(DAY, tz="UTC")]), None, "pandas DatetimeTZDtype; convert dates"),
    ("pandas period", pd.Series([pd.Period(DAY, "D")]), None, "pandas PeriodDtype; convert dates"),
    ("pandas interval", pd.Series([pd.Interval(0, CANARY)]), None, "pandas IntervalDtype"),
    ("pandas sparse", pd.Series([CANARY], dtype="Sparse[int]"), None, "pandas SparseDtype"),
    ("pandas tuples", pd.MultiIndex.from_tuples([("canary", CANARY)]), 0, KIND + "tuple"),
    ("pandas table", pd.DataFrame({"x": [CANARY]}), None, "got DataFrame; pass one column"),
    ("pandas scalar", pd.Timestamp(DAY), None, "got Timestamp"),
    ("polars null", pl.Series(["canary", None]), 1, NULL),
    ("polars category", pl.Series(["canary", None], dtype=pl.Categorical), 1, NULL),
    ("polars enum", pl.Series(["canary", None], dtype=pl.Enum(["canary"])), 1, NULL),
    ("polars bool", pl.Series([True]), None, "Arrow type bool"),
    ("polars date", pl.Series([DAY]), None, "Arrow type date32"),
    ("polars float", pl.Series([CANARY + 0.5]), None, "Arrow type double"),
    ("polars list", pl.Series([["canary"]]), None, "Arrow type large_list"),
    ("polars struct", pl.Series([{"x": CANARY}]), None, "got Series; pass one column"),
    ("polars object", pl.Series([object()], dtype=pl.Object), 0, KIND + "object"),
    ("polars table", pl.DataFrame({"x": [CANARY]}), None, "got DataFrame; pass one column"),
    ("polars lazy", pl.LazyFrame({"x": [CANARY]}), None, "got LazyFrame"),
    ("str", "canary", None, "got str; pass a list: a single str would be read letter by letter"),
    ("bytes", b"canary", None, "got bytes; pass a list: a single bytes would be read letter by letter"),
    ("int", CANARY, None, "got int; pass a list, even for a single row"),
    ("NumPy int", np.int64(CANARY), None, "got int64; pass a list, even for a single row"),
    ("NumPy str", np.str_("canary"), None, "got str_; pass a list"),
    ("nothing", None, None, "got NoneType; pass a list"),
    ("generator", (x for x in [CANARY]), None, "got generator; list(...) makes one of a generator"),
    ("set", {CANARY}, None, "got set; list(...) makes one of a set"),
    ("dict", {CANARY: "canary"}, None, "got dict"),
    ("deque", deque([CANARY]), None, "got deque"),
    ("memoryview", memoryview(b"canary"), None, "got memoryview"),
    ("object", object(), None, "got object"),
    ("class", int, None, "got type"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "row", "words"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS])
def test_ids_are_refused_by_row_and_without_their_content(data, row, words) -> None:
    text, actual_row = message_of(items, data)
    assert actual_row == row
    assert words in text
    prefix = "" if row is None else f"row {row}: "
    assert text.startswith((f"{prefix}ids must", "the categories of ids must"))
    assert len(text) < 250


@pytest.mark.parametrize(
    ("data", "row", "words"),
    [
        (["canary"], 0, "weights must be integers, got str"),
        ([1, b"canary"], 1, "weights must be integers, got bytes"),
        ([1, 2.0], 1, "weights must be integers, got float; floats are not exact"),
        (np.array(["canary"]), None, "weights must be integers, got an array of dtype str"),
        (pa.array(["canary"]), None, "weights must be integers, got Arrow type string"),
        (pa.array(["canary"]).dictionary_encode(), None, "the categories of weights must be integers"),
        (pd.Series(["canary"], dtype="category"), None, "the categories of weights must be integers"),
        ([0, CANARY], 1, "weights must be between -5 and 5"),
        ([0, -CANARY], 1, "weights must be between -5 and 5"),
        ([0, CANARY * 10**9], 1, "weights must be between -5 and 5"),
        (np.array([0, CANARY]), 1, "weights must be between -5 and 5"),
        (np.array([0, 2**63 + CANARY], np.uint64), 1, "weights must be between -5 and 5"),
        (pa.array([CANARY]).dictionary_encode(), 0, "weights must be between -5 and 5"),
        (pd.Series([0, CANARY], dtype="category"), 1, "weights must be between -5 and 5"),
        (range(0, CANARY, CANARY - 1), 1, "weights must be between -5 and 5"),
        (range(0, 2**63 + 1, 2**63), 1, "weights must be between -5 and 5"),
        ("canary", None, "weights must be a list, tuple, NumPy array"),
    ],
)
def test_integers_are_refused_by_row_and_without_their_content(data, row, words) -> None:
    text, actual_row = message_of(integers, data, name="weights", lower=-5, upper=5)
    assert words in text
    assert actual_row == row


@pytest.mark.parametrize(
    ("data", "row", "words"),
    [
        (["canary"], 0, "values must be numbers, got str"),
        ([0.5, True], 1, "values must be numbers, got bool; convert booleans"),
        ([0.5, CANARY * 10**400], 1, "values must be finite"),
        ([0.5, CANARY * 1j], 1, "values must be numbers, got complex"),
        ([0.5, decimal.Decimal(CANARY)], 1, "values must be numbers, got Decimal"),
        ([0.5, DAY], 1, "values must be numbers, got date"),
        ([None, 0.5], 0, "values must not be null"),
        (np.array(["canary"]), None, "values must be numbers, got an array of dtype str"),
        (pa.array([True]), None, "values must be numbers, got Arrow type bool"),
        (pd.Series([True, None], dtype="boolean"), 1, "values must not be null"),
        (CANARY + 0.5, None, "got float; pass a list"),
    ],
)
def test_numbers_are_refused_by_row_and_without_their_content(data, row, words) -> None:
    text, actual_row = message_of(numbers, data, name="values")
    assert words in text
    assert actual_row == row


GOOD = {"int": CANARY, "str": f"canary{CANARY}", "bytes": f"canary{CANARY}".encode()}
BAD = [
    None, float("nan"), CANARY + 0.5, True, CANARY * 10**30, -CANARY * 10**30, [f"canary{CANARY}"], DAY,
    "canary\ud800", (CANARY,), {CANARY: CANARY}, bytearray(b"canary"), CANARY * 1j, decimal.Decimal(CANARY), pd.NA,
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(sorted(GOOD)),
    before=st.integers(1, 20),
    after=st.integers(0, 20),
    bad=st.sampled_from(BAD),
    box=st.sampled_from([list, tuple, "object", "pandas", "polars"]),
)
def test_one_bad_row_among_good_ones_is_found_and_never_quoted(kind, before, after, bad, box) -> None:
    good = GOOD[kind]
    data = [good] * before + [bad] + [good] * after
    if box == "polars":
        wrapped = pl.Series(data, dtype=pl.Object)
    elif box in ("object", "pandas"):
        wrapped = np.empty(len(data), object)
        wrapped[:] = data
        wrapped = pd.Series(wrapped, dtype=object) if box == "pandas" else wrapped
    else:
        wrapped = box(data)
    assert message_of(items, wrapped)[1] == before
    if kind == "int":
        assert message_of(integers, wrapped, name="weights")[1] == before
        if not isinstance(bad, float):
            assert message_of(numbers, [good] * before + ["canary"], name="values")[1] == before


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    kind=st.sampled_from([pa.string(), pa.string_view(), pa.int32(), pa.dictionary(pa.int8(), pa.string())]),
    choice=st.data(),
)
def test_the_row_of_a_null_counts_over_all_chunks(sizes, kind, choice) -> None:
    total = sum(sizes) + 1
    row = choice.draw(st.integers(0, total - 1))
    value = 73 if kind == pa.int32() else "canary"
    values = [None if i == row else value for i in range(total)]
    bounds = np.cumsum([0, *sizes, 1])
    chunks = [pa.array(values[a:b], kind) for a, b in itertools.pairwise(bounds)]
    assert message_of(items, pa.chunked_array(chunks, kind))[1] == row


def test_an_exporter_that_fails_is_refused_without_its_message() -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise ValueError(f"canary {CANARY}")

    class BrokenArray:
        def __arrow_c_array__(self, requested_schema=None):
            raise ValueError(f"canary {CANARY}")

    assert message_of(items, Broken())[0] == "ids could not be exported to Arrow, got Broken"
    assert message_of(items, BrokenArray())[0] == "ids could not be exported to Arrow, got BrokenArray"


@pytest.mark.parametrize(
    ("call", "data"),
    [
        (
            items,
            pa.chunked_array([pa.array(["canary" * 9], pa.string_view()), pa.array([None], pa.string_view())]),
        ),
        (items, [CANARY, CANARY, CANARY * 10**30]),
        (items, ["canary", "canary\ud800"]),
        (items, np.array(["canary", "canary\ud800"])[::-1]),
        (lambda data: integers(data, name="w", upper=5), [1, CANARY]),
        (lambda data: integers(data, name="w", upper=5), pd.Series([1, CANARY], dtype="category")),
        (lambda data: numbers(data, name="w"), [CANARY + 0.5, float("nan")]),
    ],
)
def test_a_refused_batch_leaves_no_copy_behind(call, data, monkeypatch) -> None:
    made = []
    keep = ArgumentReader.register

    def recorded(self, array):
        made.append(array)
        return keep(self, array)

    monkeypatch.setattr(ArgumentReader, "register", recorded)
    with pytest.raises(InvalidBatch):
        call(data)
    assert made
    assert not any(array.any() for array in made)


def test_the_name_of_the_parameter_is_told() -> None:
    assert message_of(items, [None], name="users")[0] == "row 0: users must not be null (None, NaN, NA, NaT)"


def test_representations_show_no_item() -> None:
    for data in ([CANARY], [f"canary{CANARY}"], pd.Series([f"canary{CANARY}"], dtype="category")):
        batch = items(data)
        assert "anary" not in repr(batch) + repr(batch.parts)
        assert str(CANARY) not in repr(batch) + repr(batch.parts)
