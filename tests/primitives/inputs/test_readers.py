"""Every container times every kind, against plain Python values."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.primitives.inputs import Dictionary, integers, items, numbers

TEXTS = [
    "ann",
    "",
    "bob",
    "x" * 12,
    "y" * 13,
    "a much longer identifier",
    "Zürich",
    "日本語",
    "🦜 parrot",
    "a\0b",
    "ann",
]
BYTES = [b"ann", b"", b"\xff\xfe", b"x" * 12, b"y" * 13, b"a\0b", bytes(range(256)), b"ann"]
WORDS = [b"abcd", b"\0\0\0\1", b"\xff\xff\xff\xff", b"abcd"]
SMALL = [3, 1, 4, 1, 5, 92, 65, 35, 0]
SIGNED = [0, -1, 2**63 - 1, -(2**63), 12345678901234, 7]
LARGE = [0, 2**63, 2**64 - 1, 2**63 - 1, 5]


class Exporter:
    """An object with the Arrow C data interface and nothing else."""

    def __init__(self, array):
        self.array = array


class ArrayExporter(Exporter):
    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


class StreamExporter(Exporter):
    def __arrow_c_stream__(self, requested_schema=None):
        return pa.chunked_array([self.array]).__arrow_c_stream__(requested_schema)


class Texts(list):
    pass


class SubSeries(pd.Series):
    pass


def chunked(values, kind):
    """Three chunks of which one is empty, and a slice in the middle."""
    cut = len(values) // 2
    padded = pa.array([values[0], *values[cut:], values[0]], kind)
    return pa.chunked_array([pa.array(values[:cut], kind), pa.array([], kind), padded[1:-1]])


def with_dictionary(values, kind, codes=pa.int32):
    return pa.array(values, kind).dictionary_encode().cast(pa.dictionary(codes(), kind))


def arrow_forms(values, kinds):
    for kind in kinds:
        array = pa.array(values, kind)
        yield f"arrow {kind}", array
        yield f"arrow slice {kind}", pa.array([values[-1], values[0], *values, values[1]], kind)[2:-1]
        yield f"arrow chunked {kind}", chunked(values, kind)
        yield f"exported array {kind}", ArrayExporter(array)
        yield f"exported stream {kind}", StreamExporter(array)
        yield f"pandas arrow {kind}", pd.Series(pd.array(array, dtype=pd.ArrowDtype(kind)))


def text_forms(values):
    yield "list", values
    yield "list subclass", Texts(values)
    yield "tuple", tuple(values)
    yield "NumPy scalars", [np.str_(v) for v in values]
    yield "object array", np.array(values, object)
    yield "U array", np.array(values)
    yield "U array, wide", np.array(values, "U300")
    yield "U array, swapped", np.array(values).astype(np.array(values).dtype.newbyteorder())
    yield "U array, strided", np.repeat(np.array(values), 3)[::3]
    yield from arrow_forms(values, [pa.string(), pa.large_string(), pa.string_view()])
    for codes in (pa.int8, pa.uint8, pa.int16, pa.int32, pa.uint32, pa.int64, pa.uint64):
        yield f"arrow dictionary {codes()}", with_dictionary(values, pa.string(), codes)
    yield "arrow dictionary, large", with_dictionary(values, pa.large_string())
    for dtype in ("object", "str", "string[python]", "string[pyarrow]", "category"):
        yield f"pandas {dtype}", pd.Series(values, dtype=dtype)
        yield f"pandas index {dtype}", pd.Index(values, dtype=dtype)
        yield f"pandas array {dtype}", pd.Series(values, dtype=dtype).array
    yield "pandas subclass", SubSeries(values)
    yield "pandas slice", pd.Series([values[0], *values])[1:]
    yield "pandas category slice", pd.Series([values[0], *values], dtype="category")[1:]
    enum = pl.Enum(list(dict.fromkeys(values)))
    for dtype in (pl.String, pl.Categorical, enum, pl.Object):
        yield (
            f"polars {type(dtype).__name__} {getattr(dtype, '__name__', '')}",
            pl.Series(values, dtype=dtype),
        )
    for dtype in (pl.String, pl.Categorical, enum):
        half = len(values) // 2
        parts = [pl.Series(part, dtype=dtype) for part in (values[:half], values[half:])]
        yield f"polars chunks {dtype!s:.10}", pl.concat(parts, rechunk=False)
        yield f"polars slice {dtype!s:.10}", pl.Series([values[0], *values], dtype=dtype)[1:]


def bytes_forms(values):
    yield "list", values
    yield "tuple", tuple(values)
    yield "NumPy scalars", [np.bytes_(v) for v in values]
    yield "object array", np.array(values, object)
    yield "S array", np.array(values)
    yield "S array, wide", np.array(values, "S300")
    yield "S array, strided", np.repeat(np.array(values), 3)[::3]
    yield from arrow_forms(values, [pa.binary(), pa.large_binary(), pa.binary_view()])
    yield "arrow dictionary", with_dictionary(values, pa.binary())
    yield "pandas object", pd.Series(values, dtype=object)
    yield "pandas category", pd.Series(values, dtype="category")
    yield "polars", pl.Series(values, dtype=pl.Binary)


def word_forms(values):
    yield "S array", np.array(values)
    yield from arrow_forms(values, [pa.binary(4)])
    yield (
        "arrow dictionary",
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(values[:3], pa.binary(4))),
    )


def integer_forms(values, dtypes, arrow):
    for dtype in dtypes:
        array = np.array(values, dtype)
        yield f"{dtype} array", array
        yield f"{dtype} swapped", array.astype(array.dtype.newbyteorder())
        yield f"{dtype} strided", np.repeat(array, 2)[::2]
        yield f"{dtype} reversed", array[::-1].copy()[::-1]
        yield f"{dtype} unaligned", np.frombuffer(b"\0" + array.tobytes(), dtype, offset=1)
        yield f"{dtype} scalars", list(array)
        yield f"{dtype} memory map", array.view(np.memmap)
        yield f"{dtype} unmasked", np.ma.array(array, mask=False)
        yield f"pandas {dtype}", pd.Series(array)
        yield f"pandas index {dtype}", pd.Index(array)
        yield f"pandas nullable {dtype}", pd.Series(array).convert_dtypes(dtype_backend="numpy_nullable")
        yield f"pandas NumPy array {dtype}", pd.arrays.NumpyExtensionArray(array)
        yield f"polars {dtype}", pl.Series(array)
    yield "list", values
    yield "tuple", tuple(values)
    yield "object array", np.array(values, object)
    yield "pandas object", pd.Series(values, dtype=object)
    yield "pandas category", pd.Series(values, dtype="category")
    yield "mixed scalars", [values[0], *np.array(values[1:], dtypes[0])]
    yield from arrow_forms(values, arrow)
    yield "arrow dictionary", with_dictionary(values, arrow[0])
    yield "polars object", pl.Series(values, dtype=pl.Object)


ALL_INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
CASES = [
    *((f"text {label}", TEXTS, form) for label, form in text_forms(TEXTS)),
    *((f"bytes {label}", BYTES, form) for label, form in bytes_forms(BYTES)),
    *((f"word {label}", WORDS, form) for label, form in word_forms(WORDS)),
    *(
        (f"small {label}", SMALL, form)
        for label, form in integer_forms(SMALL, ALL_INTEGERS, [getattr(pa, name)() for name in ALL_INTEGERS])
    ),
    *((f"signed {label}", SIGNED, form) for label, form in integer_forms(SIGNED, ["int64"], [pa.int64()])),
    *((f"large {label}", LARGE, form) for label, form in integer_forms(LARGE, ["uint64"], [pa.uint64()])),
    ("range", list(range(5, 50, 3)), range(5, 50, 3)),
    ("range down", list(range(50, -50, -7)), range(50, -50, -7)),
    ("range wide", [-(2**63), 0, 2**63], range(-(2**63), 2**63 + 1, 2**63)),
    ("range large", [2**64 - 1, 2**64 - 3], range(2**64 - 1, 2**64 - 5, -2)),
    ("pandas range", list(range(4)), pd.RangeIndex(4)),
    ("sparse-signed list", [-1, 2**64 - 2], [-1, 2**64 - 2]),
]


def test_the_matrix_is_wide() -> None:
    assert len({label for label, _, _ in CASES}) == len(CASES) > 250


@pytest.mark.parametrize(("values", "data"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_container_gives_the_same_rows(values, data, rows, plain) -> None:
    batch = items(data)
    assert rows(batch) == plain(values)
    assert len(batch) == len(values)
    assert batch.kind == ("integer" if isinstance(values[0], int) else "string")
    for part in batch.parts:
        arrays = [part.codes] if isinstance(part, Dictionary) else []
        leaf = part.values if isinstance(part, Dictionary) else part
        arrays += [getattr(leaf, name) for name in ("values", "offsets", "data") if hasattr(leaf, name)]
        for array in arrays:
            assert array.flags.c_contiguous
            assert array.flags.aligned
            assert array.dtype.isnative
            assert not array.flags.writeable
    batch.wipe()
    assert not any(array.any() for array in batch.owned)
    assert rows(items(data)) == plain(values), "wiping touched the caller's data"


@pytest.mark.parametrize("signed", ["small", "signed", "range", "range down", "pandas range"])
def test_integers_are_exact_in_every_container(signed) -> None:
    taken = 0
    for label, values, data in CASES:
        if label.startswith(signed) and min(values) >= -(2**63) and max(values) < 2**63:
            array, owned = integers(data, name="weights")
            assert array.tolist() == values, label
            assert array.dtype == np.int64
            assert array.flags.c_contiguous
            assert array.flags.writeable == owned
            taken += 1
    assert taken


def test_numbers_in_every_container() -> None:
    values = [0.5, -2.25, 1e300, 0.0, 3.0]
    narrow = [0.5, -2.25, 1024.0]
    for dtype in ("float64", ">f8", "longdouble"):
        assert numbers(np.array(values, dtype), name="x")[0].tolist() == values
    for dtype in ("float16", "float32"):
        assert numbers(np.array(narrow, dtype), name="x")[0].tolist() == narrow
        assert numbers(list(np.array(narrow, dtype)), name="x")[0].tolist() == narrow
    doubled = np.repeat(np.array(values), 2)[::2]
    kind = pa.float64()
    forms = [
        values,
        tuple(values),
        doubled,
        np.array(values, object),
        pa.array(values),
        chunked(values, kind),
    ]
    forms += [
        pd.Series(values),
        pd.Series(values, dtype="Float64"),
        pd.Series(values, dtype="double[pyarrow]"),
    ]
    forms += [pd.Series(values, dtype="category"), pl.Series(values), pa.array(values).dictionary_encode()]
    for form in forms:
        array, owned = numbers(form, name="x")
        assert array.tolist() == values
        assert array.dtype == np.float64
        assert array.flags.writeable == owned
    assert numbers(pa.array(np.array(narrow, np.float16)), name="x")[0].tolist() == narrow
    for label, expected, form in CASES:
        if label.startswith("small"):
            assert numbers(form, name="x")[0].tolist() == expected, label
    assert numbers([1, 2.5, np.float32(0.5), np.int8(3)], name="x")[0].tolist() == [1.0, 2.5, 0.5, 3.0]
    assert numbers(np.array([2**64 - 1], np.uint64), name="x")[0].tolist() == [2.0**64]


EMPTY = [
    [], (), range(0), np.array([]), np.array([], object), np.array([], "U3"), np.empty(0, np.int64),
    pa.array([]), pa.array([], pa.string()), pa.chunked_array([], pa.string_view()),
    pa.array([], pa.dictionary(pa.int8(), pa.string())), pa.chunked_array([pa.array([], pa.int8())] * 3),
    pd.Series([]), pd.Series([], dtype="category"), pd.Series([], dtype="str"), pd.Series([], dtype="Int64"),
    pd.Index([]), pd.Series([], dtype="datetime64[ns, UTC]"), pd.Series([], dtype="bool"), pl.Series([]),
    pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.Categorical), pl.Series([], dtype=pl.Object),
]  # fmt: skip


@pytest.mark.parametrize("data", EMPTY, ids=[f"{type(d).__name__}{i}" for i, d in enumerate(EMPTY)])
def test_an_empty_batch_is_fine_whatever_its_type(data) -> None:
    batch = items(data)
    assert len(batch) == 0
    assert batch.parts == ()
    assert batch.kind is None
    assert integers(data, name="weights")[0].size == 0
    assert numbers(data, name="values")[0].size == 0


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=30),
    choice=st.data(),
)
def test_any_text(rows, values, choice) -> None:
    """NumPy's own containers drop trailing NULs, so they are left to the fixed matrix."""
    expected = [value.encode() for value in values]
    assert rows(items(values)) == expected
    assert rows(items(np.array(values, object))) == expected
    assert rows(items(pl.Series(values, dtype=pl.String))) == expected
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        array = pa.array(values, kind)
        start = choice.draw(st.integers(0, len(values) - 1))
        assert rows(items(array[start:])) == expected[start:]
        assert rows(items(pa.chunked_array([array[:start], array[start:]]))) == expected
    assert rows(items(pa.array(values).dictionary_encode())) == expected
    assert rows(items(pd.Series(values, dtype="category"))) == expected
    fixed = np.array(values)
    assert rows(items(fixed)) == [str(value).encode() for value in fixed]


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=30))
def test_any_integers(rows, values) -> None:
    wrapped = [value if value < 2**63 else value - 2**64 for value in values]
    assert rows(items(values)) == wrapped
    assert rows(items(np.array(values, object))) == wrapped
    assert rows(items(pa.array(wrapped, pa.int64()))) == wrapped
    assert rows(items(np.array(wrapped, np.int64).view(np.uint64))) == wrapped


