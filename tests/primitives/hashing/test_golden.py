"""Results that must never change: every file holds inputs and the results of the first release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.primitives.hashing import (
    KWise,
    StringHash,
    cells_of,
    cells_of_integers,
    cells_of_strings,
    derive,
    expand,
    hash_integers,
    hash_strings,
    permute,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "hashing"


def cases(name: str) -> list[Any]:
    loaded: list[Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    assert loaded
    return loaded


@pytest.mark.parametrize("case", cases("keys"))
def test_keys(case: dict[str, Any]) -> None:
    assert derive(case["key"], case["label"]) == case["derived"]
    assert list(expand(case["key"], case["label"], len(case["expanded"]))) == case["expanded"]


@pytest.mark.parametrize(
    ("kind", "case"),
    [("siphash", case) for case in cases("strings")] + [("fold", case) for case in cases("strings-fold")],
)
def test_strings(kind: StringHash, case: dict[str, Any]) -> None:
    texts = [bytes.fromhex(text) for text in case["strings_hex"]]
    offsets = np.cumsum([0, *(len(text) for text in texts)])
    data = np.frombuffer(b"".join(texts), np.uint8)
    hashes = np.empty(len(texts), np.uint64)
    cells = np.empty(len(texts), np.int64)
    hash_strings(offsets, data, case["key"], hashes, hash=kind)
    assert hashes.tolist() == case["hashes"]
    cells_of_strings(offsets, data, case["key"], case["buckets"], case["levels"], cells, hash=kind)
    assert cells.tolist() == case["cells"]


@pytest.mark.parametrize("case", cases("integers"))
def test_integers(case: dict[str, Any]) -> None:
    values = np.array(case["values"], np.int64)
    hashes = np.empty(values.size, np.uint64)
    cells = np.empty(values.size, np.int64)
    hash_integers(values, case["key"], hashes)
    assert hashes.tolist() == case["hashes"]
    cells_of_integers(values, case["key"], case["buckets"], case["levels"], cells)
    assert cells.tolist() == case["cells"]


@pytest.mark.parametrize("case", cases("cells"))
def test_cells(case: dict[str, Any]) -> None:
    hashes = np.array(case["hashes"], np.uint64)
    cells = np.empty(hashes.size, np.int64)
    cells_of(hashes, case["buckets"], case["levels"], cells)
    assert cells.tolist() == case["cells"]


@pytest.mark.parametrize("case", cases("permutation"))
def test_permutation(case: dict[str, Any]) -> None:
    ids = np.array(case["ids"], np.int64)
    out = np.empty_like(ids)
    permute(ids, case["universe"], case["key"], out)
    assert out.tolist() == case["images"]


@pytest.mark.parametrize("case", cases("polynomial"))
def test_polynomial(case: dict[str, Any]) -> None:
    family = KWise.from_key(case["independence"], case["key"], case["label"])
    assert list(family.coefficients) == case["coefficients"]
    points = np.array(case["points"], np.int64)
    values = np.empty(points.size, np.uint64)
    family.values(points, values)
    assert values.tolist() == case["values"]
