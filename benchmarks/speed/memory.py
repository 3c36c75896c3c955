"""Speed of the memory scan: 100,000 needles in six encodings, and in all; medians, processor time of one core.

Each child holds one sort of content; reading its memory through /proc is part of the figure.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.verdicts import verdict
from panstream.testing.memory import ENCODINGS, make_needles
from panstream.testing.memory._process import Target
from panstream.testing.memory.scanner import Searcher

NEEDLES = 100_000
MEGABYTES = 64
RUNS = 7
SIX = ("raw", "utf-16-le", "utf-32-le", "base64", "hex", "json-u")
TARGET = 200
CONTENTS = {
    "random bytes": "np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)",
    "hexadecimal text": "bytearray(np.random.default_rng(1).bytes(size // 2).hex().encode())",
    "floating point": "np.random.default_rng(1).normal(size=size // 8)",
    "an interpreter's objects": "[f'user {i}' for i in range(size // 64)]",
}
HOLDER = """
import numpy as np, sys
from panstream.testing.memory import allow_scan
allow_scan()
size = {size}
kept = {content}
print(flush=True)
sys.stdin.read()
"""


def searchers() -> dict[str, Searcher]:
    made = {}
    for name, kind, encodings in (
        ("six encodings", "string", SIX),
        ("all encodings", "string", ENCODINGS),
        ("integers", "int", ENCODINGS),
    ):
        start = time.process_time()
        searcher = made[name] = Searcher(1 << 24)
        searcher.add(enumerate(make_needles(NEEDLES, kind)), encodings)  # type: ignore[call-overload]
        searcher.prepare()
        seconds = time.process_time() - start
        print(f"{f'tables for {name}, {len(searcher):,} patterns':<62}{seconds:>8.1f} s")
    return made


def megabytes_a_second(pid: int, searcher: Searcher) -> float:
    with Target(pid) as target:
        ranges = [r for mapping in target.mappings() for r in target.ranges(mapping, 200, read_only=False)]
        start = time.process_time()
        for low, high in ranges:
            searcher.sweep(low, high, target.read, lambda addresses, patterns: None)
        return sum(high - low for low, high in ranges) / (time.process_time() - start) / 1e6


def main() -> int:
    failed = False
    made = searchers()
    for content, expression in CONTENTS.items():
        program = HOLDER.format(size=MEGABYTES << 20, content=expression)
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout
            child.stdout.readline()
            speeds: dict[str, list[float]] = {name: [] for name in made}
            for _ in range(RUNS):
                for name, searcher in made.items():
                    speeds[name].append(megabytes_a_second(child.pid, searcher))
            child.communicate("")
        for name, values in speeds.items():
            speed = statistics.median(values)
            aim = TARGET if name == "six encodings" else None
            what = f"{content}, {NEEDLES:,} needles, {name}"
            if aim is None:
                print(f"{what:<64}  {speed:>13.0f} MB/s")
            else:
                failed |= not verdict(what, f"{speed:.0f} MB/s", f">= {aim} MB/s", speed >= aim)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
