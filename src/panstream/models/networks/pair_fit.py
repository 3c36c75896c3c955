"""Choose and fit a model to noisy tables of all attributes and pairs. Reads released tables and public figures only.

Four kinds of model are fitted to one half of the thinned noise and compared on the other
(`panstream.models.networks._measurements`): independent attributes; a forest; a mixture of products, which can
represent many weak dependences; and a mixture of tilted forests, which can also represent attributes that nearly
determine each other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from panstream.models.networks._measurements import Half, MeasuredTables, measured_tables_from, split_thinned
from panstream.models.networks._mixture_fit import (
    HALVES,
    FitTrial,
    fit_mixture,
    noise_floor,
    product_mixture,
    try_mixture,
)
from panstream.models.networks._tilted_forest import TiltedForest
from panstream.models.networks.domain import Domain
from panstream.models.networks.forest_fit import fit_forest
from panstream.models.networks.learner import Progress
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import NoisyTable, one_way, project_to_simplex, smooth
from panstream.primitives.noise import NoiseSource

_LARGEST_TREE = 400  # categories, in a mixture of forests: each component has a table of this many rows and columns

Edges: TypeAlias = Collection[tuple[int, int]]
"""Pairs of positions of attributes."""


class ModelKind(Enum):
    """The kind of model that screening found nearest to the tables."""

    INDEPENDENT = "independent attributes"
    FOREST = "a forest"
    MIXTURE = "a mixture"


@dataclass(frozen=True, slots=True, eq=False)
class _SimpleFits:
    """Distances of independent attributes and of forests, fitted to each half, from the other halves."""

    independent: float
    forest: float
    shapes: list[TiltedForest]  # the fitted forests, from which a mixture of forests starts


def screen_models(
    domain: Domain, records: int, tables: Sequence[NoisyTable], chosen: Edges, rng: NoiseSource
) -> tuple[ModelKind, list[tuple[int, int]]]:
    """Return the kind of model nearest to the tables, and the forest's edges: the chosen and the significant ones."""
    measured = measured_tables_from(domain, records, tables)
    halves = [measured.thinned(rng) for _ in range(HALVES)]
    simple = _try_simple(domain, records, tables, chosen, measured, halves)
    mixture = try_mixture(measured, halves, [product_mixture(measured, half[0]) for half in halves], rng)
    forest_tables = _forest_tables(domain, records, tables, chosen)
    edges = [(table.attributes[0], table.attributes[1]) for table in forest_tables if len(table.attributes) == 2]
    if min(simple.independent, simple.forest) >= mixture.error:
        return ModelKind.MIXTURE, edges
    return ModelKind.FOREST if edges and simple.forest < simple.independent else ModelKind.INDEPENDENT, edges


def fit_pair_model(
    domain: Domain,
    records: int,
    tables: Sequence[NoisyTable],
    rng: NoiseSource,
    progress: Progress = lambda step, done: None,
    *,
    chosen: Edges = (),
) -> Mixture | BayesianNetwork:
    """Return a model of the kind that is nearest to the halves of the noise it was not fitted to.

    ``chosen`` are edges that a private selection already chose: they need not exceed the noise again.
    """
    measured = measured_tables_from(domain, records, tables)
    halves = [measured.thinned(rng) for _ in range(HALVES)]
    progress("comparing forests", 0.25)
    simple = _try_simple(domain, records, tables, chosen, measured, halves)
    shapes = [product_mixture(measured, half[0]) for half in halves]
    plain = try_mixture(measured, halves, shapes, rng, lambda done: progress("products", 0.3 + 0.2 * done))
    edges = _forest_tables(domain, records, tables, chosen)
    tilted = FitTrial(0, math.inf)
    if len(edges) > len(domain):
        tilted = try_mixture(measured, halves, simple.shapes, rng, lambda done: progress("forests", 0.5 + 0.2 * done))
    best = min(simple.independent, simple.forest, plain.error, tilted.error)
    if best == simple.independent:
        return fit_forest(domain, records, one_way(tables))
    if best == simple.forest:
        return fit_forest(domain, records, edges)
    trial = plain
    shape = product_mixture(measured, measured.ones)
    forest = None
    if best == tilted.error:
        small = _forest_tables(domain, records, tables, chosen, _LARGEST_TREE)
        forest = _with_noise_floor(measured, fit_forest(domain, records, small))
        trial = tilted
        shape = TiltedForest.of(forest)
    weights, tilts = fit_mixture(measured, shape, trial.steps, rng, lambda done: progress("fit", 0.7 + 0.3 * done))
    if forest is None:
        tilts = [np.exp(logs) * tilt for logs, tilt in zip(shape.logs, tilts, strict=True)]
    return Mixture(domain, weights, tuple(tilt / tilt.sum(axis=1, keepdims=True) for tilt in tilts), forest)


