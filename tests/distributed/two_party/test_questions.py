"""Which questions two machines answer, and which they refuse, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import read_config
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.errors import BudgetExhausted, ConfigError
from panstream.privacy.claim import Intrusions
from tests.distributed.two_party.test_steps import settings
from tests.engine.runtime.streams import rows

KNOWN = {"universe": 1000}
RANGE = {"lower": 0.0, "upper": 10.0}
WEEKS = {"window": "7 days", "expected": 5000, "horizon": 60}
CAPPED = {"bounded_by": "two_party", "contributions": 3}
OFFERED: list[tuple[str, dict[str, Any], str]] = [
    ("COUNT(DISTINCT user)", {}, "SharedDistinct"),
    ("COUNT(DISTINCT user)", KNOWN, "SharedDensity"),
    ("COUNT(DISTINCT user)", {"every": "1 minute", "horizon": 10}, "SharedContinualDistinct"),
    ("COUNT(DISTINCT user)", {"every": "1 minute", "horizon": 2}, "SharedDistinct"),
    ("COUNT(DISTINCT user)", {**KNOWN, "every": "1 minute", "horizon": 10}, "SharedContinualDensity"),
    ("DENSITY(user)", {**KNOWN, "releases": 10}, "SharedContinualDensity"),
    ("DENSITY(user)", {**KNOWN, "weight": "w", "releases": 40}, "SharedDensity"),
    ("DENSITY(user)", {**KNOWN, "weight": "w", "releases": 40, "changes": 2}, "SharedContinualDensity"),
    ("DENSITY(user)", {**KNOWN, "weight": "w", "releases": 40, "changes": 30}, "SharedDensity"),
    ("DENSITY(user)", KNOWN, "SharedDensity"),
    ("DENSITY(user)", {**KNOWN, "weight": "w"}, "SharedDensity"),
    ("COUNT(*)", {}, "SharedContinual"),
    ("COUNT(*)", {"every": "1 minute", "horizon": 10}, "SharedContinual"),
    ("SUM(value)", RANGE, "SharedContinual"),
    ("AVG(value)", RANGE, "SharedContinual"),
    ("VAR_POP(value)", RANGE, "SharedContinual"),
    ("STDDEV_SAMP(value)", RANGE, "SharedContinual"),
    ("QUANTILE_CONT(value, 0.5)", RANGE, "SharedContinual"),
    ("MIN(value)", RANGE, "SharedContinual"),
    ("CROPPED_SUM(user, w, 16)", KNOWN, "SharedCroppedSum"),
    ("HEAVY_HITTERS(user, w, 3)", KNOWN, "SharedHeavyCount"),
    ("COUNT(*)", {**KNOWN, **CAPPED}, "SharedCroppedSum"),
    ("COUNT(*)", {"expected": 500, **CAPPED}, "SharedCroppedSum"),
    ("SUM(value)", {**KNOWN, **RANGE, **CAPPED}, "SharedCappedSum"),
    ("SUM(value)", {"expected": 500, **RANGE, **CAPPED}, "SharedCappedSum"),
    ("HEAVY_HITTERS(user, w, 3)", {"expected": 500}, "SharedHeavyCount"),
    ("RETENTION(user, 2)", {**WEEKS, "epsilon": 4.0}, "SharedRetention"),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("COUNT(DISTINCT user)", {"weight": "w"}, "needs counters modulo a prime"),
    ("DENSITY(user)", {**KNOWN, "changes": 2}, "changes is for DENSITY"),
    ("COUNT(DISTINCT user)", {"changes": 2}, "changes is for DENSITY"),
    ("COUNT(DISTINCT user)", {"unit": "event"}, "not offered on two machines"),
    ("COUNT(DISTINCT user)", {"announced": 1}, "need no announced"),
    ("INCIDENCE(user, w, 3)", {**KNOWN, "upper": 9}, "is for one machine"),
    ("CROPPED_SUM(user, w, 100)", KNOWN, r"a last argument in 1\.\.64"),
    ("HEAVY_HITTERS(user, w, 3)", {}, "needs universe, the known users, or expected"),
    ("w, COUNT(*)", {"by": "w", "delta": 1e-6}, "unlisted names"),
    ("COUNT(*)", {"cells": "noisy"}, "is for bits of presence"),
    ("CROPPED_SUM(user, w, 16)", {**KNOWN, "cells": "noisy"}, "is for bits of presence"),
    ("COUNT(*)", CAPPED, "needs universe, the known users, or expected"),
    ("COUNT(*)", {**KNOWN, **CAPPED, "contributions": 65}, r"contributions in 1\.\.64"),
    ("SUM(value)", {**KNOWN, **RANGE, **CAPPED, "delta": 1e-6}, "delta is for one machine"),
    ("AVG(value)", {**RANGE, **CAPPED}, r'"two_party" also for COUNT\(\*\) and SUM'),
    ("SUM(value)", {**KNOWN, **RANGE, **CAPPED, "lower": -1.0}, "needs lower = 0"),
    ("SUM(value)", {**KNOWN, **CAPPED}, "needs lower = 0"),
    ("RETENTION(user, 2)", {**WEEKS, "cells": "noisy"}, "exact bits under its shares"),
    ("RETENTION(user, 2)", {**WEEKS, "horizon": None}, "needs horizon, the number of windows, on two machines"),
    ("RETENTION(user, 2)", {**WEEKS, "expected": 100}, "nothing about 100 users a window .* it needs about 160 at"),
    ("RETENTION(user, 2)", {**WEEKS, "weight": "w"}, "signed weights"),
    ("SKETCH(user)", {"window": "7 days", "expected": 5000}, "is not computed on two machines"),
    ("COUNT(*)", {"cells": "blurred"}, 'must be "exact" or "noisy"'),
]


def asked(directory: Path, what: str, given: dict[str, Any]) -> dict[str, Any]:
    """The whole configuration of one question; weight and cells belong to other sections."""
    more = dict(given)
    whole = settings(directory)
    weight = {"weight": more.pop("weight")} if "weight" in more else {}
    cells = {"cells": more.pop("cells")} if "cells" in more else {}
    by = f" GROUP BY {more.pop('by')}" if "by" in more else ""
    stream = {**whole["stream"], "columns": {"user": "int", "value": "double", "w": "int"}, **weight}
    query = {"name": "q", "sql": f"SELECT {what} FROM s{by}", "epsilon": 1.0, **more}
    query = {key: value for key, value in query.items() if value is not None}
    return {**whole, "stream": stream, "two_party": {**whole["two_party"], **cells}, "query": [query]}


@pytest.mark.parametrize(("what", "given", "statistic"), OFFERED)
def test_offered(tmp_path: Path, what: str, given: dict[str, Any], statistic: str) -> None:
    config = read_config(asked(tmp_path, what, given))
    (plan,) = plan_all(config)
    assert type(plan.algorithm).__name__ == statistic
    assert plan.claim.intrusions == Intrusions(unannounced=-1, machines=2)
    text = explain(config).text()
    assert "both machines in one epoch show the exact state" in text
    has_counterpart = not what.startswith("HEAVY") and given.get("bounded_by") != "two_party"
    assert "on one machine the error would be" in text or not has_counterpart
    assert "would be no bound" not in text


@pytest.mark.parametrize(("what", "given", "reason"), REFUSED)
def test_refused(tmp_path: Path, what: str, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        plan_all(read_config(asked(tmp_path, what, given)))


def test_noisy_cells(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """Explained, claimed, and answered: without noise the coins are certain, so answers are true."""
    given = {**KNOWN, "cells": "noisy", "weight": "w", "releases": 2}
    config = read_config(asked(tmp_path, "DENSITY(user)", given))
    (plan,) = plan_all(config)
    assert plan.claim.intrusions == Intrusions(unannounced=-1, machines=2, together=1)
    assert "both in one epoch once at most" in str(plan.claim)
    assert "both machines in one epoch are covered once" in explain(config).text()
    with open_engine(config, transport=transport, zero_noise=True) as engine:
        ids = np.arange(80)
        weights = np.ones(80, np.int64)
        engine.apply(rows(["q"], ids, weights=weights, producer="p", sequence=0))
        engine.apply(rows(["q"], ids[:30], weights=-weights[:30], producer="p", sequence=1))
        assert engine.release("q")[0].record["value"] == pytest.approx(50 / 1000)
    with open_engine(config, transport=transport, zero_noise=True) as engine:
        engine.apply(rows(["q"], ids[:5], weights=weights[:5], producer="p", sequence=2))
        assert engine.release("q")[0].record["value"] == pytest.approx(55 / 1000)


@pytest.mark.parametrize("known", [{}, KNOWN], ids=["cells", "universe"])
def test_live_counts_go_on_over_restarts(
    tmp_path: Path, transport: InProcessTwoPartyTransport, known: dict[str, Any]
) -> None:
    """Every answer counts all users so far, whichever process gives it; more answers than declared are refused."""
    config = read_config(asked(tmp_path, "COUNT(DISTINCT user)", {**known, "releases": 6}))
    (plan,) = plan_all(config)
    assert type(plan.algorithm).__name__.startswith("SharedContinual")
    assert "a tree of noise over the changes of their number" in explain(config).text()
    assert "at release 3" in explain(config).text()
    for number in range(6):
        with open_engine(config, transport=transport, zero_noise=True) as engine:
            engine.apply(rows(["q"], np.arange(50 * number, 50 * number + 90), producer="p", sequence=number))
            value = engine.release("q")[0].record["value"]
            assert value == pytest.approx(50 * number + 90, rel=1e-9 if known else 0.02)
            if number == 5:
                with pytest.raises(BudgetExhausted):
                    engine.release("q")


def test_two_machines_cap_every_users_rows_exactly(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """Over batches and restarts: the answer is the sum of min(rows, 3) over users, whoever sends how many."""
    config = read_config(asked(tmp_path, "COUNT(*)", {**KNOWN, **CAPPED, "releases": 2}))
    assert planned_person_total(config, plan_all(config)).shares[0].bounded_by == "two_party"
    batches = [np.repeat(np.arange(40), 2), np.arange(20), np.repeat(7, 500), np.repeat(np.arange(30, 60), 4)]
    for number, ids in enumerate(batches):
        with open_engine(config, transport=transport, zero_noise=True) as engine:
            engine.apply(rows(["q"], ids, producer="p", sequence=number))
            if number in (1, 3):
                exact = np.minimum(np.bincount(np.concatenate(batches[: number + 1])), 3).sum()
                assert engine.release("q")[0].record["value"] == exact


@pytest.mark.parametrize("known", [KNOWN, {"memory": 1 << 16}])
def test_two_machines_cap_every_users_sum_exactly(
    tmp_path: Path, transport: InProcessTwoPartyTransport, known: dict[str, Any]
) -> None:
    """Over batches and restarts, of listed users and of ids in cells, and rows whose value is missing do not count."""
    config = read_config(asked(tmp_path, "SUM(value)", {**known, **RANGE, **CAPPED}))
    (plan,) = plan_all(config)
    assert planned_person_total(config, [plan]).shares[0].bounded_by == "two_party"
    assert plan.claim.unit == "user"
    rng = np.random.default_rng(2)
    sums = np.zeros(60)
    for number in range(3):
        ids = rng.integers(0, 60, 150)
        values = rng.uniform(-2.0, 12.0, 150)
        usable = np.arange(150) % 50 > 0
        values[~usable] = np.nan
        np.add.at(sums, ids[usable], np.floor(np.clip(values[usable], 0.0, 10.0) + 0.5))
        with open_engine(config, transport=transport, zero_noise=True) as engine:
            engine.apply(rows(["q"], ids, values=values, producer="p", sequence=number))
            if number == 2:
                assert engine.release("q")[0].record["value"] == pytest.approx(np.minimum(sums, 30.0).sum())


def test_two_machines_cap_every_users_rows_in_each_group(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """A user with many rows counts at most three times in every group; the claim adds up the groups."""
    given = {**KNOWN, **CAPPED, "by": "w", "groups": {"w": [1, 2]}}
    config = read_config(asked(tmp_path, "w, COUNT(*)", given))
    (plan,) = plan_all(config)
    assert plan.claim.epsilon == pytest.approx(2.0)
    ids = np.concatenate([np.repeat(np.arange(40), 2), np.repeat(5, 100), np.repeat(np.arange(10, 30), 4)])
    groups = np.arange(ids.size) % 2
    with open_engine(config, transport=transport, zero_noise=True) as engine:
        half = ids.size // 2
        for number, part in enumerate((slice(None, half), slice(half, None))):
            engine.apply(rows(["q"], ids[part], groups=groups[part], producer="p", sequence=number))
        answers = [release.record["value"] for release in engine.release("q")]
    exact = [np.minimum(np.bincount(ids[groups == group]), 3).sum() for group in (0, 1)]
    assert answers == exact


def test_retention_over_restarts_of_all_three(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """Windows stay as shares, and the numbers of earlier answers too: a front end that starts again knows neither."""
    settings = asked(tmp_path, "RETENTION(user, 2)", {"window": "7 days", "expected": 2000, "horizon": 6})
    settings["stream"] |= {"time": "at", "columns": {**settings["stream"]["columns"], "at": "timestamp"}}
    config = read_config(settings)
    for week in range(5):
        ids = np.arange(2000) + 1200 * week
        with open_engine(config, transport=transport, zero_noise=True) as engine:
            for number, part in enumerate((ids[:900], ids[900:])):
                times = np.full(part.size, (2900.5 + week) * 604_800.0)
                engine.apply(rows(["q"], part, times=times, producer="p", sequence=2 * week + number))
            records = {name: list(engine.log.history(f"q.{name}")) for name in ("users", "new", "back_1", "back_2")}
    values = {name: [release.record["value"] for release in releases] for name, releases in records.items()}
    assert values["users"] == pytest.approx([2000] * 4, rel=0.02)
    assert values["new"][1:] == pytest.approx([1200] * 3, rel=0.05)
    assert values["back_1"][1:] == pytest.approx([800] * 3, rel=0.05)
    assert values["back_2"][2:] == pytest.approx([0, 0], abs=40)
    assert records["back_2"][-1].record["lag"] == 2


def test_a_cap_needs_two_machines(tmp_path: Path) -> None:
    whole = asked(tmp_path, "COUNT(*)", {**KNOWN, **CAPPED})
    del whole["stream"]["machines"], whole["two_party"]
    with pytest.raises(ConfigError, match="needs \\[stream\\] machines"):
        read_config(whole)
