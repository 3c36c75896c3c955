"""From questions to algorithms: the right one, an honest claim, and refusals that name the rule."""

from pathlib import Path
from typing import Any

import pytest

from panstream.engine.planner import query_plan
from panstream.engine.planner.accuracy import expected_errors
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.errors import ConfigError
from tests.engine.runtime.streams import COUNT, DISTINCT, SUM, config, question

VALUE = {"lower": 0, "upper": 10}


@pytest.mark.parametrize(
    ("sql", "settings", "algorithm", "unit"),
    [
        ("COUNT(DISTINCT user)", {"universe": 1000}, "OptBern", "user"),
        ("COUNT(DISTINCT user)", {}, "Bitmap", "user"),
        ("COUNT(DISTINCT user)", {"universe": 10**6, "expected": 100}, "ContinualDensity", "user"),
        ("COUNT(DISTINCT user)", {"universe": 10**6, "expected": 100, "releases": 2}, "Bitmap", "user"),
        ("COUNT(DISTINCT user)", {"universe": 1000, "every": "1 hour", "horizon": 3}, "OptBern", "user"),
        ("COUNT(DISTINCT user)", {"universe": 1000, "every": "1 hour", "horizon": 300}, "ContinualDensity", "user"),
        ("COUNT(DISTINCT user)", {"every": "1 hour", "horizon": 300, "unit": "event"}, "ContinualBitmap", "event"),
        (
            "DENSITY(user)",
            {"universe": 1000, "every": "1 hour", "horizon": 9, "unit": "event"},
            "ContinualDensity",
            "event",
        ),
        (
            "DENSITY(user)",
            {"universe": 1000, "every": "1 hour", "horizon": 99, "unit": "user-window", "user_window": "3 hours"},
            "ContinualDensity",
            "user-window",
        ),
        ("DENSITY(user)", {"universe": 1000, "expected": 50}, "ContinualDensity", "user"),
        ("DENSITY(user)", {"universe": 1000}, "OptBern", "user"),
        ("COUNT(*)", {}, "ContinualCount", "event"),
        ("COUNT(*)", {"contributions": 5}, "ContinualCount", "user"),
        ("SUM(value)", VALUE, "ContinualSum", "event"),
        ("AVG(value)", VALUE, "ContinualMean", "event"),
        ("VAR_POP(value)", VALUE, "ContinualVariance", "event"),
        ("STDDEV_POP(value)", VALUE, "ContinualVariance", "event"),
        ("MIN(value)", VALUE, "RangeHistogram", "event"),
        ("MAX(value)", VALUE, "RangeHistogram", "event"),
        ("QUANTILE_CONT(value, 0.9)", VALUE, "RangeHistogram", "event"),
        ("CROPPED_SUM(user, w, 5)", {"universe": 1000}, "BlockCounter", "user"),
        ("HEAVY_HITTERS(user, w, 5)", {"universe": 1000}, "HeavyHitterCount", "user"),
        ("INCIDENCE(user, w, 5)", {"universe": 1000, "upper": 9}, "ProfileSketch", "user"),
        ("CROPPED_SQUARES(user, w, 5)", {"expected": 1000, "upper": 9}, "ProfileSketch", "user"),
    ],
)
def test_every_question_has_its_algorithm(sql: str, settings: dict[str, Any], algorithm: str, unit: str) -> None:
    (plan,) = plan_all(config(question("q", f"SELECT {sql} FROM s", **settings)))
    assert type(plan.algorithm).__name__ == algorithm
    assert plan.claim.unit == unit
    assert plan.claim.epsilon == pytest.approx(1.0)
    assert plan.why
    assert plan.state_bytes > 0
    assert expected_errors(plan)[0][1] > 0
    assert all(error >= 0 for _, error in expected_errors(plan))


@pytest.mark.parametrize(
    ("sql", "settings", "refused"),
    [
        ("COUNT(*)", {"unit": "event"}, "unit can be chosen"),
        ("COUNT(DISTINCT user)", {"unit": "user-window"}, "needs user_window"),
        ("COUNT(DISTINCT user)", {"user_window": "1 hour"}, "user_window needs unit"),
        ("COUNT(DISTINCT user)", {"unit": "event", "announced": 1}, "covers one intrusion"),
        ("COUNT(DISTINCT user)", {"unit": "event", "weight": "w"}, "counter modulo a prime for ever"),
    ],
)
def test_units_that_cannot_be_had_are_refused(sql: str, settings: dict[str, Any], refused: str) -> None:
    stream = {"weight": settings.pop("weight")} if "weight" in settings else {}
    with pytest.raises(ConfigError, match=refused):
        plan_all(config(question("q", f"SELECT {sql} FROM s", **settings), **stream))


