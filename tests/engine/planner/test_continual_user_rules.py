"""A count of users at every tick, from rows to answers, with a restart in the middle."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.engine.runtime.engine import Engine
from panstream.engine.storage.release_log import Release
from tests.engine.runtime.streams import config, question, rows

# An answer misses by more than three half widths once in a million
USERS = 2000
HOURS = 12
WIDTHS = 3


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        ("event", {"horizon": HOURS}),
        ("user", {"horizon": HOURS}),
        ("user-window", {"horizon": HOURS, "user_window": "2 hours"}),
    ],
)
def test_counts_follow_the_truth_through_a_restart(unit: str, options: dict[str, Any], tmp_path: Path) -> None:
    sql = "SELECT COUNT(DISTINCT user) FROM s"
    asked = question("q", sql, universe=USERS, every="1 hour", unit=unit, **options)
    settings = config({**asked, "epsilon": 4.0}, time="at", directory=tmp_path)
    rng = np.random.default_rng(5)
    truth = []
    seen = np.zeros(USERS, bool)
    published: list[Release] = []
    for part in (range(5), range(5, HOURS)):
        with Engine(settings, publish=published.append) as engine:
            for hour in part:
                ids = rng.integers(0, USERS // 2, 200)
                seen[ids] = True
                truth.append(int(seen.sum()))
                engine.apply(rows(["q"], ids, times=np.full(200, 3600.0 * hour + 60.0)))
            if part.stop == HOURS:
                engine.finish()
    answers = {release.number: release.record for release in published}
    assert sorted(answers) == list(range(1, HOURS + 1))
    for number, record in answers.items():
        low, high = record["interval"]
        assert abs(record["value"] - truth[number - 1]) <= WIDTHS * (high - low) / 2 + 1
        assert record["claim"]["unit"] == unit
