"""A synthetic copy of a census table, with any one row of the original protected from whoever has the copy.

Learns a tree network from 8,000 real rows at epsilon = 1, delta = 1e-9, and writes as many synthetic rows. Run it:

    python examples/synthetic_table.py [OUT.csv]
"""

import csv
import sys
from pathlib import Path

from panstream.core import NoiseSource
from panstream.models.networks import Domain, Records, TreeNetwork, balanced_sample, compare

DATA = Path(__file__).parent / "data"


def main() -> None:
    domain = Domain.load(DATA / "adult-domain.toml")  # declared, never read from the rows
    rows = Records.load(DATA / "adult.csv.gz", domain)

    learned = TreeNetwork(epsilon=1.0, delta=1e-9).fit(rows)
    with NoiseSource() as rng:
        synthetic = balanced_sample(learned.network, learned.records, rng)
        columns = synthetic.numeric_columns(rng)
    print(learned.claim, end="\n\n")

    names = domain.names
    print("edges:", ", ".join(f"{names[parent]} → {names[child]}" for parent, child in learned.network.edges))
    print("first synthetic row:", ", ".join(f"{name} {values[0]}" for name, values in columns.items()))

    # Exact figures: fine here, where the rows are public; with real secrets they are not for publication.
    found = compare(rows, synthetic)
    print(f"distance of one-way marginals {found.mean_one_way:.4f}, of two-way marginals {found.mean_two_way:.4f}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
        print(f"written to {sys.argv[1]}")


if __name__ == "__main__":
    main()
