"""The table that compares panstream with the published estimators."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from panstream.algorithms.planning.density import accuracy, sample_size
from panstream.algorithms.planning.density_comparison import density_plan
from panstream.algorithms.planning.density_published import (
    DWORK,
    OPTBERN,
    ppds_capacity,
    quantised_laplace,
    roth_sample_size,
)
from panstream.algorithms.planning.tables import PlanTable
from panstream.errors import InvalidParameter


@pytest.fixture(scope="module")
def plan() -> PlanTable:
    return density_plan(1.0, 0.1, 0.05, universe=100_000)


def row(plan: PlanTable, name: str) -> Any:
    return next(row for row in plan.rows if row.name == name)


def test_rows_agree_with_the_planners(plan: PlanTable) -> None:
    assert plan.rows[0].name == "panstream"
    assert plan.rows[0].users == sample_size(1.0, 0.1, 0.05, 100_000)
    assert row(plan, "OptBern m*").users == OPTBERN.sample_size(0.5, 0.1, 0.05)
    assert row(plan, "Dwork m*").users == DWORK.sample_size(0.5, 0.1, 0.05)
    assert row(plan, "Dwork, Roth's m").users == roth_sample_size(0.5, 0.1, 0.05)
    assert row(plan, "PPDS").users == ppds_capacity(0.5, 0.1, 0.05, 100_000)
    assert len({row.name for row in plan.rows}) == len(plan.rows) == 10


def test_ours_needs_the_fewest_users_and_keeps_its_promise(plan: PlanTable) -> None:
    ours = plan.rows[0]
    assert ours.users is not None
    assert ours.true_loss == 1.0
    assert ours.id_bytes == 0
    assert all(other.true_loss > 1.0 for other in plan.rows[1:])
    assert all(other.users is not None and other.users > 5 * ours.users for other in plan.rows[1:])


def test_bytes(plan: PlanTable) -> None:
    ours, optbern, laplace, ppds = (row(plan, name) for name in ("panstream", "OptBern m*", "Laplace m*", "PPDS"))
    assert ours.users is not None and ours.state_bytes == math.ceil(ours.users / 8)
    assert optbern.users is not None and optbern.state_bytes == math.ceil(optbern.users / 8)
    assert optbern.id_bytes == 3 * optbern.users  # 17 bits an id
    assert laplace.users is not None and laplace.state_bytes == 8 * laplace.users
    assert ppds.users is not None and ppds.state_bytes == 3 * (ppds.users + 2) + 1
    assert quantised_laplace(4).bits_per_user == 2
    assert quantised_laplace(5).bits_per_user == 3


def test_more_users_than_exist(plan: PlanTable) -> None:
    roth = row(plan, "Dwork, Roth's m")
    assert not roth.feasible
    assert roth.note.startswith("needs more users than exist")
    small = density_plan(0.2, 0.05, 0.05, universe=10_000)
    assert not any(row.feasible for row in small.rows)
    assert small.rows[0].users is None
    assert f"{accuracy(0.2, 0.05, 10_000, 10_000):.3g}" in small.rows[0].note


def test_beyond_the_papers_range() -> None:
    plan = density_plan(5.0, 0.1, 0.05, universe=100_000)
    assert "not defined" in row(plan, "Dwork").note
    assert "proved for epsilon up to 1 only" in row(plan, "OptBern m*").note


def test_json_holds_everything(plan: PlanTable) -> None:
    data = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert [entry["name"] for entry in data["rows"]] == [row.name for row in plan.rows]
    assert data["universe"] == 100_000
    assert {entry["true_loss"] for entry in data["rows"] if entry["name"] in ("PPDS", "Laplace m*")} == {"inf"}
    json.dumps(density_plan(5.0, 0.001, 0.05, universe=1_000).to_json(), allow_nan=False)


def test_table_is_aligned(plan: PlanTable) -> None:
    title, blank, head, rule, *body, separator, bound = plan.table().splitlines()
    assert (separator, bound) == ("", plan.bounds[0])
    assert "Mir et al. 2011" in bound
    assert "epsilon 1 in total" in title
    assert blank == ""
    assert len(body) == len(plan.rows)
    end = head.index("users") + len("users")
    assert rule[end - 1] == "-" and rule[end] == " "
    for line, planned in zip(body, plan.rows, strict=True):
        assert line.startswith(planned.name)
        assert line[:end].endswith(f"{planned.users:,}")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 0.1, 0.05, 10), "epsilon"),
        ((1.0, 2.0, 0.05, 10), "alpha"),
        ((1.0, 0.1, 1.5, 10), "beta"),
        ((1.0, 0.1, 0.05, 0), "universe"),
    ],
)
def test_bad_parameters(arguments: tuple[float, float, float, int], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name} must be"):
        density_plan(*arguments)
