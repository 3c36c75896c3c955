"""What other makers of synthetic tables scale their noise for, shown in their own code.

    python -m benchmarks.peers.peer_promises DIR    # DIR by benchmarks.accuracy.synthetic --install-peers --peers DIR

Each peer's package is imported in its own environment, DIR/<name>/bin/python, and asked on tables that differ in one
record; noise is recorded instead of drawn. benchmarks/peers/synthesisers.py draws the conclusions.
"""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path

ROWS = 39_073  # as many as Adult has to learn from


def dpmm() -> None:
    """Print the parts of MST's rho, how far its score moves, and how far the score of PrivBayes moves."""
    import dpmm.models.base.mechanisms.mechanism as mechanism
    import numpy as np
    import pandas as pd
    from dpmm.models.base.mbi import Dataset, Domain
    from dpmm.models.mst import MST, compute_weight
    from dpmm.models.priv_bayes import MI, ExponentialMechanism

    noise = []
    choices = []

    def recorded(sigma, size=None):
        noise.append(float(sigma))
        return np.zeros(size)

    mechanism.gaussian_noise = recorded
    random = np.random.RandomState(0)
    columns = [f"column {number}" for number in range(13)]
    frame = pd.DataFrame({column: random.randint(0, 3, 500) for column in columns})
    learner = MST(epsilon=1.0, delta=1e-9, domain=dict.fromkeys(columns, 3), n_jobs=1, n_iters=10, prng=random)
    choose = learner.exponential_mechanism

    def watched(scores, epsilon, sensitivity):
        choices.append((epsilon, sensitivity))
        return choose(scores, epsilon, sensitivity)

    learner.exponential_mechanism = watched
    learner.fit(frame)
    one_way = noise[: len(columns)]
    two_way = noise[len(columns) :]
    print("dpmm MST, parts of rho for a record added or removed (a table moves by 1 in L2, a score by 1):")
    print(f"  one-way tables {sum(0.5 / sigma**2 for sigma in one_way) / learner.rho:.4f}")
    print(f"  two-way tables {sum(0.5 / sigma**2 for sigma in two_way) / learner.rho:.4f} (at most a third)")
    rates = sum(epsilon**2 / 8 for epsilon, _ in choices)
    print(f"  choices {rates / learner.rho:.4f}, for a sensitivity of {max(bound for _, bound in choices)}")

    class Flat:
        """An estimate that fits the first table."""

        def project(self, _):
            return Dataset(first, Domain(["a", "b"], [2, 2])).project(["a", "b"])

    first = pd.DataFrame({"a": [0] * 50 + [1] * 50, "b": [0, 1] * 50})
    replaced = first.copy()
    replaced.loc[0, "a"] = 1
    for what, table in (("removed", first.iloc[1:]), ("replaced", replaced)):
        weight = compute_weight(Flat(), Dataset(table, Domain(["a", "b"], [2, 2])), ("a", "b"))[2]
        print(f"  one record {what}: a score moves by {weight:.0f}")

    def rare(count):
        column = [1] * count + [0] * (ROWS - count)
        table = pd.DataFrame({"a": column, "b": column, "c": np.arange(ROWS) % 2})
        return Dataset(table, Domain(["a", "b", "c"], [2, 2, 2]))

    def chances(table):
        score = MI(table)
        return ExponentialMechanism(table, epsilon=0.5)([score(("a",), "b"), score(("c",), "b")])

    none = rare(0)
    single = rare(1)
    scale = ExponentialMechanism(none, epsilon=0.5)
    loss = math.log(chances(none)[1] / chances(single)[1])
    print(f"dpmm PrivBayes, {ROWS:,} rows, two equal columns that are constant but for one record:")
    print(f"  score {MI(single)(('a',), 'b'):.4f}; that record replaced: {MI(none)(('a',), 'b'):.4f}")
    print(f"  scaled for a sensitivity of {scale.delta * 0.5 / 3:.6f}; a choice at {0.5 / 3:.3f} loses {loss:.0f}")


def datasynth() -> None:
    """Print the scale of DataSynthesizer's tables and the unit of its scores."""
    import pandas as pd
    from DataSynthesizer.lib.PrivBayes import laplace_noise_parameter
    from DataSynthesizer.lib.utils import mutual_information

    scale = laplace_noise_parameter(1, 13, ROWS, 0.5)
    print("DataSynthesizer, 13 attributes, one parent, epsilon 0.5 for tables:")
    print(
        f"  Laplace scale {scale:.0f} for 12 tables: each may move by {scale * 0.5 / 12:.0f} in L1, a record added or "
        "removed"
    )
    column = pd.Series(["x", "y"] * 50)
    print(f"  score of two equal coins {mutual_information(column, column.to_frame()):.4f}: nats, as its sensitivity")


def dpart() -> None:
    """Print the scale of dpart's tables, the unit of its scores, and whether it keeps given categories."""
    import dpart.methods.probability_tensor as tensor
    import pandas as pd
    from dpart.engines import PrivBayes
    from dpart.utils.dependencies.selection import mi_sensitivity, score_candidate

    warnings.simplefilter("ignore")
    moved = []
    draw = tensor.laplace_mechanism

    def watched(counts, sensitivity, epsilon):
        moved.append(sensitivity)
        return draw(counts, sensitivity=sensitivity, epsilon=epsilon)

    tensor.laplace_mechanism = watched
    frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": ["x", "y"] * 50})
    learner = PrivBayes(epsilon=1.0, bounds={"a": {"categories": ["x", "y", "z"]}}, n_parents=1)
    learner.fit(frame)
    print(f"dpart: tables may move by {max(moved)} in L1, a record replaced")
    before = pd.DataFrame({"a": list("xxxyy"), "b": list("xxyyy")})
    after = pd.DataFrame({"a": list("xxzyy"), "b": list("xxzyy")})
    change = score_candidate(after, ["a"], "b") - score_candidate(before, ["a"], "b")
    print(f"  5 records, one replaced: the score moves by {change:.4f}, scaled for {mi_sensitivity(5):.4f}")
    print(f"  categories x, y, z given and x, y in the rows: it uses {', '.join(learner.bounds['a']['categories'])}")


SHOWN = {"dpmm": dpmm, "datasynth": datasynth, "dpart": dpart}


def main(folder: Path) -> int:
    """Ask every peer that is installed; return 1 if one could not be asked."""
    failed = False
    for name in SHOWN:
        python = folder / name / "bin" / "python"
        if not python.exists():
            print(f"{name}: not installed")
            failed = True
            continue
        failed |= subprocess.run([str(python), __file__, "--show", name], check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        SHOWN[sys.argv[2]]()
    elif len(sys.argv) == 2:
        raise SystemExit(main(Path(sys.argv[1])))
    else:
        raise SystemExit("which directory has the peers' environments?")
