"""Frequent names: what is found, what is wrong, whether intervals hold together, and how fast it is.

``python -m benchmarks.accuracy.names [accuracy|large|speed|settings] [--runs 20]``. Streams: Zipf 1.1 over generated
URLs, and any files given as ``NAME=PATH`` of one name a line (``.gz`` too), counted as they are. ``settings`` repeats
the rule by which the decoder's constants were set: on simulated paths, titles and codes, which no other part of this
file uses, of all settings whose slowest decoding takes at most 10 s of CPU time the one that misses fewest names above
X; of equal ones the one that lists most.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from panstream import Monitor, TopItems
from panstream.algorithms.heavy_hitters._decoder import SearchOptions, decode
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.algorithms.heavy_hitters.short_names import threshold_of
from panstream.primitives.noise import SeededSource

Stream = dict[str, int]


def words(rng: np.random.Generator, count: int, letters: str) -> list[str]:
    return ["".join(rng.choice(list(letters), rng.integers(2, 9))) for _ in range(count)]


def zipf(names: list[str], events: int, power: float, rng: np.random.Generator) -> Stream:
    weights = 1 / np.arange(1, len(names) + 1) ** power
    counts = rng.multinomial(events, weights / weights.sum())
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def urls(count: int, rng: np.random.Generator) -> list[str]:
    """Return different paths: a section, one or two words, often a number."""
    parts = words(rng, 3000, "bcdfglmnprstvaeiou")
    sections = words(rng, 40, "bcdfglmnprstvaeiou")
    found: dict[str, None] = {}
    while len(found) < count:
        path = "/" + sections[rng.integers(40)]
        for _ in range(rng.integers(1, 3)):
            path += "/" + parts[rng.integers(3000)]
        path += f"/{rng.integers(1, 100_000)}" if rng.random() < 0.6 else ""
        path += ".html" if rng.random() < 0.4 else ""
        found[path[:64]] = None
    return list(found)


def simulated(kind: str, count: int, rng: np.random.Generator) -> list[str]:
    parts = words(rng, 2000, "aeiourstnlmdk")
    found: dict[str, None] = {}
    while len(found) < count:
        some = [parts[int(2000 * rng.random() ** 2)] for _ in range(rng.integers(2, 6))]
        name = {"paths": "/" + "/".join(some), "titles": " ".join(some).title()}.get(kind)
        found[(name or f"{chr(65 + rng.integers(26))}-{rng.integers(10**6):06}")[:48]] = None
    return list(found)


def state(algorithm: FrequentItems, stream: Stream, seed: int) -> Monitor:
    monitor = Monitor(algorithm, rng=SeededSource(seed))
    keys = pa.array(list(stream))
    codes = np.repeat(np.arange(len(stream), dtype=np.int32), list(stream.values()))
    for start in range(0, codes.size, 5_000_000):
        monitor.update(pa.DictionaryArray.from_arrays(pa.array(codes[start : start + 5_000_000]), keys))
    return monitor


def accuracy(name: str, stream: Stream, max_item_bytes: int, runs: int, repeats: int) -> None:
    question = TopItems(1.0, delta=1e-6, max_item_bytes=max_item_bytes, expected=float(sum(stream.values())))
    algorithm = replace(question.algorithm, repeats=repeats)
    sizes = {key: len(key.encode()) for key in stream}
    thresholds = {size: threshold_of(algorithm, size) for size in set(sizes.values()) if size <= max_item_bytes}
    crowded = question.listing_threshold / question.algorithm.listing_threshold
    order = sorted(stream, key=lambda key: -stream[key])
    fits = [key for key in order if sizes[key] <= max_item_bytes]
    heavy = [key for key in fits if stream[key] >= crowded * thresholds[sizes[key]]]
    three = [key for key in heavy if stream[key] >= 3 * crowded * thresholds[sizes[key]]]
    short = [key for key in fits if 4 * sizes[key] <= max_item_bytes]
    was_listed = Counter[str]()
    top = wrong = joint = found = triple = 0
    slowest = 0.0
    named = []
    for run in range(runs):
        monitor = state(replace(algorithm, key=run), stream, run)
        begun = time.process_time()
        answer = monitor.release()
        listed = {item.name: item for item in answer.items}  # type: ignore[attr-defined]
        slowest = max(slowest, time.process_time() - begun)
        whole = {key: item for key, item in listed.items() if not key.endswith("…")}
        top += sum(key in listed for key in order[:20])
        wrong += sum(key not in stream for key in whole)
        joint += all(item.interval[0] <= stream.get(key, 0) <= item.interval[1] for key, item in whole.items())
        found += sum(key in listed for key in heavy)
        was_listed.update(key for key in fits if key in listed)
        triple += sum(key in listed for key in three)
        named.append(len(listed))
    print(
        f"{name:<16} X {question.listing_threshold:4.0f}  top 20 {top / 20 / runs:.3f}  named {np.mean(named):.0f}  "
        "wrong a "
        f"run {wrong / runs:.2f}  lists that hold together {joint}/{runs}  at least X {found}/{len(heavy) * runs}  at "
        f"least 3X {triple}/{len(three) * runs}  95% from {events_for(fits, stream, was_listed, runs)} events, up to "
        f"{max_item_bytes // 4} bytes from {events_for(short, stream, was_listed, runs)}  release and decoding at most "
        f"{slowest:.1f} s",
        flush=True,
    )


def events_for(names: list[str], stream: Stream, was_listed: Counter[str], runs: int) -> int:
    """Return the smallest number of events such that 95% of all names with at least as many were listed."""
    missed = total = smallest = 0
    for name in names:  # the most frequent first
        missed += runs - was_listed[name]
        total += runs
        smallest = stream[name] if missed <= 0.05 * total else smallest
    return smallest


def speed() -> None:
    rng = np.random.default_rng(1)
    names = pa.array(urls(100_000, rng))
    weights = 1 / np.arange(1, 100_001) ** 1.1
    column = names.take(pa.array(rng.choice(100_000, 2_000_000, p=weights / weights.sum())))
    algorithm = FrequentItems(epsilon=1.0, delta=1e-6)
    monitor = algorithm.start()
    monitor.update(column.slice(0, 1000))
    best = 0.0
    for _ in range(3):
        begun = time.process_time()
        for start in range(0, len(column), 200_000):
            monitor.update(column.slice(start, 200_000))
        best = max(best, len(column) / (time.process_time() - begun) / 1e6)
    print(f"micro-batches of 200,000: {best:.1f} M events/s")
    begun = time.process_time()
    fresh = algorithm.start()
    print(f"start, {fresh.state.levels.size + fresh.state.rows.size:,} cells: {time.process_time() - begun:.3f} s")


def settings(runs: int) -> None:
    efforts = [
        SearchOptions(stages=stages, lowest=lowest, beam=beam)
        for stages, lowest, beam in product(
            [(30.0, 8.0, 3.5, 2.5), (30.0, 5.0, 2.5), (30.0, 8.0, 3.0)], (-10.0, -12.0), (10_000, 20_000)
        )
    ]
    results = {effort: [0, 0, 0.0] for effort in efforts}
    kinds = [
        ("paths", 1.1, 300_000, 48),
        ("titles", 1.3, 1_000_000, 48),
        ("codes", 1.05, 300_000, 12),
        ("paths", 1.05, 3_000_000, 48),
    ]
    for (kind, power, events, max_item_bytes), run in product(kinds, range(runs)):
        rng = np.random.default_rng(100 + run)
        stream = zipf(simulated(kind, 30_000, rng), events, power, rng)
        algorithm = TopItems(1.0, delta=1e-6, max_item_bytes=max_item_bytes, expected=events, key=run).algorithm
        held = state(algorithm, stream, run).state
        algorithm._add_noise(held.levels, held.rows, SeededSource(run + 1))
        level, row = (float(np.sqrt(2 * law.variance)) for law in algorithm.laws)
        tables = ReleasedTables(
            levels=held.levels,
            rows=held.rows,
            bits=4,
            seed=algorithm._seed,
            laplace=False,
            level_sd=level,
            row_sd=row,
            repeats=algorithm.repeats,
        )
        for effort, result in results.items():
            begun = time.process_time()
            names = {name.decode() for name, _ in decode(tables, effort).names}
            result[2] = max(result[2], time.process_time() - begun)
            result[0] += sum(count >= algorithm.listing_threshold and key not in names for key, count in stream.items())
            result[1] += len(names)
    for effort, (missed, named, slowest) in results.items():
        print(f"{effort}: missed {missed}, named {named}, slowest {slowest:.1f} s")
    allowed = [effort for effort in efforts if results[effort][2] <= 10]
    print("chosen:", min(allowed, key=lambda effort: (results[effort][0], -results[effort][1])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="accuracy, large, speed, settings (all but the last), or NAME=PATH")
    parser.add_argument("--repeats", type=int, default=4, help="levels of each symbol of short names: 1, 2 or 4")
    parser.add_argument("--runs", type=int, default=20, help="of each stream")
    given = parser.parse_args()
    files = [each.split("=", 1) for each in given.what if "=" in each]
    parts = [each for each in given.what if "=" not in each] or ["accuracy", "large", "speed"]
    if unknown := set(parts) - {"accuracy", "large", "speed", "settings"}:
        parser.error(f"what may be accuracy, large, speed, settings or NAME=PATH, not {', '.join(sorted(unknown))}")
    runs = given.runs
    rng = np.random.default_rng(11)
    if "accuracy" in parts:
        for name, path in files:
            opened = gzip.open if path.endswith(".gz") else open
            with opened(Path(path), "rt", encoding="utf-8", errors="replace") as file:
                stream = dict(Counter(line.rstrip("\n") for line in file if line.strip()))
            max_item_bytes = min(max(len(key.encode()) for key in stream), 64)
            accuracy(name, stream, max_item_bytes, runs, given.repeats)
        names = urls(100_000, rng)
        for events in (100_000, 1_000_000):
            accuracy(f"Zipf {events:.0e}", zipf(names, events, 1.1, rng), 64, runs, given.repeats)
    if "large" in parts:
        accuracy("Zipf 1e7", zipf(urls(1_000_000, rng), 10_000_000, 1.1, rng), 64, runs, given.repeats)
    if "speed" in parts:
        speed()
    if "settings" in parts:
        settings(2)


if __name__ == "__main__":
    main()
