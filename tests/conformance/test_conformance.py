"""Every shipped algorithm goes through the public conformance suite, and the suite itself can fail."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.density import OptBern
from panstream.algorithms.density.presence import Presence, PresenceBatch
from panstream.algorithms.randomized_bits import BitState
from panstream.algorithms.secret_shared import capped_counts as capped
from panstream.algorithms.secret_shared import continual as ticks
from panstream.algorithms.secret_shared import presence as bits
from panstream.core.catalogue import ALGORITHMS
from panstream.core.registry import find_algorithm
from panstream.primitives.noise import NoiseSource
from panstream.testing import conformance as checks
from panstream.testing.conformance import CHECKS, Specimen
from tests.conformance.specimens import specimens

SPECIMENS = specimens()
PROOFS = Path(__file__).parents[2] / "docs" / "proofs"


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=pytest.mark.slow if check.__name__ == "_error_bound_covers" else ())
        for check in CHECKS
    ],
    ids=lambda check: check.__name__.strip("_"),
)
@pytest.mark.parametrize("specimen", SPECIMENS, ids=str)
def test_conformance(specimen: Specimen, check: Callable[[Specimen], None]) -> None:
    check(specimen)


def test_every_algorithm_of_the_catalogue_has_a_specimen() -> None:
    assert {type(specimen.algorithm).__name__ for specimen in SPECIMENS} == set(ALGORITHMS)


@pytest.mark.parametrize(
    "name", [*ALGORITHMS, "SharedDistinct", "SharedGraphDensity", "SharedCroppedSum", "SharedContinual"]
)
def test_every_algorithm_names_a_proof_that_exists(name: str) -> None:
    shared = {"SharedDistinct": bits, "SharedGraphDensity": bits, "SharedCroppedSum": capped, "SharedContinual": ticks}
    algorithm = getattr(shared[name], name) if name in shared else find_algorithm(name)
    assert (PROOFS / algorithm.proof).is_file()


@dataclass(slots=True)
class Careless:
    """A state with an exact counter that nobody declared."""

    bits: np.ndarray
    frozen: np.ndarray
    released: int
    visits: int = 0


class Broken(OptBern):
    pass


class StartsClear(Broken):
    def initial_state(self, rng: NoiseSource) -> BitState:
        width = (self.cells + 7) // 8
        return BitState(bits=np.zeros(width, np.uint8), frozen=np.empty((0, width), np.uint8), released=0)


class Undeclared(Broken):
    state_type = Careless


class Forgetful(Broken):
    def release(self, state: BitState, rng: NoiseSource) -> Any:
        state.released = 0
        return Presence.release(self, state, rng)


class Optimist(Broken):
    def error_bound(self, *, beta: float) -> float:
        return Presence.error_bound(self, beta=beta) / 4


class HalfApplied(Broken):
    def batch(self, *args: Any, **kwargs: Any) -> PresenceBatch:
        try:
            return Presence.batch(self, *args, **kwargs)
        except ValueError as error:
            raise type(error)(f"cannot use {args} {kwargs}") from error


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (StartsClear, checks._start_is_already_noised),
        (Undeclared, checks._state_fields_are_declared),
        (Forgetful, checks._further_release_is_refused),
        (Optimist, checks._error_bound_covers),
        (HalfApplied, checks._errors_are_free_of_data),
    ],
)
def test_the_suite_catches(broken: type[Any], check: Callable[[Specimen], None]) -> None:
    base = SPECIMENS[0]
    specimen = replace(base, algorithm=broken(universe=400, epsilon=1.0))
    check(base)
    with pytest.raises(AssertionError):
        check(specimen)


def test_a_noisy_zero_noise_build_is_caught() -> None:
    specimen = replace(SPECIMENS[0], noiseless=OptBern(universe=400, epsilon=1.0))
    with pytest.raises(AssertionError):
        checks._zero_noise_is_exact(specimen)
    assert SPECIMENS[0].noiseless.claim().epsilon == math.inf
