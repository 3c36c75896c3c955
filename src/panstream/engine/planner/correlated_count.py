"""Whether a count with a delta is better off with correlated noise than with a tree."""

from __future__ import annotations

import math

from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.sums import ContinualCount
from panstream.errors import InvalidParameter

_SOME = 1_000  # ticks at which two counts without a horizon are compared


def choose_correlated_count(tree: ContinualCount) -> tuple[GaussMarkovCount, str] | None:
    """Return the count with correlated noise and the reason for it, None if the tree has less noise.

    Args:
        tree: The count with the same claim, with Gaussian noise in a tree.
    """
    try:
        count = GaussMarkovCount(
            epsilon=tree.epsilon, delta=tree.delta, horizon=tree.horizon, contributions=tree.contributions
        )
    except InvalidParameter:  # beyond its longest horizon, or noise that it cannot draw
        return None
    if tree.horizon is None:
        of_tree = tree.engine.variance_at(_SOME)
    else:
        of_tree = tree.shape(0).noise(tree.horizon).mean * tree.engine.law().variance
    ours = count.variance_at(tree.horizon or _SOME)
    if ours >= of_tree:
        return None
    where = "on average" if tree.horizon else f"after {_SOME:,} answers"
    return count, (
        f"Gaussian noise that is correlated over time: standard error {math.sqrt(ours):,.1f} {where}, "
        f"{math.sqrt(of_tree):,.1f} in a tree with the same delta"
    )
