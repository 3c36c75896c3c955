"""Statements of several answers: what they share, what they cost, what they are stored with, and their intervals."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.core.estimate import Estimate
from panstream.engine.config.config import Config, read_config
from panstream.engine.reporting.explain import explain
from panstream.engine.rows.evaluator import Evaluator, Expression, NumericColumn
from panstream.engine.runtime.engine import Engine
from panstream.engine.sql.formulas import Arithmetic, Constant, Formula, StateValue, estimate_formula
from panstream.errors import ConfigError, NotSupported
from panstream.privacy.claim import Claim

COLUMNS = {"who": "string", "page": "string", "x": "double", "note": "string"}
CLAIM = Claim(epsilon=1.0, unit="event")
ALPHA = 1e-6  # of every test here that draws


def config(sql: str, base: Path = Path(), **more: Any) -> Config:
    stream = {"name": "s", "columns": COLUMNS, "user": "who", **more.pop("stream", {})}
    top = {key: more.pop(key) for key in ("lookup", "store") if key in more}
    query = {"name": "q", "sql": sql, "epsilon": 1.0, **more}
    return read_config({"stream": stream, "query": [query], **top}, base=base)


def test_the_split_is_stated_and_adds_up() -> None:
    found = config("SELECT COUNT(*) AS n, AVG(x) AS mean, COUNT(DISTINCT who) AS users FROM s", lower=0, upper=1)
    assert [query.name for query in found.queries] == ["q.n", "q.mean", "q.users"]
    assert sum(query.epsilon for query in found.queries) <= 1.0
    text = explain(found).text()
    assert text.count("epsilon of 'q' is split evenly between 3 states") == 3
    assert (
        "one state, with all of epsilon, answers n, mean"
        in explain(config("SELECT COUNT(x) AS n, AVG(x) AS mean FROM s", lower=0, upper=1)).text()
    )


def test_one_row_that_fails_in_two_expressions_fails_no_batch() -> None:
    """What expressions have in common stays inside their TRY."""
    sql = [Expression(sql=f"CAST(note AS INTEGER) > {number}") for number in (1, 2)]
    values = Expression(sql="CAST(note AS INTEGER) + 1", kind="value")
    batch = pa.RecordBatch.from_pydict({"note": ["3", "no number", "2"]})
    one, two, number = Evaluator([*sql, values], COLUMNS, user="who").evaluate(batch)
    assert isinstance(number, NumericColumn)
    assert (one.tolist(), two.tolist()) == ([True, False, True], [True, False, False])  # type: ignore[union-attr]
    assert number.valid.tolist() == [True, False, True]


def test_a_changed_meaning_needs_a_new_name(tmp_path: Path) -> None:
    table = tmp_path / "pages.csv"
    table.write_text("page,topic\na,one\nb,two\n")
    lookup = {"pages": {"file": "pages.csv", "key": "page"}}
    store = {"directory": "state"}
    joined = "SELECT COUNT(*) FROM s JOIN pages USING (page) WHERE topic = 'one'"
    derived = "SELECT COUNT(*) FROM s WHERE part = 'a'"
    with Engine(config(joined, tmp_path, lookup=lookup, store=store)):
        pass
    table.write_text("page,topic\na,one\nb,one\n")
    with pytest.raises(ConfigError, match="meaning was changed"):
        Engine(config(joined, tmp_path, lookup=lookup, store=store))
    store = {"directory": "other"}
    with Engine(config(derived, tmp_path, stream={"derived": {"part": "left(page, 1)"}}, store=store)):
        pass
    with pytest.raises(ConfigError, match="meaning was changed"):
        Engine(config(derived, tmp_path, stream={"derived": {"part": "right(page, 1)"}}, store=store))


@pytest.mark.parametrize(
    ("rows", "words"),
    [("page,n\na,1\na,2\n", "unique key"), ("page,n\n,1\nb,2\n", "unique key"), ("other,n\na,1\n", "does not have")],
)
def test_lookup_tables_have_unique_keys(rows: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pages.csv").write_text(rows)
    with pytest.raises(ConfigError, match=words):
        config("SELECT COUNT(*) FROM s", tmp_path, lookup={"pages": {"file": "pages.csv", "key": "page"}})
    with pytest.raises(ConfigError, match="no such file"):
        config("SELECT COUNT(*) FROM s", tmp_path, lookup={"pages": {"file": "none.csv", "key": "page"}})


@pytest.mark.parametrize(
    ("derived", "words"),
    [
        ({"page": "x"}, "a column of this name is declared"),
        ({"a": "random()"}, "noise is added for you"),
        ({"a": "upper(who)"}, "holds ids"),
        ({"a": "upper(b)", "b": "lower(a)"}, "not declared"),
        ({"a": "SUM(x)"}, "cannot be nested"),
        ({"a": 3}, "must be an expression"),
    ],
)
def test_derived_columns_are_functions_of_one_row(derived: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config("SELECT COUNT(*) FROM s", stream={"derived": derived})


@pytest.mark.slow
def test_moments_of_one_state_cover_what_they_name() -> None:
    """Count, sum and mean of 400 states each: 95% intervals, judged by a binomial law at ALPHA."""
    runs = 400
    values = np.repeat([2.0, 8.0, 5.0, 9.5], 250)
    truth = {"count": values.size, "sum": values.sum(), "mean": values.mean()}
    for kind in (ContinualMean, ContinualVariance):
        algorithm = kind(epsilon=1.0, horizon=4, lower=-4.0, upper=12.0)
        missed = dict.fromkeys(truth, 0)
        for _ in range(runs):
            monitor = algorithm.start()
            monitor.update(values)
            monitor.tick()
            for what, true in truth.items():
                low, high = algorithm.at(monitor.state, what).interval()
                missed[what] += not low <= true <= high
        most = runs * 0.05 + 5.2 * math.sqrt(runs * 0.05 * 0.95) + 5
        assert all(count <= most for count in missed.values()), (kind, missed, most)


def test_what_a_state_does_not_hold_is_refused() -> None:
    monitor = ContinualMean(epsilon=1.0, horizon=1, lower=0.0, upper=1.0).start()
    with pytest.raises(NotSupported):
        monitor.algorithm.at(monitor.state, "count")  # type: ignore[attr-defined]
    monitor.tick()
    with pytest.raises(NotSupported, match="has no var_pop"):
        monitor.algorithm.at(monitor.state, "var_pop")  # type: ignore[attr-defined]


def estimates(**ends: tuple[float, float]) -> dict[Any, Estimate]:
    return {
        name: Estimate(
            value=sum(pair) / 2, standard_error=1.0, claim=CLAIM, interval_rule=lambda level, pair=pair: pair
        )  # type: ignore[misc]
        for name, pair in ends.items()
    }


@pytest.mark.parametrize(
    ("formula", "ends"),
    [
        (Arithmetic("+", StateValue("a"), StateValue("b")), (3.0, 7.0)),
        (Arithmetic("-", StateValue("a"), StateValue("b")), (-3.0, 1.0)),
        (Arithmetic("*", StateValue("a"), Constant(-2.0)), (-6.0, -2.0)),
        (Arithmetic("/", StateValue("a"), StateValue("b")), (0.25, 1.5)),
        (Arithmetic("/", StateValue("a"), StateValue("c")), (-math.inf, math.inf)),
        (Arithmetic("/", Constant(1.0), StateValue("d")), (0.5, math.inf)),
    ],
)
def test_intervals_of_formulas(formula: Formula, ends: tuple[float, float]) -> None:
    found = estimates(a=(1.0, 3.0), b=(2.0, 4.0), c=(-1.0, 1.0), d=(0.0, 2.0))
    assert estimate_formula(formula, found.__getitem__, "it").interval() == pytest.approx(ends)


def test_formulas_are_computed_from_unclipped_numbers() -> None:
    """Two counts of 0, each clipped: their sum is unbiased, and only what is printed of it is moved to 0."""
    found = {
        name: Estimate.clipped(value, (0.0, math.inf), standard_error=1.0, claim=CLAIM)
        for name, value in {"a": -3.0, "b": 1.0, "c": 2.0}.items()
    }
    both = estimate_formula(Arithmetic("+", StateValue("a"), StateValue("b")), found.__getitem__, "sum")
    assert (both.value, both.unclipped) == (0.0, -2.0)
    assert (both.standard_error, both.interval()[0]) == (pytest.approx(2.0), 0.0)
    ratio = estimate_formula(Arithmetic("/", StateValue("a"), StateValue("c")), found.__getitem__, "ratio")
    assert (ratio.value, ratio.unclipped) == (0.0, -1.5)
    difference = estimate_formula(Arithmetic("-", StateValue("a"), StateValue("b")), found.__getitem__, "difference")
    assert difference.value == difference.unclipped == -4.0


def test_levels_are_split_between_the_numbers_that_are_read() -> None:
    asked: list[float] = []

    def rule(level: float) -> tuple[float, float]:
        asked.append(level)
        return 1.0, 2.0

    one = Estimate(value=1.5, standard_error=0.3, claim=CLAIM, interval_rule=rule)
    both = estimate_formula(Arithmetic("/", StateValue("a"), StateValue("b")), lambda what: one, "ratio")
    both.interval(0.9)
    assert asked == pytest.approx([0.95, 0.95])
    assert both.standard_error == pytest.approx(0.3 / 1.5 * 2, rel=1e-4)  # the most that it can be
