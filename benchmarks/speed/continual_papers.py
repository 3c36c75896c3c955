"""Slots per second of the papers' counters on one core, noise included: arrays of one-step slots, and slot by slot.

    python -m benchmarks.speed.continual_papers

Processor time of one thread, so that other work on the machine does not count; medians of five runs.
"""

import statistics
import time

import numpy as np

from benchmarks.verdicts import verdict
from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII

SLOTS = 1 << 19
RUNS = 5
SHARED = {"epsilon": 1.0, "one_step_ticks": True}
COUNTERS = {
    "binary": (BinaryMechanism(**SHARED, horizon=SLOTS), 2.0),
    "binary, slots of several steps": (BinaryMechanism(epsilon=1.0, horizon=SLOTS), 2.0),
    "event-level": (EventCounter(**SHARED, horizon=SLOTS), None),
    "simple I": (SimpleCounterI(**SHARED, horizon=SLOTS), None),
    "simple II": (SimpleCounterII(**SHARED), None),
    "hybrid, binary": (HybridMechanism(**SHARED), None),
    "window of 1,000": (WindowedSum(**SHARED, window=1000), None),
    "exponential decay": (DecayedSum(**SHARED, decay="exponential", rate=0.99), None),
    "polynomial decay": (DecayedSum(**SHARED, decay="polynomial", rate=1.0), None),
}


def array_rate(counter: object) -> float:
    values = np.ones(SLOTS, np.int64)
    seconds = []
    counter.start().tick_many(values[:1000])
    for _ in range(RUNS):
        monitor = counter.start()
        begin = time.thread_time()
        monitor.tick_many(values)
        seconds.append(time.thread_time() - begin)
    return SLOTS / statistics.median(seconds) / 1e6


def single_time(slots: int = 2000) -> float:
    monitor = BinaryMechanism(epsilon=1.0, horizon=SLOTS).start()
    begin = time.thread_time()
    for _ in range(slots):
        monitor.update([1])
        monitor.tick()
    return (time.thread_time() - begin) / slots * 1e6


def main() -> None:
    for name, (counter, target) in COUNTERS.items():
        rate = array_rate(counter)
        if target is None:
            print(f"{name:<64}  {rate:>6.2f} M slots/s")
        else:
            verdict(name, f"{rate:.2f} M slots/s", f">= {target:g}", rate >= target)
    print(f"{'binary, update and tick':<34}{single_time():>13.0f} µs")


if __name__ == "__main__":
    main()
