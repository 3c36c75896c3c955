"""How many parents `PrivBayes` should have: two- and three-way distances by degree and score on simulated tables.

    PANSTREAM_DATA=<directory> python -m benchmarks.accuracy.privbayes_degree \\
        [--seeds 2] [--epsilon 1.0 ...] [--only NAME ...]

Pure epsilon throughout. "gain" is the default, a forest; "R" chooses parents greedily, with 1, 2 or 3 of them, or as
many as leave each table theta-useful ("R, useful": degree=None). Tables, splits and distances as in pair_model.py. Each
line ends with a public figure: records in an average cell of a family's table over the scale of its noise.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.accuracy.pair_model import SIMULATED, real_tables
from benchmarks.accuracy.synthetic import three_way

EPSILONS = (1.0, 10.0)
TABLES = ("binary", "mixed", "random tree", "classes", "two parents")


def learners(epsilon):
    """Return the forms of PrivBayes."""
    from panstream.models.networks import PrivBayes

    greedy = {f"R, {degree}": PrivBayes(epsilon=epsilon, score="R", degree=degree) for degree in (1, 2, 3)}
    return {"gain": PrivBayes(epsilon=epsilon), **greedy, "R, useful": PrivBayes(epsilon=epsilon, score="R")}


def visible(records, epsilon, degree):
    """Return records for each average cell over the noise scale of a table of ``degree`` + 1 average attributes."""
    sizes = records.domain.sizes
    cells = math.exp((degree + 1) * float(np.mean(np.log(sizes))))
    share = 0.45 / (len(sizes) - degree)
    return len(records) / cells / (2.0 / (epsilon * share))


def main():
    """Print a line per table, budget and form."""
    from panstream.models.networks import balanced_sample, compare
    from panstream.primitives.noise import SeededSource

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    given = parser.parse_args()
    makers = {name: (lambda records=records: records) for name, records in real_tables().items() if name == "Adult"}
    makers |= {
        name: (lambda name=name: SIMULATED[name](np.random.default_rng(11 + list(SIMULATED).index(name))))
        for name in TABLES
    }
    print(f"{'table':<24} {'eps':>5} {'form':<10} {'two-way':>8} {'three':>7} {'edges':>5} {'cell / noise':>12}")
    for name in given.only or makers:
        records = makers[name]()
        for epsilon in given.epsilon or EPSILONS:
            for form, learner in learners(epsilon).items():
                found = []
                edges = []
                for seed in range(given.seeds):
                    order = np.random.default_rng(1000 + seed).permutation(len(records))
                    cut = int(0.8 * len(records))
                    train = records.take(order[:cut])
                    test = records.take(order[cut:])
                    with SeededSource(seed) as rng:
                        network = learner.fit(train, rng).network
                        drawn = balanced_sample(network, len(train), rng)
                    found.append((compare(test, drawn).mean_two_way, three_way(test, drawn)))
                    edges.append(len(network.edges))
                two, three = np.mean(found, axis=0)
                degree = learner.degree if learner.degree is not None else 1
                print(
                    f"{name:<24} {epsilon:>5} {form:<10} {two:>8.4f} {three:>7.4f} {np.mean(edges):>5.1f} "
                    f"{visible(train, epsilon, degree):>12.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
