"""Edges or independent columns: what the public division of the budget gains and costs on data it was set on.

    PANSTREAM_DATA=<directory with diabetic_data.csv.gz> python -m benchmarks.accuracy.network_plan --seeds 5

Subsets of the Diabetes records, random trees and the network of seven attributes, at several products of records and
epsilon. A figure is the mean total variation distance of all pairs from held-out records, over that of independent
columns with the same budget and seeds: below 1 edges gain, above 1 they cost, exactly 1 where the plan buys none. The
constants of panstream.models.networks.budget were set on such runs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
from pathlib import Path

import numpy as np

from panstream.algorithms.planning.tables import format_table
from panstream.models.networks import BayesianNetwork, Domain, PrivBayes, Records, TreeNetwork, pairwise, sample
from panstream.models.networks.budget import PureBudget, ZcdpBudget
from panstream.models.networks.serialization import seven_attributes
from panstream.papers.diabetes_table import prepare
from panstream.primitives.noise import SeededSource

DELTA = 1e-9
SUBSETS = ((13, 40_000), (10, 40_000), (16, 10_000), (13, 5_000), (20, 57_000))
TREES = ((12, 40_000), (15, 20_000), (12, 5_000))


def random_tree(attributes: int, seed: int) -> BayesianNetwork:
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(math.log(2), math.log(30), attributes)).astype(int)
    domain = Domain({f"a{at}": [str(code) for code in range(size)] for at, size in enumerate(sizes)})
    parents = ((), *((int(rng.integers(at)),) for at in range(1, attributes)))
    tables = [rng.dirichlet(np.full(sizes[0], 0.6))]
    for at in range(1, attributes):
        own = rng.dirichlet(np.full(sizes[at], 0.6))
        tie = rng.beta(1, 1.5)
        drawn = rng.dirichlet(np.full(sizes[at], 0.4), sizes[parents[at][0]])
        tables.append((1 - tie) * own + tie * drawn)
    return BayesianNetwork(domain, parents, tuple(tables))


def data() -> dict[str, tuple[Records, Records]]:
    """Records to learn from and to compare with, by name."""
    found: dict[str, tuple[Records, Records]] = {}
    patients = prepare(Path(os.environ["PANSTREAM_DATA"]) / "diabetic_data.csv.gz")
    rng = np.random.default_rng(5)
    for attributes, records in SUBSETS:
        part = patients.select(sorted(rng.choice(43, attributes, replace=False).tolist()))
        order = rng.permutation(len(part))
        name = f"Diabetes, {attributes} of 43, {records:,}"
        found[name] = part.take(order[:records]), part.take(order[records : records + max(2_000, records // 4)])
    for number, (attributes, records) in enumerate(TREES):
        rows = sample(random_tree(attributes, 100 + number), records + records // 3, SeededSource(number))
        found[f"random tree, {attributes}, {records:,}"] = (
            rows.take(range(records)),
            rows.take(range(records, len(rows))),
        )
    rows = sample(seven_attributes(), 50_000, SeededSource(9))
    found["seven attributes, 40,000"] = rows.take(range(40_000)), rows.take(range(40_000, 50_000))
    return found


def distance(network: BayesianNetwork, test: Records) -> float:
    """Mean total variation distance of all pairs of a forest from the records."""
    margins: dict[int, np.ndarray] = {}
    pairs: dict[tuple[int, int], np.ndarray] = {}
    for child in network.order:
        above = network.parents[child]
        margins[child] = margins[above[0]] @ network.tables[child] if above else network.tables[child]
        for other in [each for each in margins if each != child]:
            if not above:
                table = np.outer(margins[other], margins[child])
            elif other == above[0]:
                table = margins[other][:, None] * network.tables[child]
            else:
                table = pairs[other, above[0]] @ network.tables[child]
            pairs[other, child] = table
            pairs[child, other] = table.T
    truth = pairwise(test)
    return float(np.mean([np.abs(pairs[pair] - counts / len(test)).sum() / 2 for pair, counts in truth.items()]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Edges or independent columns.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--products", type=float, nargs="*", default=[1_000, 4_000, 10_000, 40_000])
    given = parser.parse_args()
    rows = []
    for (name, (train, test)), product in itertools.product(data().items(), given.products):
        epsilon = product / len(train)
        line = [name, f"{product:g}"]
        for kind in (PrivBayes, TreeNetwork):
            more = {} if kind is PrivBayes else {"delta": DELTA}
            budget = PureBudget(epsilon) if kind is PrivBayes else ZcdpBudget(epsilon, DELTA)
            means = []
            edges = 0.0
            for degree in (0, None):
                learner = kind(epsilon=epsilon, degree=degree, **more)
                seeds = range(given.seeds)
                networks = [learner.fit(train, SeededSource(seed)).network for seed in seeds]
                means.append(np.mean([distance(network, test) for network in networks]))
                edges = float(np.mean([len(network.edges) for network in networks]))
            blur = budget.noise_distance(len(train), train.domain.sizes)
            line += [f"{blur:.3f}", f"{means[0]:.4f}", f"{edges:.1f}", f"{means[1] / means[0]:.3f}"]
        rows.append(line)
        print(*line, sep="  ", flush=True)
    head = ["data, records", "n·epsilon", "noise", "independent", "edges", "PrivBayes", "noise", "independent", "edges"]
    print(format_table("Distance over that of independent columns", [*head, "tree"], rows, right=set(range(1, 10))))


if __name__ == "__main__":
    main()
