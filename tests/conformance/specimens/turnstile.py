"""Specimens of the turnstile room."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from panstream.algorithms.continual_users.continual_moments import ContinualInnerProduct, ContinualSecondMoment
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.inner_product import InnerProduct
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.algorithms.turnstile.second_moment import SecondMoment
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import BAD_IDS, CANARY

__all__ = ["turnstile_specimens"]

_USERS = 400
# Users 0..199 end at weight 3, users 200..299 come and go, the rest never appear.
_BATCHES: tuple[dict[str, Any], ...] = (
    {"ids": list(range(300)), "weight": [5] * 300},
    {"ids": list(range(200)), "weight": [-2] * 200},
    {"ids": list(range(200, 300)), "weight": [-5] * 100},
    {"ids": [], "weight": []},
)


def turnstile_specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and option that changes its claim."""
    legendre = LegendreCounter(universe=_USERS, epsilon=2.0, max_weight=100)
    block = BlockCounter(universe=_USERS, epsilon=2.0, crop=2, max_weight=100, largest=1000)
    heavy = HeavyHitterCount(universe=_USERS, epsilon=2.0, threshold=2, min_net_weight=0, max_weight=100, largest=1000)
    profile = ProfileSketch(universe=_USERS, epsilon=2.0, largest=11, max_weight=100)
    variants: dict[str, tuple[Any, float]] = {
        "LegendreCounter": (legendre, 200.0),
        "LegendreCounter, three releases": (replace(legendre, releases=3), 200.0),
        "LegendreCounter, replace": (replace(legendre, adjacency="replace"), 200.0),
        "BlockCounter": (block, 400.0),
        "BlockCounter, replace": (replace(block, adjacency="replace"), 400.0),
        "HeavyHitterCount": (heavy, 200.0),
        "HeavyHitterCount, bracket": (replace(heavy, threshold=3, steps=2), 200.0),
        "ProfileSketch": (profile, 200.0),
        "ProfileSketch, one announced intrusion": (replace(profile, largest=5, announced=1), 200.0),
    }
    bad = (*BAD_IDS, {"ids": [3], "weight": [101]}, {"ids": [3, 4], "weight": [1]}, {"ids": [3], "weight": [None]})
    modular = [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=_BATCHES,
            bad=bad,
            truth=truth,
            noiseless=replace(algorithm, epsilon=math.inf),
            canary=CANARY,
        )
        for name, (algorithm, truth) in variants.items()
    ]
    return [*modular, *_moments()]


def _moments() -> list[Specimen]:
    second = SecondMoment(epsilon=8.0, expected=50.0, max_weight=5)
    product = InnerProduct(epsilon=8.0, expected=50.0, max_weight=5)
    tree: dict[str, Any] = {"releases": 6, "levels": 2, "capacity": 2, "buckets": 256}
    second_tree = ContinualSecondMoment(epsilon=20.0, expected=50.0, max_weight=5, **tree)
    product_tree = ContinualInnerProduct(epsilon=20.0, expected=50.0, max_weight=5, **tree)
    sided = tuple({**batch, "stream": side} for side in ("left", "right") for batch in _BATCHES)
    bad: tuple[dict[str, Any], ...] = (
        {"ids": [2, None]},
        {"ids": [f"x{CANARY}", None]},
        {"ids": [1.5]},
        {"ids": [3], "weight": [6]},
        {"ids": [3, 4], "weight": [1]},
        {"ids": [3], "weight": [None]},
    )
    sided_bad = tuple({**batch, "stream": "left"} for batch in bad)
    return [
        Specimen(name=name, algorithm=algorithm, batches=batches, bad=refused, truth=1800.0, canary=CANARY)
        for name, algorithm, batches, refused in (
            ("SecondMoment", second, _BATCHES, bad),
            ("SecondMoment, three releases", replace(second, releases=3), _BATCHES, bad),
            ("ContinualSecondMoment", second_tree, _BATCHES, bad),
            ("InnerProduct", product, sided, sided_bad),
            ("ContinualInnerProduct", product_tree, sided, sided_bad),
        )
    ]