@pytest.mark.slow
def test_explain_compares_the_ways_at_three_ticks() -> None:
    asked = question(
        "q",
        "SELECT COUNT(DISTINCT user) FROM s",
        universe=20_000,
        every="1 hour",
        horizon=100,
        unit="event",
        expected=10_000,
    )
    (plan,) = plan_all(config(asked))
    assert "Chosen: a tree of 2 level(s) over the changes, priced at event level; 95% error 33" in plan.why
    assert "Rejected: 100 releases, each paid for; 1,677 at tick 1" in plan.why
    assert [at.split(",")[0] for at, _ in expected_errors(plan)] == ["at release 1", "at release 50", "at release 100"]


def test_heavy_hitters_below_zero_must_be_declared() -> None:
    """Where rows take away, users may end below 0, and would be taken for heavy unless it is said how far down."""
    heavy = question("h", "SELECT HEAVY_HITTERS(user, w, 5) FROM s", universe=1000)
    with pytest.raises(ConfigError, match="needs lower, the lowest net weight"):
        plan_all(config(heavy, weight="w"))
    (plan,) = plan_all(config({**heavy, "lower": -9, "upper": 40}, weight="w"))
    assert (plan.algorithm.min_net_weight, plan.algorithm.largest, plan.algorithm.readings) == (-9, 40, 14)
    (plan,) = plan_all(config(heavy))
    assert plan.algorithm.min_weight == 0
    assert "read at every weight" in plan.why
    for bound, message in (({"lower": 1}, "0 or below"), ({"lower": -0.5}, "whole"), ({"upper": 2.5}, "whole")):
        with pytest.raises(ConfigError, match=message):
            plan_all(config({**heavy, **bound}))
    (plan,) = plan_all(config(question("h", "SELECT HEAVY_HITTERS(user, w, 50) FROM s")))
    assert plan.algorithm.bracketed
    assert "an interval without a point, wider by the number of users from 38 to 62" in plan.why
    assert "buckets are counted" in plan.why


def test_weights_make_a_question_turnstile() -> None:
    (plan,) = plan_all(config(DISTINCT, weight="w"))
    assert type(plan.algorithm).__name__ == "LegendreCounter"
    (plan,) = plan_all(config(question("d", "SELECT DENSITY(user) FROM s", universe=9), weight="w"))
    assert plan.algorithm.deletions
    with pytest.raises(ConfigError, match=r"SUM\(w\) can"):
        plan_all(config(COUNT, weight="w"))


def test_announced_intrusions_are_paid_for_at_the_same_epsilon() -> None:
    for sql, settings in (("COUNT(DISTINCT user)", {"expected": 9999}), ("DENSITY(user)", {"universe": 9999})):
        plain, paid = plan_all(
            config(
                question("plain", f"SELECT {sql} FROM s", **settings),
                question("paid", f"SELECT {sql} FROM s", announced=2, **settings),
            )
        )
        assert plain.claim.epsilon == pytest.approx(paid.claim.epsilon)
        assert (plain.claim.intrusions.announced, paid.claim.intrusions.announced) == (0, 2)
        assert expected_errors(paid)[-1][1] > 2 * expected_errors(plain)[-1][1]
    with pytest.raises(ConfigError, match=r"announced must be in 0\.\.7"):
        config({**DISTINCT, "announced": 8})


