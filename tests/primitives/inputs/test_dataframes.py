from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from panstream.errors import InvalidBatch
from panstream.primitives.inputs import Dictionary, items
from panstream.primitives.inputs.dataframes import dataframe_library


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([["ann", "Zürich"], ["", "bob"]], pa.string()),
        ([["ann", "Zürich"], ["", "bob"]], pa.large_string()),
        ([[5, 6], [7, -8]], pa.int16()),
    ],
)
def test_categories_in_several_chunks(chunks, kind, rows, plain) -> None:
    categories = pa.chunked_array([pa.array(chunks[0], kind), pa.array(chunks[0][:1] + chunks[1], kind)[1:]])
    index = pd.Index(pd.array(categories, dtype=pd.ArrowDtype(kind)))
    assert index.array.__arrow_array__().num_chunks == 2
    batch = items(pd.Categorical.from_codes([3, 0, 2, 1, 0], index))
    (part,) = batch.parts
    assert isinstance(part, Dictionary)
    values = chunks[0] + chunks[1]
    assert rows(batch) == plain([values[code] for code in (3, 0, 2, 1, 0)])
    batch.wipe()
    assert index.tolist() == values


def test_categories_added_later(rows) -> None:
    series = pd.Series(["ann", "bob"], dtype="category").cat.add_categories(["cy"])
    assert rows(items(pd.concat([series, series]).cat.set_categories(["cy", "bob", "ann"]))) == [b"ann", b"bob"] * 2


def test_categories_of_categories_are_refused() -> None:
    index = pd.Index(pd.array(["ann"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))))
    with pytest.raises(InvalidBatch, match="^ids must not have categories that are categorical themselves$"):
        items(pd.Categorical.from_codes([0], index))


def test_categories_that_no_row_uses_are_allowed(rows) -> None:
    assert rows(items(pd.Categorical(["bob"], categories=["ann", "bob"]))) == [b"bob"]
    assert rows(items(pl.Series(["bob"], dtype=pl.Enum(["ann", "bob"])))) == [b"bob"]


def test_polars_after_sorting_and_filtering(rows) -> None:
    names = [f"{'long identifier ' * (i % 3)}{i}" for i in range(500)]
    series = pl.Series(names)
    order = np.random.default_rng(5).permutation(500)
    assert rows(items(series[order.tolist()])) == [names[i].encode() for i in order]
    assert rows(items(series.filter(pl.Series(order) < 100))) == [
        name.encode() for name, keep in zip(names, order < 100, strict=True) if keep
    ]
    both = pl.concat([series, series[order.tolist()]], rechunk=True)
    assert rows(items(both)) == [name.encode() for name in names] + [names[i].encode() for i in order]


def test_libraries_are_told_by_their_classes() -> None:
    class Mine(pd.Series):
        pass

    assert dataframe_library(Mine) == "pandas"
    assert dataframe_library(pl.Series) == "polars"
    assert dataframe_library(pa.ChunkedArray) == "pyarrow"
    assert dataframe_library(list) == dataframe_library(np.ndarray) == ""
