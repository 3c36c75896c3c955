"""Time to start and answer a website's questions with Gaussian noise, as a multiple of the time with Laplace noise.

python -m benchmarks.speed.gaussian_release [ROUNDS]

The questions are those of ``panstream web`` that can have either: counts, counts in groups, and quantiles. CPU time of
a window: start, one batch, one answer; the least of all rounds, both kinds in turns.
"""

from __future__ import annotations

import sys
import time

from panstream import ContinualCount, Monitor, RangeHistogram

GROUPS = 4
ROWS = 1_000


def _window(delta: float) -> float:
    algorithms = [ContinualCount(epsilon=0.2, delta=delta, horizon=1) for _ in range(3 + 2 * GROUPS)]
    started = time.process_time()
    for algorithm in algorithms:
        monitor: Monitor[object] = algorithm.start()
        monitor.update([1] * ROWS)
        monitor.tick()
    histogram = RangeHistogram(epsilon=1.0, delta=delta, horizon=1, lower=0.0, upper=10_000.0, quantile=0.5).start()
    histogram.update([float(value) for value in range(ROWS)])
    histogram.tick()
    return time.process_time() - started


def main() -> None:
    """Print both times and their ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for delta in (0.0, 1e-6):
        _window(delta)  # compiles kernels and fills caches
    times = [[_window(delta) for delta in (0.0, 1e-6)] for _ in range(rounds)]
    laplace, gaussian = (1e3 * min(column) for column in zip(*times, strict=True))
    print(f"Laplace {laplace:.2f} ms, Gaussian {gaussian:.2f} ms of CPU: {gaussian / laplace:.2f} times")


if __name__ == "__main__":
    main()
