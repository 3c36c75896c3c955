"""Figures 3.1 to 3.3 of the thesis, which are drawings there, as numbers: what they are meant to show.

3.1, hospitals that cannot share records: what one holder learns alone, all of them with privacy, and all without.
3.2, the connections of a small network: which attributes depend on each other, and which do so given a third.
3.3, the network of seven attributes: how many bits its edges save, the strongest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.models.federated import Federation, GaussianSums, Holder
from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.serialization import seven_attributes
from panstream.models.networks.structure_search import exact_tables, fit_tables, greedy
from panstream.papers.figures.networks import experiment_on, seeded_rng
from panstream.papers.figures.plan import FigureOptions, FigurePanel, FigurePlan, FigurePoint, FigureRow

_EPSILON = 1.0
_DELTA = 1e-6
_RUNS = 100
_PARENTS = ((), (), (0,), (1,), (2,), (1, 4))  # X1 to X6 of Figure 3.2
_RELATIONS = {
    "direct, X1 and X3": (0, 2, None),
    "chain, X1 and X5": (0, 4, None),
    "chain, X1 and X5 given X3": (0, 4, 2),
    "common cause, X4 and X6": (3, 5, None),
    "common cause, X4 and X6 given X2": (3, 5, 1),
    "common effect, X5 and X2": (4, 1, None),
    "common effect, X5 and X2 given X6": (4, 1, 5),
}


def _alone(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    count = round(point.x)
    samples: dict[str, list[float]] = {}
    for run in range(options.runs(_RUNS, at_least=2)):
        experiment = experiment_on("seven", options, run)
        rng = seeded_rng(options, "3.1", count, run)
        parts = experiment.train.split(count)
        domain = experiment.train.domain
        holders = [
            Holder(f"holder {number}", part, epsilon=np.inf, rng_factory=lambda rng=rng: rng)  # type: ignore[misc]
            for number, part in enumerate(parts, 1)
        ]
        together = GaussianSums(epsilon=_EPSILON, delta=_DELTA, degree=1).run(Federation(domain, holders)).network
        networks: dict[str, Any] = {"panstream: Gaussian sums, all holders": together}
        for name, records in (("one holder alone, no privacy", parts[0]), ("greedy, no privacy", experiment.train)):
            tables = exact_tables(records)
            networks[name] = fit_tables(domain, greedy(domain, tables, 1), tables)
        for name, network in networks.items():
            samples.setdefault(name, []).append(experiment.bits(network))
    return [FigureRow.mean("a", name, point.x, np.array(values)) for name, values in samples.items()]


def connections(strength: float) -> BayesianNetwork:
    """Return the network of Figure 3.2 on binary attributes that follow each parent with this strength."""
    tables: list[NDArray[np.float64]] = []
    for parents in _PARENTS:
        shape = (2,) * len(parents)
        ones = 0.4 + np.zeros(shape)
        for axis in range(len(parents)):
            ones = ones + strength * (np.indices(shape)[axis] - 0.4) / len(parents)
        tables.append(np.stack([1.0 - ones, ones], axis=-1))
    domain = Domain({f"X{number}": ["0", "1"] for number in range(1, 7)})
    return BayesianNetwork(domain, _PARENTS, tuple(tables))


def information(network: BayesianNetwork, first: int, second: int, given: int | None = None) -> float:
    """Return the mutual information of two attributes in bits, given a third or not.

    >>> information(connections(0.5), 0, 4, given=2) < 1e-12 < information(connections(0.5), 0, 4)
    True
    """
    condition = () if given is None else (given,)

    def entropy(*attributes: int) -> float:
        law = network.marginal(attributes).ravel() if attributes else np.ones(1)
        law = law[law > 0]
        return -float((law * np.log2(law)).sum())

    joint = entropy(first, second, *condition)
    return max(0.0, entropy(first, *condition) + entropy(second, *condition) - joint - entropy(*condition))


def _relations(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    network = connections(point.x)
    return [
        FigureRow(series=name, x=point.x, y=information(network, first, second, given))
        for name, (first, second, given) in _RELATIONS.items()
    ]


def _edges(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    truth = seven_attributes()
    edges = [(child, parent) for child, parents in enumerate(truth.parents) for parent in parents]
    saved = sorted((information(truth, *edge) for edge in edges), reverse=True)
    count = round(point.x)
    bits = truth.entropy() + sum(saved[count:])
    return [
        FigureRow(series="true network, its strongest edges", x=count, y=bits),
        FigureRow(series="claimed: the uniform distribution", x=count, y=float(np.log2(truth.domain.cells))),
    ]


def _points(values: Sequence[float]) -> list[FigurePoint]:
    return [FigurePoint("a", float(value)) for value in values]


FIGURES = (
    FigurePlan(
        key="002-3.1",
        title="What holders learn who cannot share records",
        caption=f"Bits that a record of seven attributes takes, with 95% intervals, where 40,000 records are divided "
        f"among the holders; epsilon {_EPSILON:g}, delta {_DELTA:g}. A drawing in the thesis.",
        panels=(FigurePanel(x_label="number of holders M", y_label="bits per record", x_log=True),),
        points=lambda options: _points((3, 30, 300) if options.quick else (1, 3, 10, 30, 100, 300)),
        evaluate=_alone,
    ),
    FigurePlan(
        key="002-3.2",
        title="Connections of a network",
        caption="Mutual information of two attributes, given a third or not, against the strength with which an "
        "attribute follows its parents. A drawing in the thesis.",
        panels=(FigurePanel(x_label="strength of every edge", y_label="mutual information, bits"),),
        points=lambda options: _points([step / 20 for step in range(1, 20, 4 if options.quick else 1)]),
        evaluate=_relations,
    ),
    FigurePlan(
        key="002-3.3",
        title="The network of seven attributes",
        caption="Bits that a record takes if only the strongest edges are known. A drawing in the thesis, without "
        "tables; the network is the bundled one.",
        panels=(FigurePanel(x_label="number of edges", y_label="bits per record"),),
        points=lambda options: _points(range(7)),
        evaluate=_edges,
    ),
)