def _try_simple(
    domain: Domain,
    records: int,
    tables: Sequence[NoisyTable],
    chosen: Edges,
    measured: MeasuredTables,
    halves: Sequence[Half],
) -> _SimpleFits:
    independent = 0.0
    forest = 0.0
    shapes = []
    for half in halves:
        thinned = split_thinned(measured, half, records, tables)
        product = TiltedForest.of(fit_forest(domain, records, one_way(thinned))).untilted()
        independent += measured.distance(half, product.ones, product.pairs)
        network = fit_forest(domain, records, _forest_tables(domain, records, thinned, chosen))
        shape = TiltedForest.of(network)
        fitted = shape.untilted()
        forest += measured.distance(half, fitted.ones, fitted.pairs)
        if shape.largest_tree > _LARGEST_TREE:
            network = fit_forest(domain, records, _forest_tables(domain, records, thinned, chosen, _LARGEST_TREE))
        shapes.append(TiltedForest.of(_with_noise_floor(measured, network)))
    return _SimpleFits(independent, forest, shapes)


def _with_noise_floor(measured: MeasuredTables, forest: BayesianNetwork) -> BayesianNetwork:
    """Return the forest with rare categories raised to the noise floor, so that tilts can still move them."""
    margins = TiltedForest.of(forest).untilted().ones
    factors = np.maximum(1.0, noise_floor(measured) / np.maximum(margins, 1e-12))
    raised = [table * factors[block] for table, block in zip(forest.tables, measured.blocks, strict=True)]
    tables = tuple(table / table.sum(axis=-1, keepdims=True) for table in raised)
    return BayesianNetwork(forest.domain, forest.parents, tables)


def _forest_tables(
    domain: Domain, records: int, tables: Sequence[NoisyTable], chosen: Edges, largest_tree: float = math.inf
) -> list[NoisyTable]:
    """Return one-way tables and the tables of a forest's edges: the chosen ones, then the significant ones.

    An edge is significant if its distance from independence exceeds the noise's mean by sqrt(2·log(pairs)) + 1 standard
    deviations: the maximum over all pairs of independent attributes is about sqrt(2·log(pairs)).
    """
    ones = one_way(tables)
    curves = {table.attributes[0]: smooth(domain, table.attributes, table.counts, table.sigma)[0] for table in ones}
    shapes = {attribute: project_to_simplex(curve / records) for attribute, curve in curves.items()}
    beyond = math.sqrt(2 * math.log(math.comb(len(domain), 2))) + 1
    gains = []
    for table in tables:
        if len(table.attributes) == 2:
            one, other = table.attributes
            cells = table.counts.size
            gain = np.abs(table.counts - records * np.outer(shapes[one], shapes[other])).sum()
            gain -= table.sigma * (cells * math.sqrt(2 / math.pi) + beyond * math.sqrt(cells * (1 - 2 / math.pi)))
            gains.append(((one, other) in chosen, float(gain), table))
    component = list(range(len(domain)))
    size = list(domain.sizes)
    edges = []
    for is_chosen, gain, table in sorted(gains, key=lambda candidate: candidate[:2], reverse=True):
        surviving, merged = (component[attribute] for attribute in table.attributes)
        if (is_chosen or gain > 0) and surviving != merged and size[surviving] + size[merged] <= largest_tree:
            edges.append(table)
            size[surviving] += size[merged]
            component = [surviving if label == merged else label for label in component]
    return [*one_way(tables, {table.attributes for table in edges}), *edges]
