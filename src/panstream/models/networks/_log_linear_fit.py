"""Fit a log-linear model to noisy tables of one and two attributes. Reads released tables and public figures only.

The model has a parameter for every cell of every measured component (`panstream.models.networks._residuals`). The
marginals of the fitted model differ from the estimates by a ridge times the parameters: the maximum of

    <estimates, parameters> - log Z(parameters) - ½·Σ ridge·parameters²,

which is concave; its gradient needs only marginals of a junction tree, and L-BFGS (Nocedal 1980) climbs it. The ridge
is what the noise asks for. If the parameters of a pair are normal with standard deviation tau, and a cell with
probability p has noise of variance v, then a ridge of v/(tau²·p) gives the posterior mode to first order. Each pair's
tau maximises the likelihood of its component, so a pair that does not stand out from its noise is fitted as
independent, and a strong one is hardly shrunk. This takes the place of early stopping: no iteration count is tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks._junction_tree import Attributes, JunctionTree, Table, aligned, summed_to
from panstream.models.networks._residuals import ResidualEstimates, centred
from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork

_TAUS = np.geomspace(1e-4, 30.0, 30)  # standard deviations, squared: of a pair's parameters
_LOWEST = 15.0  # no parameter of an estimate below 0 falls far below minus this
_FLOOR = 0.3  # standard deviations: cells below are taken to be as large
_EM_STEPS = 50
_MEMORY = 8  # steps that L-BFGS remembers
_TOLERANCE = 1e-9
_LARGEST_STEP = 5.0  # of a parameter

_Objective: TypeAlias = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


class LogLinearModel:
    """A log-linear model that grows with the tables added to its estimates.

    Args:
        sizes: Number of categories of each attribute; a one-way table of each must be added before the first fit.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.estimates = ResidualEstimates(sizes)
        self.tree = JunctionTree(sizes, [])
        self.beliefs: list[Table] = []
        self._parameters: dict[Attributes, Table] = {}
        self._taus: dict[Attributes, float] = {}
        self._likelihoods: dict[Attributes, tuple[float, NDArray[np.float64]]] = {}
        self._homes: dict[Attributes, int] = {}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs that have parameters or will have them in the next fit."""
        return [(part[0], part[1]) for part in self.estimates.components if len(part) == 2]

    def fit(self, steps: int) -> None:
        """Climb from the present parameters by at most this many steps of L-BFGS."""
        components = self.estimates.components
        if set(components) != set(self._homes):
            self.tree = JunctionTree(self.sizes, components)
            self._homes = {part: self.tree.home(part) for part in components}
        self._update_taus()
        estimates = {part: self.estimates.component(part) for part in components}
        tables = {part: self.estimates.table(part) for part in components}
        ridges = {part: self._ridge(part, estimates[part], tables[part]) for part in components}
        ends = np.cumsum([0, *(table.size for table in estimates.values())])
        spans = {part: slice(*ends[index : index + 2]) for index, part in enumerate(components)}
        goal = np.concatenate([estimates[part].ravel() for part in components])
        ridge = np.concatenate([ridges[part].ravel() for part in components])
        floor = {part: _FLOOR * self.estimates.deviation(part) for part in components}
        curvature = ridge + np.concatenate([np.maximum(tables[part], floor[part]).ravel() for part in components])
        scale = 1.0 / np.sqrt(curvature)

        def unpacked(point: NDArray[np.float64]) -> dict[Attributes, Table]:
            values = point * scale
            return {part: centred(values[spans[part]].reshape(estimates[part].shape)) for part in components}

        def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            parameters = unpacked(point)
            flat = np.concatenate([parameters[part].ravel() for part in components])
            try:
                log_sum = self._calibrate(parameters)
            except FloatingPointError:
                return math.inf, np.zeros_like(point)
            slope = ridge * flat
            for part in components:
                home = self._homes[part]
                marginal = summed_to(self.beliefs[home], self.tree.cliques[home], part)
                part_slope = slope[spans[part]].reshape(marginal.shape)
                slope[spans[part]] = centred(marginal + part_slope).ravel()
            value = log_sum - goal @ flat + 0.5 * float(ridge @ flat**2)
            return value, (slope - goal) * scale

        start = [self._parameters.get(part, np.zeros_like(estimates[part])).ravel() for part in components]
        point = _minimise(objective, np.concatenate(start) / scale, scale, steps)
        self._parameters = unpacked(point)
        self._calibrate(self._parameters)

    def pair_marginals(self) -> dict[tuple[int, int], Table]:
        """Return the fitted marginals of all pairs."""
        return self.tree.pair_marginals(self.beliefs)

    def network(self, domain: Domain) -> BayesianNetwork:
        """Return the fitted model as a Bayesian network."""
        return self.tree.network(domain, self.beliefs)

    def _calibrate(self, parameters: dict[Attributes, Table]) -> float:
        logs = [np.zeros(self.tree.shape(clique)) for clique in self.tree.cliques]
        for part, values in parameters.items():
            home = self._homes[part]
            logs[home] += aligned(values, part, self.tree.cliques[home])
        self.beliefs, log_sum = self.tree.calibrate(logs)
        return log_sum

    def _ridge(self, part: Attributes, estimate: Table, table: Table) -> Table:
        """Return the ridge of each cell; estimates below 0 get as much as keeps their parameters finite."""
        variance = 1.0 / self.estimates.precisions[part]
        least = max(-float(table.min()), 0.0) / _LOWEST
        if len(part) == 1:
            return np.full(table.shape, max(variance, least))
        return np.maximum(variance / (self._taus[part] * self._product(part)), least)

    def _product(self, part: Attributes) -> Table:
        """Return the table of independent attributes, with rare categories raised to the noise."""
        margins = []
        for attribute in part:
            margin = np.maximum(self.estimates.table((attribute,)), _FLOOR * self.estimates.deviation((attribute,)))
            margins.append(margin / margin.sum())
        return np.asarray(np.outer(*margins))

    def _update_taus(self) -> None:
        """Estimate tau² of every pair: the mean under a prior that fits all pairs best, on a grid.

        A component is normal with variance v + tau²·p² around independence. Pairs of few cells say little about their
        own tau; the prior, of most likelihood for all pairs together (found by EM), says the rest.
        """
        for part in self.pairs:
            precision = self.estimates.precisions[part]
            if self._likelihoods.get(part, (0.0,))[0] == precision:
                continue
            product = self._product(part)
            squares = (self.estimates.component(part) - centred(product)) ** 2
            logs = []
            for tau in _TAUS:
                spread = 1.0 / precision + tau * product**2
                logs.append(-0.5 * float((squares / spread + np.log(spread)).sum()) * self._freedom(part))
            self._likelihoods[part] = precision, np.exp(np.array(logs) - max(logs))
        if not self.pairs:
            return
        likelihoods = np.array([self._likelihoods[part][1] for part in self.pairs])
        prior = np.full(_TAUS.size, 1.0 / _TAUS.size)
        for _ in range(_EM_STEPS):
            posterior = likelihoods * prior
            posterior /= posterior.sum(axis=1, keepdims=True)
            prior = posterior.mean(axis=0)
        means = np.exp(posterior @ np.log(_TAUS))
        self._taus = {part: float(mean) for part, mean in zip(self.pairs, means, strict=True)}

    def _freedom(self, part: Attributes) -> float:
        """Return the share of a pair's cells that are free given its margins."""
        return math.prod(1.0 - 1.0 / self.sizes[attribute] for attribute in part)


