"""A secret graph: how many pairs of people are in touch, while every single pair is protected.

A community of 600 grows together over twelve weeks: every week people write to old friends and find new ones. After
every third week the share of all pairs that ever wrote is published. Each pair is one noisy bit, so the memory that
could be stolen is 22 kilobytes. One copy of it and all four answers change the odds of a guess whether two given
people ever wrote by a factor of at most e^epsilon.
"""

import numpy as np
from rich.console import Console
from rich.table import Table

from panstream import GraphDensity

PEOPLE = 600
WEEKS = 12
EVERY = 3
EPSILON = 1.0


def week(chance: np.random.Generator, friends: np.ndarray) -> np.ndarray:
    """Old friends write again, and every person meets somebody new, mostly a friend of a friend."""
    again = friends[chance.integers(0, len(friends), 3 * PEOPLE)]
    one = chance.integers(0, PEOPLE, 4 * PEOPLE)
    near = (one + chance.integers(1, 60, one.size)) % PEOPLE
    return np.concatenate([again, np.column_stack([one, near])])


def main() -> None:
    chance = np.random.default_rng(9)
    friends = np.column_stack([np.arange(PEOPLE), (np.arange(PEOPLE) + 1) % PEOPLE])
    graph = GraphDensity(vertices=PEOPLE, epsilon=EPSILON, releases=WEEKS // EVERY)
    monitor = graph.start()
    pairs = PEOPLE * (PEOPLE - 1) // 2
    table = Table(
        title=f"Share of {pairs:,} possible pairs that ever wrote; one edge is protected, epsilon {EPSILON:g} in total"
    )
    for column in ("week", "published", "95% interval", "true"):
        table.add_column(column, justify="right")
    for number in range(1, WEEKS + 1):
        messages = week(chance, friends)
        monitor.update(messages)
        friends = np.unique(np.sort(np.concatenate([friends, messages]), axis=1), axis=0)
        if number % EVERY == 0:
            estimate = monitor.release()
            low, high = estimate.interval()
            table.add_row(
                str(number), f"{estimate.value:.2%}", f"{low:.2%} to {high:.2%}", f"{len(friends) / pairs:.2%}"
            )
    console = Console()
    console.print(table)
    console.print(f"all there is to steal: {len(monitor.to_bytes()):,} bytes. {graph.claim()}")


if __name__ == "__main__":
    main()