@pytest.mark.parametrize(
    ("sql", "value"), [("COUNT(DISTINCT user)", 1), ("CROPPED_SUM(user, w, 2)", 2), ("HEAVY_HITTERS(user, w, 2)", 1)]
)
def test_where_rows_take_away_announced_intrusions_need_a_small_field(sql: str, value: int) -> None:
    asked = question("q", f"SELECT {sql} FROM s", universe=100_000, lower=0, upper=3, epsilon=4.0)
    paid, plain = (plan_all(config({**asked, "announced": many}, weight="w"))[0] for many in (1, 0))
    assert (paid.claim.epsilon, paid.claim.intrusions.announced) == (4.0, 1)
    assert (type(paid.algorithm).__name__, paid.algorithm.prime) == ("ProfileSketch", 7)
    assert "every announced intrusion multiplies the variance by " in paid.why
    at, error = expected_errors(paid)[-1]
    assert at.endswith("after 1 announced intrusion") and error > expected_errors(plain)[-1][1]
    monitor = paid.algorithm.start()
    monitor.update(range(50_000), weight=2)
    monitor.refresh()
    estimate = monitor.release()
    assert abs(estimate.value - value * 50_000) < 6 * estimate.standard_error < 0.5 * value * 100_000
    for name, refused in (("universe", "needs universe"), ("upper", "needs upper"), ("lower", "needs lower")):
        with pytest.raises(ConfigError, match=refused):
            plan_all(config({**{k: v for k, v in asked.items() if k != name}, "announced": 1}, weight="w"))


def test_groups_are_public_where_there_are_some() -> None:
    grouped = question("g", "SELECT region, COUNT(*) FROM s GROUP BY region", groups={"region": ["a"]})
    with_groups, without = plan_all(config(grouped, COUNT))
    assert "the declared groups" in with_groups.claim.public
    assert "the declared groups" not in without.claim.public


def test_groups_cost_what_one_user_can_touch() -> None:
    groups: dict[str, Any] = {"groups": {"region": ["a", "b", "c"]}}
    users = "SELECT COUNT(DISTINCT user) FROM s GROUP BY region"
    (plan,) = plan_all(config(question("q", users, universe=100, **groups)))
    assert plan.claim.epsilon == pytest.approx(3.0)
    (plan,) = plan_all(config(question("q", users, universe=100, groups_per_user=1, **groups)))
    assert plan.claim.epsilon == pytest.approx(1.0)
    (plan,) = plan_all(config(question("q", "SELECT COUNT(*) FROM s GROUP BY region", **groups)))
    assert plan.claim.epsilon == 1.0  # an event is in one group
    assert plan.groups == (("a",), ("b",), ("c",))


def test_windows_are_charged_per_user_and_window() -> None:
    (plan,) = plan_all(config({**DISTINCT, "window": "1 day"}))
    assert plan.claim.unit == "user-window"
    assert "w windows" in plan.claim.note
    (plan,) = plan_all(config({**COUNT, "window": "1 day", "every": "1 hour"}))
    assert plan.claim.unit == "event"
    assert plan.releases == 24


@pytest.mark.parametrize(
    "query",
    [
        COUNT,
        SUM,
        question("m", "SELECT AVG(value) FROM s", lower=0, upper=8),
        question("q", "SELECT MEDIAN(value) FROM s", lower=0, upper=8),
        {**DISTINCT, "unit": "event"},
    ],
)
def test_answers_need_no_end_where_none_of_them_is_paid_for(query: dict[str, Any]) -> None:
    asked = config({**query, "every": 10})
    (plan,) = plan_all(asked)
    assert plan.algorithm.horizon is None and plan.claim.releases == -1
    assert plan.is_unbounded and plan.planned_releases is None
    text = explain(asked).text()
    assert "every 10 seconds, without end" in text and "at release 1,000" in text


def test_rows_that_bring_their_own_times_need_an_end() -> None:
    """A first row from 1970 would ask for an answer for every slot since then."""
    with pytest.raises(ConfigError, match="every needs horizon.* own times"):
        plan_all(config({**COUNT, "every": 10}, time="at"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({**DISTINCT, "every": 10}, 'every needs horizon.* unless unit = "event"'),
        ({**DISTINCT, "every": 10, "unit": "user"}, "every needs horizon"),
        (question("c", "SELECT CROPPED_SUM(user, w, 2) FROM s", every=10), "every needs horizon"),
        ({**COUNT, "window": 10, "every": 3}, "whole number of every"),
        ({**COUNT, "window": 10, "releases": 2}, "answered once"),
        ({**SUM, "lower": None}, "needs lower and upper"),
        ({**SUM, "lower": 9, "upper": 8}, "lower must be below upper"),
        ({**DISTINCT, "universe": ["a", "b"]}, "universe does not fit"),
        (question("d", "SELECT DENSITY(user) FROM s"), "needs universe"),
        (question("c", "SELECT CROPPED_SUM(user, w, 1.5) FROM s"), "positive whole number"),
        (question("c", "SELECT INCIDENCE(user, w, 2) FROM s"), "needs upper, the largest net weight"),
        (question("c", "SELECT CROPPED_SQUARES(user, w, 9) FROM s", upper=4), "crop"),
    ],
)
def test_refusals_name_query_and_rule(query: dict[str, Any], message: str) -> None:
    given = {key: value for key, value in query.items() if value is not None}
    with pytest.raises(ConfigError, match=message) as refused:
        plan_all(config(given))
    assert query["name"] in str(refused.value)


