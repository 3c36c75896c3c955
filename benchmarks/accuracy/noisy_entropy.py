"""Bias and mean squared error of the entropy of noisy counts, measured and by Digalakis 2018, Theorems 3.5 and 3.6.

    python -m benchmarks.accuracy.noisy_entropy run     # writes noisy_entropy.csv and says what fits: a minute
    python -m benchmarks.accuracy.noisy_entropy plot    # draws docs/pictures/noisy_entropy.svg from it

The pairs (X2, X6) of the published seven-attribute network; M holders share every pair table with discrete Laplace
noise of scale b = 2·C(7, 2)/epsilon per cell (Theorem 3.4), the analyst sums, divides by n, takes negative shares as 0.
Measured biases leave out the first-order term of the expansion, whose mean is exactly 0 and whose spread would hide the
rest. The expansion needs noise that is small against the counts: where the noise of a cell reaches half of the smallest
expected count, the row is marked as outside.
"""

import argparse
import csv
import math
from pathlib import Path

import numpy as np

from panstream.algorithms.planning.tables import format_table
from panstream.errors import MissingExtra
from panstream.models.networks import noisy_entropy_bias, noisy_entropy_error, seven_attributes
from panstream.primitives.noise import DiscreteLaplace, SeededSource

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".csv")
PICTURE = ROOT / "docs" / "pictures" / "noisy_entropy.svg"
ATTRIBUTES = (2, 6)
TABLES_SHARED = math.comb(7, 2)
RUNS = 20_000
INSIDE = 0.5
SETTINGS = [
    *(("n", 3, 1.0, 1 << power) for power in range(11, 21)),
    *(("epsilon", 3, epsilon, 40_000) for epsilon in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)),
    *(("holders", holders, 1.0, 40_000) for holders in (1, 2, 5, 10, 20, 50)),
]
FIELDS = [
    "varied", "holders", "epsilon", "records", "scale", "noise_to_count", "inside",
    "bias_sampling", "bias_theorem", "bias_expansion", "bias_measured", "bias_error",
    "mse_sampling", "mse_theorem", "mse_expansion", "mse_measured", "mse_error",
]  # fmt: skip


def measure(p: np.ndarray, holders: int, scale: float, records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the gaps between the noisy and the true entropy without their first-order term, and the gaps
    themselves.
    """
    counts = np.random.default_rng(seed).multinomial(records, p, RUNS)
    with SeededSource(seed) as rng:
        for _ in range(holders):
            rng.add_discrete_laplace(counts.reshape(-1), DiscreteLaplace.at_most(1 / scale))
    shares = np.maximum(counts / records, 0)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    gaps = -(shares * logs).sum(axis=1) + float((p * np.log2(p)).sum())
    return gaps + ((counts / records - p) * (np.log2(p) + 1 / math.log(2))).sum(axis=1), gaps


def rows() -> list[dict[str, object]]:
    p = seven_attributes().marginal(ATTRIBUTES).ravel()
    found: list[dict[str, object]] = []
    for seed, (varied, holders, epsilon, records) in enumerate(SETTINGS):
        scale = 2 * TABLES_SHARED / epsilon
        rest, gaps = measure(p, holders, scale, records, seed)
        given = {"records": records, "holders": holders, "scale": scale}
        bias = noisy_entropy_bias(p, **given)
        error = noisy_entropy_error(p, **given)
        ratio = math.sqrt(2 * holders) * scale / (records * p.min())
        figures = (
            bias.sampling, bias.sampling + bias.noise, bias.total, rest.mean(), rest.std() / math.sqrt(RUNS),
            error.sampling, error.sampling + error.noise, error.total,
            (gaps**2).mean(), (gaps**2).std() / math.sqrt(RUNS),
        )  # fmt: skip
        values = (
            varied,
            holders,
            epsilon,
            records,
            scale,
            f"{ratio:.4f}",
            ratio < INSIDE,
            *(f"{x:.6g}" for x in figures),
        )
        found.append(dict(zip(FIELDS, values, strict=True)))
    return found


def verdicts(found: list[dict[str, object]]) -> str:
    body = []
    for row in found:
        cells = [str(row[key]) for key in ("holders", "epsilon", "records", "noise_to_count")]
        for kind in ("bias", "mse"):
            expansion = float(str(row[f"{kind}_expansion"]))
            measured = float(str(row[f"{kind}_measured"]))
            cells += [f"{float(str(row[f'{kind}_theorem'])):.3g}", f"{expansion:.3g}", f"{measured:.3g}"]
            cells.append(f"{measured / expansion:.3f}")
        body.append([*cells, "" if row["inside"] else "outside"])
    head = ("M", "epsilon", "n", "noise/count", *("bias: leading", "to 4th", "measured", "ratio"))
    return format_table(
        "Entropy of noisy counts, bits; measured over the expansion's prediction",
        (*head, *("mse: leading", "to 4th", "measured", "ratio"), ""),
        body,
        right=set(range(12)),
    )


def plot(table: Path, picture: Path) -> None:
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise MissingExtra("plotting", "plots") from None
    with table.open() as file:
        read = list(csv.DictReader(file))
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "panstream"})
    figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharey="row")
    titles = {
        "n": "records n (M = 3, ε = 1)",
        "epsilon": "ε (M = 3, n = 40,000)",
        "holders": "holders M (ε = 1, n = 40,000)",
    }
    for column, (varied, label) in enumerate(titles.items()):
        mine = [row for row in read if row["varied"] == varied]
        x = [float(row["records" if varied == "n" else varied]) for row in mine]
        for line, kind in enumerate(("bias", "mse")):
            panel = axes[line][column]
            panel.plot(
                x, [abs(float(row[f"{kind}_sampling"])) for row in mine], ":", color="#888888", label="without noise"
            )
            panel.plot(
                x, [abs(float(row[f"{kind}_theorem"])) for row in mine], "--", color="#c77", label="leading terms"
            )
            inside = [(at, row) for at, row in zip(x, mine, strict=True) if row["inside"] == "True"]
            panel.plot(
                [at for at, _ in inside],
                [abs(float(row[f"{kind}_expansion"])) for _, row in inside],
                "-",
                color="#36c",
                label="to 4th order",
            )
            for at, row in zip(x, mine, strict=True):
                solid = row["inside"] == "True"
                panel.errorbar(
                    at, abs(float(row[f"{kind}_measured"])), 2 * float(row[f"{kind}_error"]), fmt="o", ms=4,
                    color="#222222", mfc="#222222" if solid else "white",
                    label="measured (hollow: noise too large)" if at == x[-1] else None,
                )  # fmt: skip
            panel.set(xscale="log", yscale="log", xlabel=label if line else "")
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("|bias|, bits")
    axes[1][0].set_ylabel("mean squared error, bits²")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle("Entropy of a table that M holders share with noise: Theorems 3.5 (above) and 3.6 (below)")
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})
    print(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "plot"))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    if arguments.what == "plot":
        plot(arguments.table, arguments.picture)
        return
    found = rows()
    with arguments.table.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(verdicts(found))


if __name__ == "__main__":
    main()
