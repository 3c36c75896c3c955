"""Many groups: how long a query takes to start, to take a batch, to answer, and what a step costs while nothing comes.

    python -m benchmarks.speed.groups [groups ...]

Time must grow with the number of groups and not with its square: 10,000 groups start and answer within 3 s, and an idle
server, which stores the state at the end of every step, uses less than a tenth of a core.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.verdicts import verdict
from panstream.engine.config.config import Config, read_config
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.engine import Engine

STEPS = 5


def settings(groups: int, directory: Path) -> Config:
    keys = [f"k{number}" for number in range(groups)]
    query = {
        "name": "visits",
        "sql": "SELECT page, COUNT(*) FROM s GROUP BY page",
        "epsilon": 1.0,
        "releases": 10,
        "groups": {"page": keys},
    }
    stream = {"name": "s", "columns": {"page": "string"}}
    return read_config({"stream": stream, "query": [query], "store": {"directory": str(directory)}})


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()  # others may use the machine
    work()
    return time.process_time() - begun


def measure(groups: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        config = settings(groups, Path(place) / "state")
        engine: list[Engine] = []
        found = {"start": seconds(lambda: engine.append(Engine(config)))}
        with engine[0] as running:
            running.declare("http")
            chosen = QuerySelection.select_all(1000, groups=np.arange(1000) % groups)
            found["batch"] = seconds(
                lambda: running.apply(RowBatch(count=1000, queries={"visits": chosen}), commit=False)
            )
            found["answer"] = seconds(lambda: running.release("visits"))
            running.step()
            used = time.process_time()
            for _ in range(STEPS):
                running.step()
            found["idle core"] = (time.process_time() - used) / STEPS / running.step_length
        found["start again"] = seconds(lambda: Engine(config).close())
    return found


def main(sizes: list[int]) -> None:
    measure(10)  # kernels are compiled
    for groups in sizes:
        found = measure(groups)
        print(f"{groups:>7,} groups: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items()), flush=True)
    if sizes and sizes[-1] == 10_000:
        both = max(found[name] for name in ("start", "answer", "start again"))
        verdict("10,000 groups: seconds to start, or to answer", f"{both:.2f}", "3", both < 3)
        verdict(
            "10,000 groups: share of a core while idle", f"{found['idle core']:.3f}", "0.1", found["idle core"] < 0.1
        )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [1_000, 3_000, 10_000])