def test_together_they_must_fit_the_budget() -> None:
    with pytest.raises(ConfigError, match=r"b: epsilon=1 more .* lower an epsilon"):
        plan_all(config({**DISTINCT, "name": "a"}, {**DISTINCT, "name": "b"}, budget={"user": 1.5}))
    plan_all(config({**DISTINCT, "name": "a"}, COUNT, SUM, budget={"event": 3.0}))
    with pytest.raises(ConfigError, match=r"sum: epsilon=1 more for one event .* the total to 3; the limit is 2"):
        plan_all(config({**DISTINCT, "name": "a"}, COUNT, SUM, budget={"event": 2.0}))


def test_places_follow_the_durability(tmp_path: Any) -> None:
    assert plan_all(config(COUNT, directory=tmp_path))[0].claim.locations == ("memory", "disk")
    assert plan_all(config(COUNT, directory=tmp_path, durability="interval"))[0].claim.locations == ("memory",)
    assert plan_all(config(COUNT))[0].claim.locations == ("memory",)


def test_zero_noise_says_so() -> None:
    (plan,) = plan_all(config(DISTINCT), zero_noise=True)
    assert not plan.claim.is_private


def test_explain_in_words_and_json() -> None:
    explained = explain(config(DISTINCT, {**COUNT, "window": "1 day"}, SUM, budget={"event": 4}))
    text = explained.text()
    data = explained.to_json()
    words = ("OptBern", "once per window of 1 day", "the schedule of releases", "epsilon 3, of 4 declared")
    for word in (*words, "not bounded by 'count', 'sum': nothing"):
        assert word in text
    assert [query["name"] for query in data["queries"]] == ["distinct", "count", "sum"]
    assert {total["unit"]: total["epsilon"] for total in data["totals"]} == {"user": "inf", "event": 3.0}


