"""Build the network of six binary attributes and one ternary one whose entropy is 5.12 bits (Digalakis 2018, §3.7.2).

The thesis draws its network (Figure 3.3) but prints no tables, so one is made here by a rule that nobody could tune to
a method: a tree (a degree of 1 reaches the optimum there), every table a mixture of a plain base and of "the child
follows its parent" with one common strength, which bisection sets so that the entropy is 5.12 bits; then all
probabilities are rounded to four decimals. Run once; the file is kept from then on, and ``--check`` says whether it is
still the same.

    python tools/seven_attributes.py --check
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.serialization import to_json

TARGET = Path(__file__).parents[1] / "src" / "panstream" / "models" / "networks" / "seven_attributes.json"
ENTROPY = 5.12
PARENTS = ((), (0,), (0,), (1,), (1,), (2,), (2,))
ROOT = [0.6, 0.4]
BASES = {1: [0.7, 0.3], 2: [0.4, 0.6], 3: [0.55, 0.45], 4: [0.35, 0.65], 5: [0.65, 0.35], 6: [0.5, 0.3, 0.2]}
FOLLOWS = {1: [0, 1], 2: [1, 0], 3: [0, 1], 4: [0, 1], 5: [1, 0], 6: [0, 2]}  # the child's value for parent 0 and 1


def build(strength: float, decimals: int | None = None) -> BayesianNetwork:
    domain = Domain({f"X{at}": ["0", "1"] if at < 6 else ["0", "1", "2"] for at in range(7)})
    tables = [np.array(ROOT)]
    for child, base in BASES.items():
        table = (1 - strength) * np.array([base, base])
        for parent, value in enumerate(FOLLOWS[child]):
            table[parent, value] += strength
        if decimals is not None:
            table = table.round(decimals)
            table[:, 0] = (1 - table[:, 1:].sum(axis=1)).round(decimals)
        tables.append(table)
    return BayesianNetwork(domain, PARENTS, tuple(tables))


def solve() -> float:
    # The entropy falls as the strength grows
    low = 0.0
    high = 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if build(middle).entropy() > ENTROPY else (low, middle)
    return low


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    strength = solve()
    network = build(strength, decimals=4)
    about = {  # frozen with the file, from when this script was in another folder
        "what": "six binary attributes and one ternary one; made by experiments/seven_attributes.py and then frozen",
        "entropy_bits": round(network.entropy(), 4),
    }
    text = to_json(network, about)
    if arguments.parse_args().check:
        print("same as the file" if TARGET.read_text() == text else "DIFFERENT from the file")
    elif TARGET.exists():
        raise SystemExit(f"{TARGET.name} exists and is frozen")
    else:
        TARGET.write_text(text)
    print(f"strength {strength:.6f}, entropy {network.entropy():.6f} bits, of {np.log2(192):.2f} for a uniform one")


if __name__ == "__main__":
    main()
