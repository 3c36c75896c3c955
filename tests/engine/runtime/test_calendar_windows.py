"""Windows that are units of the calendar: from the configuration to the answers."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import panstream
from panstream.engine.planner.person_period import person_share
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.intrusions import CopyTime
from panstream.errors import ConfigError, InvalidParameter
from panstream.primitives.time_grid import CALENDAR_SECONDS
from panstream.privacy.claim import Claim
from panstream.privacy.ledger import Ledger
from panstream.privacy.person_history import AskedQuery, worst_total
from tests.engine.runtime.streams import Clock, config, question, rows

BERLIN = ZoneInfo("Europe/Berlin")
DAY = 86_400.0


def moment(*local: int) -> float:
    return datetime(*local, tzinfo=BERLIN).timestamp()  # type: ignore[misc,arg-type]


def counts(engine: Engine) -> list[tuple[str, str, float]]:
    return [(*release.record["window"], release.record["value"]) for release in engine.log.history()]


@pytest.mark.parametrize("unit", ["day", "week", "month", "quarter", "year"])
def test_every_row_is_counted_in_its_local_period(unit: str) -> None:
    times = np.random.default_rng(7).uniform(moment(2024, 1, 1), moment(2026, 1, 1), 400)
    stream = config(
        question("n", "SELECT COUNT(*) FROM s", window=unit),
        time="at",
        lateness="3000 days",
        max_ahead="any",
        time_zone="Europe/Berlin",
    )
    with Engine(stream, zero_noise=True) as engine:
        for part in np.split(times, [1, 150, 390]):
            engine.apply(rows(["n"], count=part.size, times=part))
        engine.finish()
        answered = {start: value for start, _, value in counts(engine)}
    expected: dict[str, int] = {}
    for time in times.tolist():
        local = datetime.fromtimestamp(time, BERLIN).date()
        first = {
            "day": local,
            "week": date.fromordinal(local.toordinal() - local.weekday()),
            "month": local.replace(day=1),
            "quarter": local.replace(month=3 * ((local.month - 1) // 3) + 1, day=1),
            "year": local.replace(month=1, day=1),
        }[unit]
        start = datetime.combine(first, datetime.min.time(), BERLIN).astimezone(UTC)
        stamp = start.isoformat().replace("+00:00", "Z")
        expected[stamp] = expected.get(stamp, 0) + 1
    assert answered == expected


def test_a_late_row_waits_for_the_lateness_and_not_longer() -> None:
    stream = config(
        question("n", "SELECT COUNT(*) FROM s", window="day"),
        time="at",
        lateness="1 hour",
        max_ahead="any",
        time_zone="Europe/Berlin",
    )
    night = moment(2025, 3, 31)  # after a day of 23 hours
    with Engine(stream, zero_noise=True) as engine:
        times = [night - 23 * 3600, night + 3599, night - 1, night + 3600, night - 1]
        engine.apply(rows(["n"], count=5, times=times))
        engine.finish()
        assert [value for *_, value in counts(engine)] == [2, 2]
        assert counts(engine)[0][:2] == ("2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z")


def test_answers_every_month_count_everything_so_far() -> None:
    stream = config(
        question("n", "SELECT COUNT(*) FROM s", every="month", horizon=3),
        time="at",
        max_ahead="any",
        time_zone="Europe/Berlin",
    )
    with Engine(stream, zero_noise=True) as engine:
        times = [moment(2025, 1, 31, 23, 59), moment(2025, 2, 1), moment(2025, 3, 31, 23), moment(2025, 4, 1)]
        engine.apply(rows(["n"], count=4, times=times))
        released = [(release.record["end"], release.record["value"]) for release in engine.log.history()]
    assert released == [("2025-01-31T23:00:00Z", 1), ("2025-02-28T23:00:00Z", 2), ("2025-03-31T22:00:00Z", 3)]


def test_by_arrival_a_window_is_answered_at_local_midnight(tmp_path: Path) -> None:
    clock = Clock(moment(2025, 10, 26, 12))  # a day of 25 hours
    query = question("n", "SELECT COUNT(*) FROM s", window="day")
    stream = config(query, directory=tmp_path, time_zone="Europe/Berlin")
    with Engine(stream, clock=clock, zero_noise=True) as engine:
        engine.apply(rows(["n"], count=3))
        clock.now = moment(2025, 10, 26, 23, 59)
        engine.step()
        assert not counts(engine)
    with pytest.raises(ConfigError, match="calendar was changed while its state is stored"):
        Engine(config(query, directory=tmp_path, time_zone="Europe/London"), clock=clock, zero_noise=True)
    with Engine(stream, clock=clock, zero_noise=True) as engine:
        (outcome,) = engine.exposure.announce(CopyTime(just_now=True), live=False)
        assert outcome.window == "2025-10-25T22:00:00Z"
        clock.now = moment(2025, 10, 27)
        engine.step()
        assert counts(engine) == [("2025-10-25T22:00:00Z", "2025-10-26T23:00:00Z", 3)]


def test_claims_name_the_unit_and_totals_count_the_shortest_windows() -> None:
    query = question("n", "SELECT COUNT(DISTINCT user) FROM s", universe=100, window="day")
    stream = config(query, time="at", time_zone="Europe/Berlin")
    (plan,) = plan_all(stream)
    assert plan.claim.window == CALENDAR_SECONDS["day"]
    assert plan.claim.protects == "user-window of 1 calendar day"
    assert "per user and window of 1 calendar day (Europe/Berlin)" in plan.claim.note
    share = person_share(plan, stream.stream, 30 * DAY)
    assert share.windows == -(-30 * 24 // 23) + 1
    # 31 days of 30 may begin inside a day, and clocks be put forward meanwhile.
    asked = AskedQuery(share=share, window=23 * 3600.0, is_regular=False, begin=5000.0)
    assert AskedQuery.from_json(json.loads(json.dumps(asked.to_json()))) == asked
    (worst,) = worst_total([asked], 30 * DAY).shares
    assert worst.windows == share.windows
    regular = AskedQuery(share=share, window=DAY)
    assert "is_regular" not in regular.to_json()
    assert AskedQuery.from_json(regular.to_json()).is_regular


def test_a_ledger_counts_how_many_units_overlap_each_other() -> None:
    ledger = Ledger()
    day, month = (Claim(epsilon=1.0, unit="user-window", window=CALENDAR_SECONDS[unit]) for unit in ("day", "month"))
    ledger.charge("days", day)
    ledger.charge("month", month)
    assert ledger.total("user-window", window=CALENDAR_SECONDS["month"])[0] == 1 + 35
    assert ledger.total("user-window", window=CALENDAR_SECONDS["day"])[0] == 1 + 2
    assert ledger.total("user-window", window=DAY)[0] >= 2 + 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": "month", "every": "1 day"}, "is answered once, when it is over: leave out every"),
        ({"window": "7 days", "every": "day"}, "is answered once, when it is over: leave out every"),
        ({"window": "month", "releases": 2}, "a window is answered once"),
        ({"window": "fortnight"}, "or a period of the calendar: day, week"),
        ({"window": "2 months"}, "or a period of the calendar: day, week"),
        (
            {"window": "day", "bounded_by": "sender", "contributions": 3},
            "a fixed length of whole seconds: senders count their rows window by window",
        ),
    ],
)
def test_what_a_calendar_cannot_be_combined_with(settings: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, InvalidParameter), match=said):
        plan_all(config(question("n", "SELECT COUNT(*) FROM s", **settings), time="at"))


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[stream\] time_zone 'Berlin' is not known: give a name such as Europe"):
        config(question("n", "SELECT COUNT(*) FROM s"), time_zone="Berlin")


def test_a_table_by_local_month() -> None:
    times = [moment(2025, 3, 31, 23, 59), moment(2025, 4, 1), moment(2025, 4, 30, 23, 59)]
    table = pa.table({"at": pa.array([int(1e6 * time) for time in times], pa.timestamp("us"))})
    answer = panstream.query(
        table, "SELECT COUNT(*) FROM t", epsilon=500, window="month", time_zone="Europe/Berlin", ledger=False
    )
    assert [(row["start"], round(row["estimate"])) for row in answer] == [
        ("2025-03-01T00:00:00+01:00", 1),
        ("2025-04-01T00:00:00+02:00", 2),
    ]
