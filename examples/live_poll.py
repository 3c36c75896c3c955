"""A live poll: votes from 1 to 10 come in for three hours; every minute the mean and the spread so far are published.

One vote is protected: all answers and one copy of the server's memory, made between two votes, change the odds of a
guess whether it was cast by a factor of at most e^epsilon.
"""

import math

import numpy as np
from rich.console import Console
from rich.table import Table
from shared.band_plot import draw, target

from panstream import ContinualMean, ContinualVariance
from panstream.privacy import compose_sequential

EPSILON = 1.0
MINUTES = 180


def votes() -> list[np.ndarray]:
    """Return each minute's votes: opinions drift upwards and grow apart."""
    chance = np.random.default_rng(7)
    minutes = []
    for minute in range(MINUTES):
        drift = minute / MINUTES
        ballots = chance.normal(5 + 1.5 * drift, 1.2 + 1.2 * drift, chance.poisson(60 + 40 * math.sin(minute / 20)))
        minutes.append(np.clip(np.rint(ballots), 1, 10))
    return minutes


def main() -> None:
    out = target(__doc__, "live_poll.png")
    console = Console()
    minutes = votes()
    shared = {"epsilon": EPSILON / 2, "horizon": MINUTES, "lower": 1.0, "upper": 10.0, "resolution": 1.0}
    means = ContinualMean(**shared).start()
    variances = ContinualVariance(**shared).start()
    answers = []
    for ballots in minutes:
        for piece in np.array_split(ballots, 3):  # votes come in as they are cast, several steps to a minute
            means.update(piece)
            variances.update(piece)
        answers.append((means.tick(), variances.tick()))

    cast = [np.concatenate(minutes[: n + 1]) for n in range(MINUTES)]
    table = Table(title="A poll while it runs", title_justify="left")
    for column in ("minute", "votes", "mean", "95% interval", "true mean", "spread", "true spread"):
        table.add_column(column, justify="right")
    for at in (4, 9, 19, 39, 79, 119, 179):
        mean, variance = answers[at]
        low, high = mean.interval()
        spread = math.sqrt(variance.value) if variance.value >= 0 else math.nan
        figures = [f"{mean.value:.2f}", f"{low:.2f} to {high:.2f}", f"{cast[at].mean():.2f}"]
        table.add_row(str(at + 1), f"{cast[at].size:,}", *figures, f"{spread:.2f}", f"{cast[at].std(ddof=1):.2f}")
    console.print(table)
    console.print(f"both together:\n{compose_sequential([means.claim(), variances.claim()])}")

    x = np.arange(1, MINUTES + 1)
    panels = []
    for number, (title, exact) in enumerate((("mean", np.mean), ("variance", lambda v: np.var(v, ddof=1)))):
        ends = np.array([pair[number].interval() for pair in answers])
        panels.append(
            {
                "x": x,
                "low": ends[:, 0],
                "high": ends[:, 1],
                "estimate": [pair[number].value for pair in answers],
                "truth": [exact(ballots) for ballots in cast],
                "title": f"{title} of the votes so far",
                "xlabel": "minute",
                "ylabel": title,
                "ylim": (1, 10) if number == 0 else (0, 12),
            }
        )
    draw(out, panels)


if __name__ == "__main__":
    main()
