"""Specimens of the density room."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from panstream.algorithms.density.cropped_mean import CroppedMean
from panstream.algorithms.density.dwork_pair import DworkPair
from panstream.algorithms.density.fixed_level import FixedLevel
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.density.heavy_fraction import HeavyFraction
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.quantised_laplace import QuantisedLaplace
from panstream.algorithms.density.refreshable_cropped_mean import RefreshableCroppedMean
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import BAD_IDS, CANARY

__all__ = ["density_specimens"]


def _density() -> list[Specimen]:
    base = OptBern(universe=400, epsilon=1.0)
    variants = {
        "OptBern": base,
        "OptBern, sampled": replace(base, universe=4000, sample=400),
        "OptBern, three releases": replace(base, releases=3),
        "OptBern, one announced intrusion": replace(base, announced=1, epsilon=2.0),
        "OptBern, deletions": replace(base, deletions=True),
        "DworkPair": DworkPair(universe=400, epsilon=1.0),
        "DworkPair, one announced intrusion": DworkPair(universe=400, epsilon=3.0, announced=1),
        "QuantisedLaplace": QuantisedLaplace(universe=400, epsilon=1.0),
        "QuantisedLaplace, one announced intrusion": QuantisedLaplace(universe=400, epsilon=2.0, announced=1),
        "FixedLevel": FixedLevel(universe=4000, epsilon=1.0, level=3),
    }
    return [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=({"ids": list(range(algorithm.population.size // 2))}, {"ids": [0, 0, 1]}, {"ids": []}),
            bad=(*BAD_IDS, {"ids": [3], "weight": [0]}, {"ids": [3], "weight": [-2]}),
            truth=0.5,
            noiseless=_everyone(replace(algorithm, epsilon=math.inf)),
            canary=CANARY,
        )
        for name, algorithm in variants.items()
    ]


def _everyone(algorithm: Any) -> Any:
    """Return the algorithm without a sample, whose error is not noise."""
    if isinstance(algorithm, FixedLevel):
        return replace(algorithm, level=0)
    return replace(algorithm, sample=None)


def _listed() -> Specimen:
    names = tuple(f"user-{i}" for i in range(300))
    return Specimen(
        name="OptBern, listed universe",
        algorithm=OptBern(universe=names, epsilon=1.0),
        batches=({"ids": list(names[:150])}, {"ids": list(names[:10])}),
        bad=({"ids": [names[0], f"x{CANARY}"]}, {"ids": [7]}, {"ids": [names[0], None]}),
        truth=0.5,
        noiseless=OptBern(universe=names, epsilon=math.inf),
        canary=CANARY,
    )


def _graph() -> Specimen:
    edges = [(u, v) for u in range(20) for v in range(u)]
    return Specimen(
        name="GraphDensity",
        algorithm=GraphDensity(vertices=30, epsilon=1.0),
        batches=({"ids": edges}, {"ids": [(v, u) for u, v in edges[:5]]}),
        bad=({"ids": [(1, 2), (3, 3)]}, {"ids": [(1, int(CANARY))]}, {"ids": [(1, 2, 3)]}, {"ids": [7]}),
        truth=190 / 435,
        noiseless=GraphDensity(vertices=30, epsilon=math.inf),
        canary=CANARY,
    )


def _cropped() -> list[Specimen]:
    batches = ({"ids": list(range(200))}, {"ids": list(range(100))}, {"ids": list(range(100)) * 3})
    mean = CroppedMean(universe=400, epsilon=2.0, crop=3)
    heavy = HeavyFraction(universe=400, epsilon=4.0, threshold=4)
    return [
        Specimen(name="CroppedMean", algorithm=mean, batches=batches, bad=BAD_IDS, truth=1.0, canary=CANARY),
        Specimen(
            name="CroppedMean of one appearance is a density",
            algorithm=replace(mean, crop=1),
            batches=batches,
            bad=BAD_IDS,
            truth=0.5,
            noiseless=replace(mean, crop=1, epsilon=math.inf),
            canary=CANARY,
        ),
        Specimen(
            name="RefreshableCroppedMean",
            algorithm=RefreshableCroppedMean(universe=400, epsilon=4.0, crop=3),
            batches=batches,
            bad=BAD_IDS,
            truth=1.0,
            canary=CANARY,
        ),
        Specimen(name="HeavyFraction", algorithm=heavy, batches=batches, bad=BAD_IDS, truth=0.25, canary=CANARY),
        Specimen(
            name="HeavyFraction, bracket",
            algorithm=replace(heavy, slack=1.0),
            batches=batches,
            bad=BAD_IDS,
            truth=0.25,
            canary=CANARY,
        ),
    ]


def density_specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and option that changes its claim."""
    return [*_density(), _listed(), _graph(), *_cropped()]
