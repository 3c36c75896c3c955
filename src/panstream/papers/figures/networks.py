"""Figures 3.4 to 3.9 of the thesis: cross entropy of networks that several holders learn together.

The records are assigned to the holders round robin. Seven attributes: 40,000 records sampled from the bundled network,
and the exact cross entropy from it. Diabetes: a fifth of the records is held out and measured.

Every method of the thesis is plotted in two forms. As printed, holders set negative counts to 0 before they share them
(section 3.3.3); the other form clips after summing, which leaves the sums unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from panstream.models.federated import (
    AverageScores,
    FederatedTree,
    Federation,
    GaussianSums,
    Holder,
    IndependentMarginals,
    MajorityVoting,
    NoisyModel,
    NoisyStatistics,
)
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.records import Records
from panstream.models.networks.sampling import sample
from panstream.models.networks.serialization import seven_attributes
from panstream.models.networks.structure_search import exact_tables, fit_tables, greedy, independent
from panstream.papers.diabetes_table import read_table
from panstream.papers.figures.plan import FigureOptions, FigurePanel, FigurePlan, FigurePoint, FigureRow
from panstream.primitives.noise import SeededSource

PRINTED = ", cut by holders"
SUMMED = ", cut after summing"
_RECORDS = 40_000
_DELTA = 1e-6
_KINDS: dict[str, Callable[..., Any]] = {
    "noisy ss (3.5)": NoisyStatistics,
    "noisy mv (3.6)": MajorityVoting,
    "noisy model (3.7)": NoisyModel,
    "mean of local scores": AverageScores,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSetting:
    """The parameters of a run: number of holders, degree of the network and each holder's epsilon."""

    holders: int = 3
    degree: int = 1
    epsilon: float = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class _Experiment:
    """The training records, and a function that returns the bits per record under a network."""

    train: Records
    bits: Callable[[BayesianNetwork], float]
    truth: BayesianNetwork | None = None


def held_out(records: Records, run: int) -> _Experiment:
    """Return an experiment that trains on four fifths and measures on the rest; ``run`` seeds the split."""
    order = np.random.default_rng(run).permutation(len(records))
    cut = int(0.8 * len(records))
    test = records.take(order[cut:])
    return _Experiment(records.take(order[:cut]), lambda network: network.cross_entropy(test))


@lru_cache(maxsize=4)
def experiment_on(data: str, options: FigureOptions, run: int) -> _Experiment:
    """Return the training records of a run, and how bits per record are measured."""
    if data != "seven":
        return held_out(read_table(options.diabetes), run)
    truth = seven_attributes()
    with seeded_rng(options, "seven attributes", run) as rng:
        train = sample(truth, min(_RECORDS, options.length), rng)
    return _Experiment(train, lambda network: network.cross_entropy_from(truth), truth)


def seeded_rng(options: FigureOptions, *names: object) -> SeededSource:
    """Return a noise source seeded by the options' seed and ``names`` only."""
    return SeededSource(int(options.generator(*names).integers(1 << 62)))


def _methods(setting: ExperimentSetting, rng: SeededSource) -> Iterator[tuple[str, Any]]:
    """Yield the thesis's methods with pure epsilon, panstream's and independent attributes with delta = 1e-6."""
    common: Mapping[str, Any] = {"epsilon": setting.epsilon, "degree": setting.degree}
    for name, kind in _KINDS.items():
        more = {"rng_factory": lambda: rng} if kind is NoisyModel else {}
        for form, clip in ((PRINTED, True), (SUMMED, False)):
            yield name + form, kind(**common, clip_at_holder=clip, **more)
    yield "panstream: Gaussian sums", GaussianSums(**common, delta=_DELTA)
    yield "panstream: federated tree", FederatedTree(epsilon=setting.epsilon, delta=_DELTA)
    for name, by_size in (("private independent", False), ("private independent, by size", True)):
        yield name, IndependentMarginals(epsilon=setting.epsilon, delta=_DELTA, by_size=by_size)


