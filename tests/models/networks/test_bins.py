"""Atoms, tails and dates: read, drawn, and read back as they were; and what is missing comes back as it was written."""

from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.errors import InvalidBatch, InvalidBytes, InvalidParameter
from panstream.models.networks import Bins, Domain, Records, TreeNetwork, propose_domain, sample
from panstream.models.networks.bins import date_edges
from panstream.primitives.inputs.table_files import write_columns
from panstream.primitives.noise import SeededSource

INCOME = Bins([0, 100, 1000, math.inf], atoms=[0, 12_345], tail=1_000_000)
DAYS = Bins(date_edges("2023-01-01", "2023-12-31", "quarter"), dates=True)


def shares(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


def test_atoms_have_their_own_category_and_are_drawn_exactly() -> None:
    assert INCOME.labels == ("[0, 100)", "[100, 1000)", "[1000, inf]", "0", "12345")
    assert INCOME.codes(np.array([0.0, 0.1, 100.0, 12_345.0, 5e9, -1.0, math.nan])).tolist() == [3, 0, 1, 4, 2, -1, -1]
    assert INCOME.sample_values(np.array([3, 4, 3, 5]), shares(4)) == [0.0, 12_345.0, 0.0, None]


def test_an_open_last_bin_is_log_uniform_up_to_its_tail() -> None:
    drawn = np.array(INCOME.sample_values(np.full(9_000, 2), shares(9_000)))
    assert 1000 <= drawn.min() < drawn.max() <= 1_000_000
    per_decade = np.histogram(np.log10(drawn), bins=[3, 4, 5, 6])[0]
    assert per_decade.tolist() == [3000, 3000, 3000]
    without = Bins([0, 100, math.inf])
    assert set(without.sample_values(np.array([1, 1]), shares(2))) == {100.0}


def test_dates_are_days() -> None:
    assert DAYS.labels[0] == "[2023-01-01, 2023-04-01)"
    assert DAYS.labels[-1] == "[2023-10-01, 2023-12-31]"
    drawn = DAYS.sample_values(np.repeat(np.arange(4), 500), np.tile(shares(500), 4))
    days = [date.fromisoformat(each) for each in drawn]
    assert {(day.month - 1) // 3 for day in days[:500]} == {0}
    assert {day.isoformat() for day in days} == {
        date.fromordinal(day).isoformat()
        for day in range(date(2023, 1, 1).toordinal(), date(2023, 12, 31).toordinal() + 1)
    }


@pytest.mark.parametrize(
    ("step", "count", "second"),
    [("day", 365, "2023-01-02"), ("week", 52, "2023-01-08"), ("month", 12, "2023-02-01"), ("year", 1, "2023-12-31")],
)
def test_steps_of_dates(step: str, count: int, second: str) -> None:
    edges = date_edges("2023-01-01", "2024-01-01" if step == "day" else "2023-12-31", step)
    assert len(edges) - 1 == count
    assert edges[1].isoformat() == second
    with pytest.raises(InvalidParameter, match="step must be day"):
        date_edges("2023-01-01", "2023-12-31", "decade")


@pytest.mark.parametrize(
    "column",
    [
        ["2023-02-03", "2023-12-31T23:00"],
        [date(2023, 2, 3), datetime(2023, 12, 31, 23)],
        np.array(["2023-02-03", "2023-12-31"], "datetime64[ns]"),
    ],
    ids=["text", "objects", "numpy"],
)
def test_dates_are_read_however_they_come(column: Any) -> None:
    domain = Domain({"day": DAYS})
    assert Records.read({"day": column}, domain).codes.tolist() == [[0, 3]]
    with pytest.raises(InvalidBatch, match="YYYY-MM-DD"):
        Records.read({"day": ["2023-02-03", "3 Feb"]}, domain)
    with pytest.raises(InvalidBatch, match="a date inside"):
        Records.read({"day": ["1999-01-01"]}, domain)


def test_dates_are_read_from_pandas_and_arrow() -> None:
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    domain = Domain({"day": DAYS})
    frame = pandas.DataFrame({"day": pandas.to_datetime(["2023-02-03", "2023-12-31"])})
    assert Records.read(frame, domain).codes.tolist() == [[0, 3]]
    table = arrow.table({"day": arrow.array([date(2023, 2, 3), date(2023, 12, 31)])})
    assert Records.read(table, domain).codes.tolist() == [[0, 3]]


@pytest.mark.parametrize(
    "given",
    [
        {"edges": [0, 1], "atoms": [2, 2]},
        {"edges": [0, 1], "atoms": [math.inf]},
        {"edges": [0, 1], "tail": 5},
        {"edges": [0, 9, math.inf], "tail": 9},
        {"edges": ["2023-01-01", "x"], "dates": True},
        {"edges": ["2023-01-01", "2024-01-01"], "dates": True, "atoms": [1]},
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Bins(**given)


def test_a_domain_with_them_is_written_and_read() -> None:
    domain = Domain({"income": INCOME, "day": DAYS}, missing={"income": "?"})
    assert Domain.from_json(domain.to_json()) == domain
    damaged = domain.to_json().replace("2023-01-01", "2023-13-01")
    with pytest.raises(InvalidBytes):
        Domain.from_json(damaged)


def test_they_are_proposed_from_metadata() -> None:
    domain = propose_domain(
        {
            "income": {"edges": [0, 100, "inf"], "atoms": [0], "tail": 5000, "missing": "?"},
            "weight": {"type": "number", "minimum": 0, "maximum": 10, "bins": 2, "atoms": [0]},
            "code": {"type": "integer", "minimum": 1, "maximum": 3, "atoms": [9]},
            "day": {"type": "date", "minimum": date(2023, 1, 1), "maximum": "2023-12-31", "step": "quarter"},
        }
    )
    assert domain.sizes == (4, 3, 4, 4)
    assert domain.labels(0)[-2:] == ("0", "?")
    assert domain.labels(2) == ("1", "2", "3", "9")
    with pytest.raises(InvalidParameter, match="minimum and a maximum"):
        propose_domain({"day": {"type": "date"}})


def rows() -> tuple[Domain, dict[str, list[Any]]]:
    domain = Domain(
        {
            "income": Bins([0, 100, 1000, math.inf], atoms=[0], tail=10_000),
            "age": Bins([0, 18, 65, 120], whole=True),
            "day": DAYS,
            "ward": ["a", "b"],
            "visits": ["1", "2", "3"],
        },
        missing={"income": "?", "age": "unknown", "day": "never", "ward": "?", "visits": "?"},
    )
    rng = np.random.default_rng(5)
    count = 400
    columns: dict[str, list[Any]] = {
        "income": [0 if one < 0.5 else 90 / one for one in rng.random(count)],
        "age": rng.integers(0, 121, count).tolist(),
        "day": [date.fromordinal(date(2023, 1, 1).toordinal() + int(at)) for at in rng.integers(0, 365, count)],
        "ward": rng.choice(["a", "b", "?"], count).tolist(),
        "visits": rng.choice(["1", "2", "3", "?"], count).tolist(),
    }
    for name in ("income", "age", "day"):
        columns[name][::7] = [None] * len(columns[name][::7])
    return domain, columns


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_drawn_rows_are_read_back_to_the_same_categories(ending: str, tmp_path: Path) -> None:
    domain, columns = rows()
    records = Records.read(columns, domain)
    with SeededSource(1) as rng:
        drawn = records.numeric_columns(rng, markers=ending == "csv")
    path = tmp_path / f"drawn.{ending}"
    write_columns(path, drawn)
    again = Records.load(path, domain)
    assert (again.codes == records.codes).all()
    if ending == "csv":
        assert '"unknown"' in path.read_text()


def test_ninety_five_percent_zeros_stay() -> None:
    """10,000 rows at epsilon 1: 95 ± 2%, noise alone moves it by .002."""
    numpy_rng = np.random.default_rng(3)
    domain = Domain({"amount": Bins([0, 10, 100, 1000], atoms=[0]), "kind": ["x", "y"]})
    amounts = np.where(numpy_rng.random(10_000) < 0.95, 0.0, numpy_rng.uniform(1, 1000, 10_000))
    records = Records.read({"amount": amounts, "kind": numpy_rng.choice(["x", "y"], 10_000)}, domain)
    with SeededSource(2) as rng:
        learned = TreeNetwork(epsilon=1.0, delta=1e-9).fit(records, rng)
        drawn = sample(learned.network, 10_000, rng).numeric_columns(rng)["amount"]
    assert abs(drawn.count(0.0) / 10_000 - 0.95) < 0.02
