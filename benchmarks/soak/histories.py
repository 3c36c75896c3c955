"""Thousands of histories of failures, each from one seed: a stream in one process, on two machines and on a cluster.

A history has simulated disks (what was not synced is lost, reordered and torn; the disk refuses), a simulated clock and
a simulated network, and processes that end at any moment. In the end nothing that was acknowledged is lost, nothing is
counted twice, no answer was drawn twice, and states that were rolled back were refused. The clock goes back by 3 s,
12 s, an hour and a day: no window is answered again, none is skipped.

    python -m benchmarks.soak.histories [histories] [first seed]

Of ten histories six are of one process, in one of them with batches that overtake each other, two of two machines and
two of a cluster. A history that goes wrong is printed with its seed: ``python -m benchmarks.soak.histories 1 SEED``
replays it. In the end a mistake is planted, machines that open an answer before its step is decided, and must be
caught.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.verdicts import verdict

MIX = ["one process"] * 5 + ["reordered batches"] + ["two machines"] * 2 + ["cluster"] * 2
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # the log of answers is a real file


def kinds() -> dict[str, Any]:
    """Return the kinds of histories by name."""
    from tests.simulated.history import History
    from tests.simulated.reordered import Reordered
    from tests.simulated.shards import Shards
    from tests.simulated.two_machines import TwoMachines

    return {"one process": History, "reordered batches": Reordered, "two machines": TwoMachines, "cluster": Shards}


def main(histories: int, first: int) -> int:
    wrong: Counter[str] = Counter()
    lived: Counter[str] = Counter()
    events: Counter[str] = Counter()
    begun = time.monotonic()
    known = kinds()
    for seed in range(first, first + histories):
        name = MIX[seed % len(MIX)]
        lived[name] += 1
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            try:
                events.update(known[name](seed, Path(directory)).run())
            except AssertionError as error:
                wrong[name] += 1
                print(f"{name}: {error}", flush=True)
    ends = sum(
        count for name, count in events.items() if name.split(": ")[-1] in ("kill", "power", "refuse", "refused")
    )
    print(f"{sum(lived.values()):,} histories in {time.monotonic() - begun:,.0f} s: {events['send']:,} batches sent,")
    print(f"{events['again']:,} sent again, {ends:,} ends of a process, {events['lost']:,} messages lost,")
    print(f"{events['noticed']:,} states rolled back and noticed, {events['set back']:,} clocks set back")
    for name, count in lived.items():
        verdict(f"{name}: lost, doubled or drawn twice, of {count:,}", f"{wrong[name]}", "0", not wrong[name])
    caught = catch_control()
    figure = "missed" if caught is None else f"seed {caught}"
    verdict("control: answers opened before the step is decided", figure, "caught", caught is not None)
    return int(bool(wrong) or caught is None)


def catch_control() -> int | None:
    """Return the first seed of two machines whose history shows the planted mistake, None if none of 500 does."""
    from tests.simulated.two_machines import TwoMachines, open_before_commit

    for seed in range(500):
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory, open_before_commit():
            try:
                TwoMachines(seed, Path(directory)).run()
            except AssertionError as error:
                if "machine a opened answer" in str(error):
                    return seed
    return None


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    sys.exit(main(given[0] if given else 10_000, given[1] if len(given) > 1 else 0))
