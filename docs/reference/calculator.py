"""Write docs/reference/calculator.md and its picture: errors of the shipped algorithms, from their formulas."""

import sys
from pathlib import Path

from panstream import ContinualCount, DistinctCount
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.algorithms.turnstile import LegendreCounter

TARGET = Path(__file__).with_name("calculator.md")
PICTURES = Path(__file__).parents[1] / "pictures"
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
INK = {"light": "#24292f", "dark": "#d7dde4"}


def table(title: str, rows: dict[str, list[str]]) -> list[str]:
    """Return one table with a column for every epsilon."""
    head = "| " + " | ".join(["", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]) + " |"
    return [f"## {title}", "", head, "| --- |" + " ---: |" * len(EPSILONS),
            *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()), ""]  # fmt: skip


def distinct(users: int) -> list[str]:
    """Return relative errors of a bitmap sized for so many users."""
    cells = []
    for epsilon in EPSILONS:
        chosen = DistinctCount(epsilon=epsilon, expected=users).algorithm
        cells.append(f"{1.96 * chosen.relative_error(users):.1%}")
    return cells


def page() -> str:
    """Return the whole page."""
    lines = [
        "# Errors before any data is seen",
        "",
        "Half-widths of 95% intervals, computed by the shipped formulas (made by `calculator.py`). epsilon is the",
        "total loss against a copy of the state *and* the published answer. For your own numbers ask",
        "`panstream plan density`, `panstream plan distinct`, `panstream plan turnstile`, or `panstream explain` with",
        "your configuration.",
        "",
        *(f"![Error against epsilon](../pictures/error-epsilon-{theme}.svg#only-{theme})" for theme in INK),
        "",
    ]
    lines += table(
        "How many different users, ids of any kind (relative)",
        {f"{users:,} users": distinct(users) for users in (1_000, 10_000, 100_000, 1_000_000)},
    )
    lines += table(
        "Fraction of a known population (absolute)",
        {f"{users:,} users": [f"± {OptBern(universe=users, epsilon=e).error_bound(beta=0.05):.4f}" for e in EPSILONS]
         for users in (1_000, 10_000, 100_000, 1_000_000)},
    )  # fmt: skip
    lines += table(
        "Running count of events, at every tick (absolute)",
        {f"{ticks:,} ticks": [
            f"± {ContinualCount(horizon=ticks, epsilon=e).error_bound(beta=0.05):,.0f}" for e in EPSILONS
        ] for ticks in (24, 365, 10_000, 1_000_000)},
    )  # fmt: skip
    lines += table(
        "Users with a balance, with deletions (absolute)",
        {f"{users:,} users": [
            f"± {LegendreCounter(universe=users, epsilon=e).error_bound(beta=0.05):,.0f}" for e in EPSILONS
        ] for users in (1_000, 100_000)},
    )  # fmt: skip
    return "\n".join(lines)


def draw() -> None:
    """Write the picture of error against epsilon."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "panstream", "svg.fonttype": "none"}
    import matplotlib.pyplot as plt

    epsilons = [0.1 * 1.15**step for step in range(30)]
    curves = {
        "distinct users, 100,000 came, 12 KiB": [1.96 * Bitmap(epsilon=e).relative_error(1e5) for e in epsilons],
        "fraction of 100,000 known users, half came": [
            OptBern(universe=100_000, epsilon=e).error_bound(beta=0.05) / 0.5 for e in epsilons
        ],
        "running count, 10,000 ticks, 10,000 events": [
            ContinualCount(horizon=10_000, epsilon=e).error_bound(beta=0.05) / 1e4 for e in epsilons
        ],
        "balances, half of 100,000 users": [
            LegendreCounter(universe=100_000, epsilon=e).error_bound(beta=0.05) / 5e4 for e in epsilons
        ],
    }
    for theme, ink in INK.items():
        figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
        for (name, errors), colour in zip(curves.items(), ("#0f9d8a", "#c8553d", "#4c72b0", "#b8860b"), strict=True):
            axes.loglog(epsilons, errors, label=name, color=colour, linewidth=2)
        axes.set_xlabel("total privacy loss ε", color=ink)
        axes.set_ylabel("half-width of the 95% interval / truth", color=ink)
        axes.grid(True, which="both", color=ink, alpha=0.12)
        axes.tick_params(colors=ink, which="both")
        axes.legend(frameon=False, labelcolor=ink, fontsize=8)
        for spine in axes.spines.values():
            spine.set_color(ink)
        figure.savefig(PICTURES / f"error-epsilon-{theme}.svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    draw()
    TARGET.write_text(page())
    sys.stdout.write(f"{TARGET.name} written\n")
