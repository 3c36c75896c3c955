"""How long the planner takes to divide a person's budget between the questions about a website.

The questions are those of `panstream web` without an epsilon, with declared bounds on rows; seconds are of CPU time.

    python -m benchmarks.speed.person_plan [VISITORS]
"""

from __future__ import annotations

import sys
import time
from typing import Any

from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.presets._website_queries import STREAM, WebsiteQuery, columns_of, website_queries

MOST_ROWS = {"1 hour": 4, "1 day": 8, "7 days": 12, "30 days": 18}  # of one visitor
USEFUL = {
    "visitors": 0.25,
    "visitor groups": 0.025,
    "count": 0.25,
    "groups": 0.025,
    "names": 0.05,
}  # of the size; milliseconds for times
REPEATS = 3


def table(query: WebsiteQuery, visitors: int) -> dict[str, Any]:
    """Return the [[query]] of a question, with all its windows."""
    sizes = [query.size(visitors, window) for window in query.windows]
    keys = {key: value for key, value in query.keys.items() if key != "delta"}
    keys |= {"name": query.name, "sql": query.sql, "window": list(query.windows), "expected": sizes}
    keys["target_error"] = [250.0 if query.kind == "timing" else USEFUL[query.kind] * size for size in sizes]
    if not query.kind.startswith("visitor"):
        one = query.daily <= 1.0
        keys["contributions"] = [1 if one else MOST_ROWS[window] for window in query.windows]
    return keys


def config(visitors: int, person: float, delta: float) -> Config:
    """Return the configuration of a site of so many daily visitors."""
    stream = {"name": STREAM, "user": "visitor", "columns": columns_of("beacon")}
    stream["budget"] = {"person": person, "delta": delta}
    asked = [query for query in website_queries() if query.name != "visitors per hour"]
    return read_config({"stream": stream, "query": [table(query, visitors) for query in asked]})


def main() -> None:
    """Print one line for every budget."""
    visitors = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for person, delta in ((4.0, 0.0), (2.0, 1e-6), (4.0, 1e-6), (16.0, 0.0)):
        seconds = []
        for _ in range(REPEATS):
            undivided = config(visitors, person, delta)
            begin = time.process_time()
            divided = divide_person_budget(undivided)
            seconds.append(time.process_time() - begin)
        used = planned_person_total(divided, plan_all(divided)).epsilon
        print(
            f"person {person:g}, delta {delta:g}: {min(seconds):.2f} s; {len(divided.queries)} of "
            f"{len(undivided.queries)} questions, epsilon {used:.4f}"
        )


if __name__ == "__main__":
    main()