def measure(
    experiment: _Experiment, settings: Sequence[ExperimentSetting], rng: SeededSource, *, without: Sequence[str] = ()
) -> list[dict[str, float]]:
    """Return the bits per record of every method but those in ``without``, for each setting.

    All settings must have the same number of holders, which are created once and cache their counts.
    """
    train = experiment.train
    results = []
    (holders,) = {setting.holders for setting in settings}
    parties = [
        Holder(f"holder {number}", part, epsilon=math.inf, rng_factory=lambda: rng)
        for number, part in enumerate(train.split(holders), 1)
    ]
    for setting in settings:
        bits_by_method = {}
        for name, method in _methods(setting, rng):
            if name.startswith(tuple(without)):
                continue
            bits_by_method[name] = experiment.bits(method.run(Federation(train.domain, parties)).network)
        results.append(bits_by_method)
    return results


def references(experiment: _Experiment, degree: int) -> dict[str, float]:
    """Return the bits per record without privacy: of independent attributes, the greedy network, the truth."""
    domain = experiment.train.domain
    tables = exact_tables(experiment.train)
    network_by_name = {
        "independent, no privacy": fit_tables(domain, independent(domain), tables),
        "greedy, no privacy": fit_tables(domain, greedy(domain, tables, degree), tables),
    }
    if experiment.truth is not None:
        network_by_name["true network"] = experiment.truth
    return {name: experiment.bits(network) for name, network in network_by_name.items()}


_LABELS = {"epsilon": "privacy budget ε of every holder", "holders": "number of holders M", "degree": "degree k"}


def _figure(
    number: str,
    data: Literal["seven", "diabetes"],
    over: Literal["epsilon", "holders", "degree"],
    values: Sequence[float],
    title: str,
    fixed: ExperimentSetting,
) -> FigurePlan:
    papers = 100 if data == "seven" else 20

    def evaluate(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
        varied: dict[str, Any] = {over: point.x if over == "epsilon" else round(point.x)}
        setting = replace(fixed, **varied)
        samples: dict[str, list[float]] = {}
        for run in range(options.runs(papers, at_least=2)):
            experiment = experiment_on(data, options, run)
            (bits_by_method,) = measure(experiment, [setting], seeded_rng(options, number, setting, run))
            for name, bits in {**bits_by_method, **references(experiment, setting.degree)}.items():
                samples.setdefault(name, []).append(bits)
        return [FigureRow.mean("a", name, point.x, np.array(values)) for name, values in samples.items()]

    def points(options: FigureOptions) -> list[FigurePoint]:
        chosen = values[1::2] if options.quick and len(values) > 4 else values
        return [FigurePoint("a", float(value)) for value in chosen]

    def note(options: FigureOptions) -> str:
        return "bundled sample of 10,000 patients" if data == "diabetes" and not options.diabetes else ""

    return FigurePlan(
        key=f"002-{number}",
        title=title,
        caption="Bits that a record takes under the learned network, with 95% intervals; lower is better. As printed, "
        "holders set negative counts to 0 before they share them. The thesis's methods keep pure ε, ours ε with "
        "δ = 1e-6.",
        panels=(FigurePanel(x_label=_LABELS[over], y_label="bits per record", x_log=over == "epsilon", y_log=True),),
        points=points,
        evaluate=evaluate,
        note=note,
    )


_BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

FIGURES = (
    _figure("3.4", "seven", "epsilon", _BUDGETS, "Seven attributes, M = 3, k = 1", ExperimentSetting()),
    _figure("3.5", "seven", "epsilon", _BUDGETS, "Seven attributes, M = 3, k = 2", ExperimentSetting(degree=2)),
    _figure("3.6", "seven", "holders", (1, 3, 5, 10, 20, 30), "Seven attributes, ε = 0.1, k = 1", ExperimentSetting()),
    _figure("3.7", "seven", "degree", (1, 2, 3), "Seven attributes, ε = 0.1, M = 3", ExperimentSetting()),
    _figure("3.8", "diabetes", "epsilon", (0.1, 0.5, 1.0, 2.0), "Diabetes, M = 3, k = 1", ExperimentSetting()),
    _figure("3.9", "diabetes", "holders", (3, 10, 30), "Diabetes, ε = 0.1, k = 1", ExperimentSetting()),
)
