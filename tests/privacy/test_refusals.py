"""A budget of nothing, less than nothing or no number is refused everywhere it can be given."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from panstream.errors import InvalidParameter
from panstream.models.networks import PrivBayes, TreeNetwork
from panstream.privacy import table_loss as tables
from panstream.privacy.bitmap_loss import bitmap_split
from panstream.privacy.budget_split import density_split
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.continual_loss import tables_laws, tree_kappa
from panstream.privacy.turnstile_loss import counter_split, profile_split
from panstream.testing.conformance import Specimen
from tests.conformance.specimens import specimens

FORMS: dict[str, Callable[[float], Any]] = {
    "bitmap_split": lambda epsilon: bitmap_split(epsilon, 64, 4, 100.0, announced=1),
    "toggling": lambda epsilon: bitmap_split(epsilon, 64, 4, 100.0, turns=2),
    "density_split": lambda epsilon: density_split(epsilon, 100),
    "counter_split": lambda epsilon: counter_split(epsilon, 100, 7),
    "profile_split": lambda epsilon: profile_split(epsilon, 100, 7),
    "tree_kappa": lambda epsilon: tree_kappa(epsilon, 3),
    "tables_laws": lambda epsilon: tables_laws(epsilon, 0.0, 3, [Fraction(1)]),
    "zcdp_rho": lambda epsilon: zcdp_rho(epsilon, 1e-6),
    "table_kappa": tables.table_kappa,
    "choice_rate": lambda epsilon: tables.choice_rate(epsilon, 1),
    "PrivBayes": lambda epsilon: PrivBayes(epsilon=epsilon),
    "TreeNetwork": lambda epsilon: TreeNetwork(epsilon=epsilon),
}
WITH_EPSILON = [
    specimen for specimen in specimens() if hasattr(specimen.algorithm, "epsilon")
]  # a merged state has none
WITH_SPLIT = [specimen for specimen in WITH_EPSILON if hasattr(specimen.algorithm, "epsilon_state")]
WITH_PARTS = [specimen for specimen in specimens() if specimen.algorithm.claim().parts]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_closed_forms_and_networks(form: Callable[[float], Any], epsilon: float) -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be positive"):
        form(epsilon)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("specimen", WITH_EPSILON, ids=str)
def test_every_algorithm(specimen: Specimen, epsilon: float) -> None:
    with pytest.raises(InvalidParameter, match=f"epsilon must be positive, got epsilon={epsilon}$"):  # what was given
        replace(specimen.algorithm, epsilon=epsilon)


@pytest.mark.parametrize("specimen", WITH_SPLIT, ids=str)
def test_a_state_takes_more_than_nothing_and_less_than_everything(specimen: Specimen) -> None:
    epsilon = specimen.algorithm.epsilon
    for share in (0.0, -0.5, epsilon, 2.0 * epsilon, math.nan):
        with pytest.raises(InvalidParameter, match="epsilon_state must be"):
            replace(specimen.algorithm, epsilon_state=share)
    start = getattr(specimen.algorithm, "start_rate", 0.0)  # of the budget, where the start is released too
    top = (epsilon - start) / (1 + getattr(specimen.algorithm, "announced", 0))
    assert replace(specimen.algorithm, epsilon_state=0.9 * top).claim().epsilon == pytest.approx(epsilon)


@pytest.mark.parametrize("specimen", WITH_PARTS, ids=str)
def test_the_parts_of_every_claim_add_up(specimen: Specimen) -> None:
    claim = specimen.algorithm.claim()
    assert sum(claim.parts.values()) == pytest.approx(claim.epsilon, rel=1e-9)


@pytest.mark.parametrize("specimen", WITH_EPSILON, ids=str)
def test_a_claim_says_that_there_is_no_noise_exactly_when_there_is_none(specimen: Specimen) -> None:
    assert "no noise" not in specimen.algorithm.claim().note
    assert "no noise" in replace(specimen.algorithm, epsilon=math.inf).claim().note
