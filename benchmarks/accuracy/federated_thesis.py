"""The thesis's statistics at the noise of one curator: Adult dealt to 3, 10 and 30 holders, plain and by secure sums.

    PANSTREAM_DATA=<directory> python -m benchmarks.accuracy.federated_thesis [--seeds 5] [--epsilon 1.0]

Bits per held-out row under the network, mean over the seeds: noisy sufficient statistics (Digalakis 2018, Algorithm
3.5) as printed, with negative counts cut after summing, and by secure sums; the parameters of a given tree (Algorithm
3.4), plain and by secure sums; and the same from one holder of all rows with the same Gaussian noise. Plain forms are
pure epsilon, the others (epsilon, 1e-6); secure sums allow for a third of the holders to collude and for none
to drop out.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.accuracy.federated_pairs import DELTA, HOLDERS, federation
from benchmarks.accuracy.synthetic import adult


def curator(train, epsilon, parents):
    """Return what one holder of all rows, trusted by nobody, makes possible: both networks."""
    from panstream.models.federated import Federation, Holder
    from panstream.models.federated._questions import Table
    from panstream.models.networks import fit_tables, greedy
    from panstream.privacy.composition import zcdp_rho

    rho = zcdp_rho(epsilon, DELTA)
    alone = [Holder("one", train, epsilon=3 * epsilon, delta=DELTA)]
    federation = Federation(train.domain, alone)
    tables = federation.sums("gaussian", federation.all_tables(1, rho)).lookup()
    learned = fit_tables(train.domain, greedy(train.domain, tables, 1), tables)
    families = [tuple(sorted((*each, at))) for at, each in enumerate(parents) if each]
    asked = [Table(attributes=family, budget=rho / len(families)) for family in families]
    sums = Federation(train.domain, alone).sums("gaussian", asked)
    return learned, fit_tables(train.domain, parents, sums.lookup())


def main():
    """Print a line per method and number of holders."""
    from panstream.models.federated import DistributedParameters, NoisyStatistics
    from panstream.models.networks import chow_liu, exact_tables

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    train, test, full = adult()
    parents = chow_liu(train.domain, exact_tables(train))  # the structure is given, as Algorithm 3.4 supposes
    plain = {"epsilon": given.epsilon}
    secure = {"epsilon": given.epsilon, "delta": DELTA, "secure": True, "dropouts": 0}
    print(f"Adult, {len(train):,} rows{'' if full else ' (bundled sample)'}, epsilon {given.epsilon:g}; bits per row")
    print(f"{'holders':>7} {'method':<46} {'bits':>7} {'sd':>6}")
    for many in HOLDERS:
        for name, method in (
            ("statistics (3.5), cut by holders", NoisyStatistics(**plain, clip_at_holder=True)),
            ("statistics (3.5), cut after summing", NoisyStatistics(**plain)),
            ("statistics (3.5), secure sums", NoisyStatistics(**secure)),
            ("parameters (3.4), cut by holders", DistributedParameters(**plain, parents=parents, clip_at_holder=True)),
            ("parameters (3.4), cut after summing", DistributedParameters(**plain, parents=parents)),
            ("parameters (3.4), secure sums", DistributedParameters(**secure, parents=parents)),
        ):
            bits = []
            for _ in range(given.seeds):
                bits.append(method.run(federation(train, many, 3 * given.epsilon)).network.cross_entropy(test))
            print(f"{many:>7} {name:<46} {np.mean(bits):>7.2f} {np.std(bits, ddof=1):>6.2f}", flush=True)
    found = [[each.cross_entropy(test) for each in curator(train, given.epsilon, parents)] for _ in range(given.seeds)]
    for at, name in enumerate(("statistics (3.5)", "parameters (3.4)")):
        column = np.array(found)[:, at]
        print(f"{1:>7} {name + ', one curator':<46} {column.mean():>7.2f} {column.std(ddof=1):>6.2f}")


if __name__ == "__main__":
    main()
