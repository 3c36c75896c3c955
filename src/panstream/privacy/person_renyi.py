"""What one person loses over a period at a delta: Rényi divergences of all states, added up at one order.

At every order the states' divergences add up, whatever is chosen while answers arrive, and one copy adds the most that
it can add at any moment. Each share is charged by the smaller of several valid bounds. Proofs:
docs/proofs/person-period.md, Theorems 2 to 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from panstream.privacy.continual_loss import LEAST_ORDER

if TYPE_CHECKING:
    from panstream.privacy.person_loss import PersonShare

_LARGEST_ORDER = 1e7
_FIRST_ORDERS = 30
_REFINED_ORDERS = 12
_REFINEMENTS = 3
_MARGIN = 1e-12  # far above the relative floating-point error of a sum
_ULP = 2.0**-50

Numbers = NDArray[np.float64]


def pure_renyi(epsilon: Numbers | float, orders: Numbers) -> Numbers:
    """Return the largest Rényi divergence of every order that a pure loss allows, rounded up.

    It is that of randomised response, (1/(a-1))·ln(p^a·q^(1-a) + q^a·p^(1-a)) with p = 1 - q = e^eps/(1 + e^eps), and
    never above a·eps²/2 or eps.

    >>> [round(float(value), 9) for value in pure_renyi(1.0, np.array([2.0, 8.0, 32.0]))]
    [0.735325664, 0.955248374, 0.989894784]
    """
    above = orders - 1.0
    exact = np.logaddexp(above * epsilon, -orders * epsilon) - np.log1p(np.exp(-np.asarray(epsilon)))
    exact = (exact + _ULP * (1.0 + orders * epsilon)) / above
    return np.asarray(np.minimum(np.minimum(exact, orders * np.square(epsilon) / 2.0 * (1.0 + _MARGIN)), epsilon))


def conversion(orders: Numbers, delta: Numbers | float) -> Numbers:
    """Return what a Rényi divergence needs on top of it to be an epsilon at ``delta`` (Canonne, Kamath, Steinke)."""
    return np.asarray(np.log1p(-1.0 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1.0))


def share_divergences(shares: Sequence[PersonShare], orders: Numbers, copies: int = 1) -> Numbers:
    """Return the divergence of every share, as rows, at every order, as columns; a copy is made at the worst moment.

    With ``copies`` - 1 copies announced before, further states with Gaussian noise have been copied and refreshed.
    What has a delta and no zCDP takes its epsilon, at all orders, and so does what retains windows that are over.
    """
    divergences = np.empty((len(shares), orders.size))
    losses = [share.loss for share in shares]
    gaussian = [index for index, loss in enumerate(losses) if loss is not None and loss.rho_joint is not None]
    pure = [index for index, loss in enumerate(losses) if loss is not None and not loss.delta and loss.closed is None]
    rest = sorted({*range(len(shares))} - {*gaussian, *pure})
    divergences[gaussian] = _gaussian_parts([shares[index] for index in gaussian], orders, copies)
    divergences[pure] = _pure_parts([shares[index] for index in pure], orders)
    divergences[rest] = np.array([shares[index].epsilon for index in rest]).reshape(-1, 1)
    return divergences


def _gaussian_parts(shares: Sequence[PersonShare], orders: Numbers, copies: int) -> Numbers:
    """Return order·(n·rho_answers + o·(rho_joint - rho_answers)) [person-period.md, Theorem 4]."""
    rates = []
    for share in shares:
        loss = share.loss
        assert loss is not None
        assert loss.rho_joint is not None
        assert loss.rho_answers is not None
        copied = min(share.windows, copies * (share.open + share.opening))
        rates.append(share.windows * loss.rho_answers + copied * (loss.rho_joint - loss.rho_answers))
    parts: Numbers = np.array(rates, np.float64).reshape(-1, 1) * orders
    return parts


def _pure_parts(shares: Sequence[PersonShare], orders: Numbers) -> Numbers:
    """Return the least of: all pure; answers by their divergence, and the copy; states with a copy in each."""
    columns = [
        (share.windows, share.open, share.opening, loss.states, loss.answers, loss.joint, loss.unused, loss.after)
        for share in shares
        if (loss := share.loss) is not None
    ]
    table = np.array(columns, np.float64).reshape(-1, 8)
    windows, open_, opening, states, answers, joint, unused, after = (table[:, column, None] for column in range(8))
    added = windows * answers + open_ * (joint - answers) + opening * np.maximum(unused - answers, 0.0)

    def of_states(losses: Numbers) -> Numbers:
        return np.asarray(states * pure_renyi(losses / states * (1.0 + _MARGIN), orders))

    split = windows * of_states(answers) + open_ * of_states(after) + opening * of_states(np.minimum(unused, after))
    divergences: Numbers = np.minimum(np.minimum(added, split), windows * of_states(joint))
    return divergences


def renyi_epsilon(shares: Sequence[PersonShare], delta: float, copies: int = 1) -> float:
    """Return the epsilon of all shares together at ``delta``, rounded up; inf if their own deltas leave nothing of it.

    Any order gives a valid epsilon, so the search for the best one needs no proof.
    """
    remaining = delta_left(shares, delta)
    if not remaining > 0.0:
        return math.inf

    def epsilons(orders: Numbers) -> Numbers:
        total: Numbers = share_divergences(shares, orders, copies).sum(axis=0) * (1.0 + _MARGIN)
        return total + conversion(orders, remaining)

    orders = order_grid(_FIRST_ORDERS)
    values = epsilons(orders)
    best = float(values.min())
    for _ in range(_REFINEMENTS):
        index = int(np.argmin(values))
        low = orders[max(index - 1, 0)] - 1.0
        high = orders[min(index + 1, orders.size - 1)] - 1.0
        orders = 1.0 + np.geomspace(low, high, _REFINED_ORDERS)
        orders = np.maximum(orders, LEAST_ORDER)
        values = epsilons(orders)
        best = min(best, float(values.min()))
    return max(best, 0.0) * (1.0 + _MARGIN) + _MARGIN


def delta_left(shares: Sequence[PersonShare], delta: float) -> float:
    """Return what the shares that have a delta of their own and no zCDP leave of ``delta``, rounded down."""
    spent = math.fsum(share.own_delta for share in shares)
    return delta if not spent else (delta - spent) * (1.0 - _MARGIN) - _MARGIN * spent


def order_grid(size: int) -> Numbers:
    """Return orders from the least to the largest, evenly spaced on a logarithmic scale above 1."""
    return np.maximum(1.0 + np.geomspace(LEAST_ORDER - 1.0, _LARGEST_ORDER, size), LEAST_ORDER)
