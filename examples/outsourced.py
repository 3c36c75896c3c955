"""Ratings handed to rented machines: noise on every point before it leaves its owner, of the right size.

The recipe "add Lap(1/epsilon) to each data point" loses N·epsilon for points from 0 to N. Here each rating gets noise
of scale N/epsilon, so what the machines see, and all they compute, loses epsilon for one rating. The second way keeps
the sums locally in a pan-private tree and sends only what it publishes: far less noise, and the machines get less to
do.
"""

import numpy as np
from rich.console import Console
from rich.table import Table
from shared.band_plot import draw, target

from panstream import ContinualSum, WindowedSum
from panstream.papers import PublishedPointNoise

EPSILON = 1.0
MOST = 10
FILMS = 12
RATINGS = 5000
MACHINES = 4


def main() -> None:
    out = target(__doc__, "outsourced.png")
    console = Console()
    chance = np.random.default_rng(3)
    liked = np.linspace(3, 8.5, FILMS)
    ratings = np.clip(np.rint(chance.normal(liked[:, None], 2.0, (FILMS, RATINGS))), 0, MOST).astype(np.int64)
    slots = RATINGS * FILMS

    # A window of one slot publishes each point once, with noise for an exchange of the whole point.
    sender = WindowedSum(epsilon=EPSILON, window=1, upper=MOST, unit="slot", one_step_ticks=True)
    points = sender.start().tick_many(ratings.ravel())
    shares = np.array_split(points.unclipped.reshape(FILMS, RATINGS), MACHINES, axis=1)  # each machine gets a quarter
    total = sum(share.sum(axis=1) for share in shares)  # what the machines send back, added up
    mean = total / RATINGS
    half = 1.96 * points.standard_error[0] / np.sqrt(RATINGS)

    kept = ContinualSum(epsilon=EPSILON, horizon=slots, lower=0, upper=MOST, unit="slot", one_step_ticks=True)
    sums = kept.start().tick_many(ratings.ravel().astype(float))
    ends = np.arange(1, FILMS + 1) * RATINGS - 1
    home = np.diff(sums.unclipped[ends], prepend=0.0) / RATINGS

    table = Table(title=f"Mean rating of {FILMS} films from {RATINGS:,} ratings each", title_justify="left")
    for column in ("film", "truth", "by the machines", "from sums held locally"):
        table.add_column(column, justify="right")
    truth = ratings.mean(axis=1)
    for film in range(FILMS):
        row = [f"{truth[film]:.3f}", f"{mean[film]:.3f} ± {half:.2f}", f"{home[film]:.3f}"]
        table.add_row(str(film + 1), *row)
    console.print(table)
    losses = Table(title="What one rating loses", title_justify="left")
    for column in ("noise on each point", "said to lose", "truly loses"):
        losses.add_column(column, justify="right")
    literal = PublishedPointNoise(epsilon=EPSILON, horizon=slots, bound=MOST)
    losses.add_row("Lap(1/epsilon)", f"{EPSILON:g}", f"{literal.claim().epsilon:g}")
    losses.add_row("Lap(10/epsilon)", f"{EPSILON:g}", f"{points.claim.epsilon:g}")
    losses.add_row("none: sums held locally", f"{EPSILON:g}", f"{sums.claim.epsilon:g}")
    console.print(losses)
    panel = {"x": np.arange(1, FILMS + 1), "low": mean - half, "high": mean + half, "estimate": mean, "truth": truth}
    draw(out, [panel | {"title": "mean ratings by rented machines", "xlabel": "film", "ylabel": "mean rating"}])


if __name__ == "__main__":
    main()
