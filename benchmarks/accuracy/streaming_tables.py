"""Networks from a stream without rows: how far off, and how many records a table of two attributes needs.

    PANSTREAM_DATA=<directory> python -m benchmarks.accuracy.streaming_tables [--seeds 3]

First, Adult as a stream of 12 equal slots: mean total variation distance of all two-way tables between rows drawn from
the model after the last tick and held-out rows, beside PairModel, whose holder keeps the rows until the end. Then, from
the closed form, how many records make the noise alone move the table of a pair by .05 in total variation, by the number
of attributes and of their categories.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.accuracy.synthetic import adult

DELTA = 1e-9
SLOTS = 12


def streamed(train, epsilon, horizon):
    """Return the model after all slots."""
    from panstream.models.networks import StreamingTables

    algorithm = StreamingTables(domain=train.domain, epsilon=epsilon, delta=DELTA, horizon=horizon)
    monitor = algorithm.start()
    for part in train.split(horizon):
        monitor.update(part)
        monitor.tick()
    return algorithm.model(monitor.state)


def measure(seeds):
    """Print distances of stream and kept rows."""
    from panstream.models.networks import PairModel, StreamingTables, balanced_sample, compare
    from panstream.primitives.noise import NoiseSource

    train, test, full = adult()
    print(f"Adult, {len(train.domain)} attributes, {len(train):,} records{'' if full else ' (bundled sample)'}")
    print(f"{'epsilon':>7} {'holder':<26} {'two-way':>8} {'bits':>7} {'CPU s':>6} {'needed for .05':>14}")
    for epsilon in (0.1, 1.0):
        for name, learn, needed in (
            ("keeps the rows", lambda epsilon=epsilon: PairModel(epsilon=epsilon, delta=DELTA).fit(train), None),
            ("stream, 1 slot", lambda epsilon=epsilon: streamed(train, epsilon, 1), 1),
            (f"stream, {SLOTS} slots", lambda epsilon=epsilon: streamed(train, epsilon, SLOTS), SLOTS),
        ):
            found = []
            begun = time.process_time()
            for _ in range(seeds):
                network = learn().network
                with NoiseSource() as rng:
                    drawn = balanced_sample(network, len(train), rng)
                found.append((compare(test, drawn).mean_two_way, network.cross_entropy(test)))
            distance, bits = np.mean(found, axis=0)
            seconds = (time.process_time() - begun) / seeds
            records = ""
            if needed:
                given = StreamingTables(domain=train.domain, epsilon=epsilon, delta=DELTA, horizon=needed)
                records = f"{given.records_needed(0.05):,.0f}"
            print(f"{epsilon:>7g} {name:<26} {distance:>8.4f} {bits:>7.2f} {seconds:>6.1f} {records:>14}", flush=True)


def needed():
    """Print a table of sizes from the closed form."""
    from panstream.models.networks import Domain, StreamingTables

    print(f"\nrecords for a distance of .05 by noise alone, delta {DELTA:g}: 1 slot / {SLOTS} slots / 365 slots")
    print(f"{'attributes':>10} {'categories':>10} {'cells':>9} {'epsilon 0.1':>32} {'epsilon 1':>30}")
    for attributes in (5, 10, 20, 40, 80):
        for categories in (2, 5, 10, 20):
            domain = Domain({f"x{at}": [str(code) for code in range(categories)] for at in range(attributes)})
            texts = []
            for epsilon in (0.1, 1.0):
                tables = [
                    StreamingTables(domain=domain, epsilon=epsilon, delta=DELTA, horizon=horizon)
                    for horizon in (1, SLOTS, 365)
                ]
                texts.append(" / ".join(f"{_rounded(each.records_needed(0.05)):,}" for each in tables))
            print(f"{attributes:>10} {categories:>10} {tables[0].width:>9,} {texts[0]:>32} {texts[1]:>30}")


def _rounded(number):
    return int(float(f"{number:.2g}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    needed()
    measure(parser.parse_args().seeds)