def test_wrapping_is_for_ids_only(rows) -> None:
    assert rows(items([2**64 - 1])) == rows(items([-1]))
    for data in ([1, 2**63], np.array([1, 2**63], np.uint64), pa.array([1, 2**63], pa.uint64()), [-1, 2**63]):
        with pytest.raises(ValueError, match=r"^row 1: weights must be between -5 and 9223372036854775807$"):
            integers(data, name="weights", lower=-5)


def test_range_of_integers_is_checked_across_chunks() -> None:
    data = pa.chunked_array([pa.array([1, 2], pa.int32()), pa.array([], pa.int32()), pa.array([3, 11, 12], pa.int32())])
    array, owned = integers(data, name="ids", lower=1, upper=12)
    assert array.tolist() == [1, 2, 3, 11, 12]
    assert owned
    with pytest.raises(ValueError, match=r"^row 3: ids must be between 1 and 10$") as caught:
        integers(data, name="ids", lower=1, upper=10)
    assert caught.value.row == 3
    with pytest.raises(ValueError, match=r"^row 0: ids must be between 2 and 12$"):
        integers(data, name="ids", lower=2, upper=12)
    huge = integers([5], name="ids", lower=-(2**80), upper=2**80)
    assert huge[0].tolist() == [5]


def test_integers_from_a_wrapped_chunk_name_the_row_of_the_whole_input() -> None:
    data = pa.chunked_array([pa.array([1, 2], pa.uint64()), pa.array([3, 2**63], pa.uint64())])
    with pytest.raises(ValueError, match=r"^row 3: "):
        integers(data, name="ids")