def _minimise(
    objective: _Objective, point: NDArray[np.float64], scale: NDArray[np.float64], steps: int
) -> NDArray[np.float64]:
    """Return a point near the minimum: L-BFGS with a backtracking line search; no parameter moves far in one step."""
    value, slope = objective(point)
    moves: list[NDArray[np.float64]] = []
    turns: list[NDArray[np.float64]] = []
    for _ in range(steps):
        direction = _direction(slope, moves, turns)
        descent = float(slope @ direction)
        size = min(1.0, (_LARGEST_STEP if moves else 2.0) / max(float(np.abs(direction * scale).max()), 1e-12))
        for _ in range(12):
            candidate = point + size * direction
            next_value, next_slope = objective(candidate)
            if descent < 0 and next_value <= value + 1e-4 * size * descent:
                break
            size *= 0.4
        else:
            if not moves:
                break
            moves.clear()
            turns.clear()
            continue
        move = candidate - point
        turn = next_slope - slope
        if move @ turn > 1e-16:
            moves.append(move)
            turns.append(turn)
            del moves[:-_MEMORY], turns[:-_MEMORY]
        gain = value - next_value
        point = candidate
        value = next_value
        slope = next_slope
        if gain < _TOLERANCE:
            break
    return point


def _direction(
    slope: NDArray[np.float64], moves: list[NDArray[np.float64]], turns: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return minus the slope times the estimated inverse curvature (two-loop recursion)."""
    direction = -slope
    factors = []
    for move, turn in zip(reversed(moves), reversed(turns), strict=True):
        factor = (move @ direction) / (move @ turn)
        factors.append(factor)
        direction = direction - factor * turn
    if moves:
        direction = direction * ((moves[-1] @ turns[-1]) / (turns[-1] @ turns[-1]))
    for move, turn, factor in zip(moves, turns, reversed(factors), strict=True):
        direction = direction + move * (factor - (turn @ direction) / (move @ turn))
    return np.asarray(direction)