@pytest.mark.parametrize(
    ("query", "unit", "words"),
    [
        (COUNT, "user", "'count' protects one event, .* give 'count' contributions = the most rows of one user, or"),
        (COUNT, "user-window", "give 'count' contributions = the most rows of one user, or take user-window out"),
        (
            {**COUNT, "window": "1 day"},
            "user",
            "rows of one user in a window and limit user-window instead of user, or",
        ),
        (
            {**DISTINCT, "window": "1 day"},
            "user",
            "of 1 day, and nothing .*; limit user-window instead of user, or take",
        ),
        (DISTINCT, "slot", "'distinct' protects one user, .*; take slot out of"),
    ],
)
def test_a_budget_that_nothing_bounds_is_refused_with_the_way_out(query: Any, unit: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_all(config(query, budget={unit: 100.0}))


def test_contributions_and_windows_give_users_a_total() -> None:
    counted = {**COUNT, "contributions": 4}
    plan_all(config(DISTINCT, counted, budget={"user": 2.0, "event": 1.25, "user-window": 2.0}))
    daily, hourly = ({**DISTINCT, "name": span, "window": f"1 {span}"} for span in ("day", "hour"))
    explained = explain(config(daily, hourly, DISTINCT, budget={"event": 3.0}))
    totals = {total["protects"]: total["epsilon"] for total in explained.to_json()["totals"]}
    assert totals == {
        "event": 3.0,
        "user-window of 1 day": 1.0 + 24 * 1.0 + 1.0,
        "user-window of 1 hour": 3.0,
        "user": "inf",
    }


def test_one_event_falls_into_one_group() -> None:
    """Three groups cost a user three times, and an event once."""
    grouped = question(
        "by",
        "SELECT region, COUNT(DISTINCT user) FROM s GROUP BY region",
        groups={"region": ["north", "south", "east"]},
        expected=100,
    )
    totals = {total["unit"]: total["epsilon"] for total in explain(config(grouped, COUNT)).to_json()["totals"]}
    (plan, _) = plan_all(config(grouped, COUNT))
    groups = len(plan.groups)
    assert groups > 1
    assert plan.claim.epsilon == groups * 1.0
    assert totals["event"] == 2.0


def test_states_that_the_store_cannot_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From public parameters alone: nothing is allocated for a universe of 10^15."""
    huge = question("huge", "SELECT DENSITY(user) FROM s", universe=10**15)
    with pytest.raises(ConfigError, match=r"\[\[query\]\] huge: .* the store holds 68,718,428,\d\d\d at most"):
        plan_all(config(huge, directory=tmp_path))
    assert plan_all(config(huge)), "without a store there is no such limit"
    monkeypatch.setattr(query_plan, "MAX_BYTES", (1 << 20) + 400)
    small = question("small", "SELECT DENSITY(user) FROM s", universe=1000)
    assert plan_all(config(small, directory=tmp_path))
    for more in ({"announced": 3}, {"window": 60, "universe": 2000}, {"universe": 4000}):
        with pytest.raises(ConfigError, match="the store holds 400 at most"):
            plan_all(config({**small, **more}, directory=tmp_path))


@pytest.mark.parametrize(
    "query", [COUNT, DISTINCT, SUM, question("d", "SELECT COUNT(DISTINCT user) FROM s", announced=2)]
)
def test_the_largest_size_of_a_state_is_known_before_it_starts(query: dict[str, Any]) -> None:
    (plan,) = plan_all(config(query))
    monitor = plan.algorithm.start()
    for _ in range(query.get("announced", 0)):
        monitor.refresh(rows_since_copy=False)
    stored = len(monitor.to_bytes())
    assert stored - 2048 < plan.max_state_bytes(0.0) <= stored, "all but the header"


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "count": ("SELECT COUNT(*) FROM s", {}),
    "many counts": ("SELECT COUNT(*) FROM s", {"releases": 1000}),
    "ticks": ("SELECT COUNT(*) FROM s", {"every": 10}),
    "window": ("SELECT COUNT(*) FROM s", {"window": 10}),
    "rows of a user": ("SELECT COUNT(*) FROM s", {"contributions": 3}),
    "sum": ("SELECT SUM(value) FROM s", VALUE),
    "mean": ("SELECT AVG(value) FROM s", VALUE),
    "variance": ("SELECT VAR_POP(value) FROM s", VALUE),
    "median": ("SELECT QUANTILE_CONT(value, 0.5) FROM s", VALUE),
    "distinct": ("SELECT COUNT(DISTINCT user) FROM s", {"expected": 100, "releases": 100}),
    "announced": ("SELECT COUNT(DISTINCT user) FROM s", {"expected": 100, "announced": 2}),
    "distinct ticks": ("SELECT COUNT(DISTINCT user) FROM s", {"expected": 100, "every": 10, "horizon": 100}),
    "distinct events": ("SELECT COUNT(DISTINCT user) FROM s", {"expected": 100, "every": 10, "unit": "event"}),
    "density": ("SELECT DENSITY(user) FROM s", {"universe": 100, "releases": 100}),
    "cropped": ("SELECT CROPPED_SUM(user, w, 50) FROM s", {"universe": 100}),
    "heavy": ("SELECT HEAVY_HITTERS(user, w, 4) FROM s", {"universe": 100, "max_weight": 100}),
    "names": ("SELECT name, COUNT(*) FROM s GROUP BY name", {"max_item_bytes": 2, "memory": 300_000}),
    "names, delta": (
        "SELECT name, COUNT(*) FROM s GROUP BY name",
        {"max_item_bytes": 2, "memory": 300_000, "delta": 1e-6},
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:epsilon")
@pytest.mark.parametrize("epsilon", [1e-300, 1e-20, 1e-9, 1.0, 1000.0, 3000.0, 1e5, 1e300])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planned_can_be_started_and_answered(kind: str, epsilon: float) -> None:
    """Epsilon 100,000 was found valid by ``check``, and refused by ``run`` when a state was started."""
    sql, settings = KINDS[kind]
    try:
        (plan,) = plan_all(config(question("q", sql, **settings) | {"epsilon": epsilon}))
    except ConfigError:
        plan = None
    if plan is None:
        assert epsilon != 1.0
        return
    monitor = plan.algorithm.start()
    _ = monitor.tick() if plan.continual else monitor.release()
