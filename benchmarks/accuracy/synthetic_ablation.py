"""What limits a synthetic table: noise, the choice of pairs, the fit or the model; and peers on the same splits.

    PANSTREAM_DATA=<directory> python -m benchmarks.accuracy.synthetic_ablation --table adult --table salary \\
        [--epsilon 1.0] [--seeds 5] [--variant adaptive ...] [--rows 20000] [--csv FILE] [--peers DIR --limit 1200]

Each table is divided 80/20 by the seed, the same way for all variants. Figures compare balanced rows drawn from the
model with held-out rows: mean total variation distance of all two-way tables and of 200 three-way tables; bits of a
held-out row; CPU seconds of the fit. Spreads are standard deviations over the seeds.

Variants: "real" is the larger part itself. "tree", "pairs" (a mixture of all pairs) and "adaptive" are the learners.
From "adaptive" one thing changes at a time:

- "no noise": the same pairs as adaptive chose, measured exactly: what selection, fit and model cost alone;
- "best choices": the pair with the largest utility instead of a private choice: what private selection costs;
- "mixture": a mixture fitted to the same noisy tables: what the kind of model costs;
- "large model": junction trees of 2^19 cells instead of 2^17;
- "all, exact": all pairs without noise in one table of all cells, which is the exact fit of maximum entropy, where
  there are at most 2^18 cells: what a model of pairs can reach at best;
- "few ones", "many ones": half or one and a half times the share of the one-way tables;
- "small first", "large first": twice as many, or half as many, units at the start;
- "no shrinking": a pair's parameters are hardly shrunk.

Tables: adult and diabetes; salary, titanic, nist-taxi and temporal-match2 from PANSTREAM_DATA/tables; binary (18
simulated yes/no columns) and the other simulated tables of pair_model.py. No constant was set on nist-taxi and
temporal-match2. Peers are those of ``benchmarks.peers.synthesisers``, at the epsilon that makes the same promise.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.accuracy.pair_model import SIMULATED, real_tables, records_of
from benchmarks.accuracy.synthetic import data_folder, three_way
from benchmarks.peers.synthesisers import SMALLER, peer, smaller_epsilon

DELTA = 1e-9
CODED = ("salary", "titanic", "nist-taxi", "temporal-match2")
COLUMNS = ("two-way", "three-way", "bits", "cpu")


def coded_table(name):
    """Return an integer-coded table of PANSTREAM_DATA/tables."""
    folder = data_folder()
    if folder is None:
        sys.exit("PANSTREAM_DATA must name the directory of the data")
    sizes = json.loads((folder / "tables" / f"{name}-domain.json").read_text())
    path = folder / "tables" / f"{name}.csv.gz"
    header = np.loadtxt(path, delimiter=",", dtype=str, max_rows=1).tolist()
    columns = [header.index(column) for column in sizes]
    return records_of(
        np.loadtxt(path, delimiter=",", dtype=np.int64, skiprows=1, usecols=columns), list(sizes.values())
    )


def table(name):
    """Return the records of a table."""
    if name in CODED:
        return coded_table(name)
    if name in SIMULATED:
        return SIMULATED[name](np.random.default_rng(11 + list(SIMULATED).index(name)))
    tables = real_tables()
    if name.capitalize() not in tables:
        sys.exit(f"{name!r} is not among the data")
    return tables[name.capitalize()]


def refitted(learned, train, exact):
    """Return the model of the same pairs, from exact or from the noisy tables."""
    from panstream.models.networks import contingency
    from panstream.models.networks._log_linear_fit import LogLinearModel

    model = LogLinearModel(train.domain.sizes)
    for measured in learned.tables:
        counts = contingency(train, measured.attributes) if exact else measured.counts
        sigma = 0.5 if exact else max(measured.sigma, 0.5)
        model.estimates.add(measured.attributes, counts / len(train), (sigma / len(train)) ** 2)
    model.fit(150)
    return model.network(train.domain)


def exact_entropy(train):
    """Return the exact maximum-entropy model of all pairs without noise, or None if there are too many cells."""
    import itertools

    from panstream.models.networks import contingency
    from panstream.models.networks._log_linear_fit import LogLinearModel

    if train.domain.cells > 1 << 18:
        return None
    model = LogLinearModel(train.domain.sizes)
    for size in (1, 2):
        for attributes in itertools.combinations(range(len(train.domain)), size):
            shares = contingency(train, attributes) / len(train)
            model.estimates.add(attributes, shares, (0.5 / len(train)) ** 2)
    model.fit(150)
    return model.network(train.domain)


def changed(variant):
    """Return a context in which the adaptive learner has one thing changed."""
    from panstream.models.networks import _log_linear_fit, adaptive_model
    from panstream.models.networks.budget import ZcdpBudget

    def best(self, utilities, preference, rng):
        return int(np.argmax(utilities))

    patches = {
        "best choices": (ZcdpBudget, "_choose", best),
        "large model": (adaptive_model, "_LARGEST_MODEL", 1 << 19),
        "few ones": (adaptive_model, "_ONES", adaptive_model._ONES / 2),
        "many ones": (adaptive_model, "_ONES", adaptive_model._ONES * 3 / 2),
        "small first": (adaptive_model, "_FIRST_UNITS", 2 * adaptive_model._FIRST_UNITS),
        "large first": (adaptive_model, "_FIRST_UNITS", adaptive_model._FIRST_UNITS / 2),
        "no shrinking": (_log_linear_fit, "_TAUS", np.array([30.0])),
    }
    return mock.patch.object(*patches[variant]) if variant in patches else contextlib.nullcontext()


def model_of(variant, train, epsilon, rng):
    """Return the model of a variant, or None if it does not apply."""
    from panstream.models.networks import AdaptiveModel, PairModel, TreeNetwork
    from panstream.models.networks.pair_fit import fit_pair_model

    if variant == "all, exact":
        return exact_entropy(train)
    if variant in ("tree", "pairs"):
        learner = (TreeNetwork if variant == "tree" else PairModel)(epsilon=epsilon, delta=DELTA)
        return learner.fit(train, rng).network
    with changed(variant):
        learned = AdaptiveModel(epsilon=epsilon, delta=DELTA).fit(train, rng)
    if variant == "no noise":
        return refitted(learned, train, exact=True)
    if variant == "mixture":
        return fit_pair_model(train.domain, len(train), learned.tables, rng)
    return learned.network


VARIANTS = (
    "real",
    "tree",
    "pairs",
    "adaptive",
    "no noise",
    "best choices",
    "mixture",
    "large model",
    "all, exact",
    "few ones",
    "many ones",
    "small first",
    "large first",
    "no shrinking",
)


def figures(variant, train, test, epsilon, seed, given):
    """Return two-way and three-way distance, bits and CPU seconds; a text or None if there are none."""
    from panstream.models.networks import balanced_sample, compare
    from panstream.primitives.noise import SeededSource

    busy = time.process_time()
    bits = float("nan")
    if variant == "real":
        rows = train
    elif variant in SMALLER:
        rows = peer(variant, smaller_epsilon(variant, epsilon), train, given.peers, given.limit, given.aim_steps)
        if isinstance(rows, str):
            return rows
        busy = float("nan")
    else:
        with SeededSource(seed) as rng:
            network = model_of(variant, train, epsilon, rng)
            if network is None:
                return None
            busy = time.process_time() - busy
            rows = balanced_sample(network, len(train), rng)
        bits = network.cross_entropy(test)
    return compare(test, rows).mean_two_way, three_way(test, rows), bits, busy if variant != "real" else 0.0


def main():
    """Print a table in Markdown, and write CSV if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="append", required=True)
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variant", action="append", help=f"of {', '.join(VARIANTS)}, or a peer: {', '.join(SMALLER)}")
    parser.add_argument("--rows", type=int, help="use only so many rows of a table, drawn at random")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="directory of the peers' environments")
    parser.add_argument("--limit", type=int, default=1200, help="CPU seconds for one run of a peer")
    parser.add_argument("--aim-steps", type=int, default=1000)
    given = parser.parse_args()
    if unknown := set(given.variant or ()) - {*VARIANTS, *SMALLER}:
        parser.error(f"unknown variant: {', '.join(sorted(unknown))}")
    lines = []
    print("| table | epsilon | variant | two-way | three-way | bits | CPU s |\n" + "| --- " * 7 + "|")
    for name in given.table:
        records = table(name)
        if given.rows is not None and given.rows < len(records):
            records = records.take(np.random.default_rng(5).permutation(len(records))[: given.rows])
        for epsilon in given.epsilon or (0.1, 1.0, 4.0, 100.0):
            for variant in given.variant or VARIANTS:
                runs = []
                for seed in range(given.seeds):
                    print(f"{name}, {epsilon:g}, {variant}, seed {seed}   ", end="\r", file=sys.stderr, flush=True)
                    order = np.random.default_rng(1000 + seed).permutation(len(records))
                    cut = int(0.8 * len(records))
                    run = figures(variant, records.take(order[:cut]), records.take(order[cut:]), epsilon, seed, given)
                    if run is None or isinstance(run, str):
                        print(f"| {name} | {epsilon:g} | {variant} | {run or 'too many cells'} | | | |", flush=True)
                        break
                    runs.append(run)
                    lines.append((name, epsilon, variant, seed, *run))
                if len(runs) == given.seeds:
                    two, three, bits, cpu = np.mean(runs, axis=0)
                    spread = np.std(runs, axis=0)
                    print(
                        f"| {name} | {epsilon:g} | {variant} | {two:.4f} ± {spread[0]:.4f} | {three:.4f} ± "
                        f"{spread[1]:.4f} | {bits:.2f} | {cpu:.1f} |",
                        flush=True,
                    )
    if given.csv is not None:
        with given.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("table", "epsilon", "variant", "seed", *COLUMNS))
            writer.writerows(lines)


if __name__ == "__main__":
    main()