@pytest.mark.parametrize(
    ("data", "row"),
    [
        ([1.0, float("nan")], 1),
        ([float("inf"), 1.0], 0),
        (np.array([0.0, 1.0, -np.inf]), 2),
        (np.array([0.0, np.longdouble("1e4000")]), 1),
        ([0.5, np.longdouble("1e4000")], 1),
        ([0, 10**400], 1),
        ([0, None], 1),
        ([0.0, "1"], 1),
        ([0.0, True], 1),
        (np.ma.array([1.0, 2.0], mask=[False, True]), 1),
        (pa.chunked_array([[1.0], [None, 2.0]]), 1),
        (pa.array([1.0, float("nan")]), 1),
        (pd.Series([1.0, None], dtype="Float64"), 1),
        (pl.Series([1.0, None]), 1),
        (range(10), None),
    ],
)
def test_numbers_must_be_finite(data, row) -> None:
    if row is None:
        assert numbers(data, name="values")[0].tolist() == list(data)
        return
    with pytest.raises(ValueError, match=f"^row {row}: values must ") as caught:
        numbers(data, name="values")
    assert caught.value.row == row


def test_what_needs_no_copy_is_not_copied() -> None:
    signed = np.arange(5)
    unsigned = np.arange(5, dtype=np.uint64)
    locked = np.arange(5)
    locked.flags.writeable = False
    series = pd.Series(np.arange(5))
    nullable = pd.Series(np.arange(5), dtype="Int64")
    arrow = pa.array([1, 2, 3, 4, 5])
    column = pl.Series([1, 2, 3])
    for data, memory in (
        (signed, signed),
        (signed[1:3], signed),
        (unsigned, unsigned),
        (locked, locked),
        (series, series.to_numpy()),
        (nullable, nullable.array.to_numpy(np.int64, copy=False)),
        (arrow, arrow.to_numpy()),
        (arrow[2:], arrow.to_numpy()),
        (column, column.to_numpy()),
    ):
        batch = items(data)
        assert np.shares_memory(batch.parts[0].values, memory)
        assert batch.owned == ()
        array, owned = integers(data, name="weights")
        assert np.shares_memory(array, memory)
        assert not owned
        assert not array.flags.writeable
    floats = np.linspace(0, 1, 5)
    array, owned = numbers(floats, name="x")
    assert np.shares_memory(array, floats)
    assert not owned


@pytest.mark.parametrize(
    "data", [np.arange(6)[::2], np.arange(3, dtype=">i8"), np.arange(3, dtype=np.int32), [1, 2, 3]]
)
def test_what_is_copied_is_ours(data) -> None:
    batch = items(data)
    assert any(np.shares_memory(batch.parts[0].values, array) for array in batch.owned)
    array, owned = integers(data, name="weights")
    assert owned
    assert not isinstance(data, np.ndarray) or not np.shares_memory(array, data)


def test_importing_takes_no_heavy_library_and_plain_integers_need_none() -> None:
    script = (
        "import sys; from panstream.primitives.inputs import items; assert len(items([1, 2])) == 2;"
        "print([m for m in ('numba', 'pyarrow', 'pandas', 'polars') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
