"""Claims by enumeration: the exact law of what a holder sends, for all pairs of tables that differ in one record."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from panstream.errors import FederationAborted
from panstream.models.federated import (
    AverageScores,
    DistributedParameters,
    FederatedTree,
    Federation,
    GaussianSums,
    Holder,
    IndependentMarginals,
    MajorityVoting,
    NoisyModel,
    NoisyStatistics,
)
from panstream.models.federated._answers import Answer, LocalModelAnswer, TablesAnswer, VoteAnswer, read_answer
from panstream.models.federated._messages import digest
from panstream.models.federated._question_registry import Question
from panstream.models.federated._questions import (
    CountTables,
    LocalModel,
    LocalScores,
    Table,
    Vote,
)
from panstream.models.federated._statistics import Statistics
from panstream.models.networks import Records
from panstream.primitives.noise import DiscreteGaussian
from panstream.privacy.composition import _zcdp_delta, zcdp_rho
from panstream.privacy.table_loss import table_sigma
from tests.models.federated.common import RecordingSource, all_outcomes, chain, deal, tiny_worlds
from tests.models.renyi import divergence

SCHEMA = {attributes: next(tiny_worlds(2, attributes))[0].domain.digest() for attributes in (2, 3)}
EPSILON = 0.8


def plain(answer: Answer) -> tuple[object, ...]:
    match answer:
        case TablesAnswer(tables=tables):
            return tuple(table.tobytes() for table in tables)
        case VoteAnswer(child=child, parents=parents):
            return child, parents
        case LocalModelAnswer(parents=parents, tables=tables):
            return parents, *(table.tobytes() for table in tables)
        case _:
            raise TypeError(answer)


def law(records: Records, question: Question, window: tuple[int, int]) -> dict[tuple[object, ...], float]:
    statistics = Statistics(records)  # what a holder does once its ledger has let the question pass
    return all_outcomes(lambda rng: plain(question.draw(statistics, rng)), window)


def worst_loss(question: Question, records: int, attributes: int = 2, window: tuple[int, int] = (0, 0)) -> float:
    """Return the largest log ratio over all neighbours and answers."""
    laws: dict[bytes, dict[tuple[object, ...], float]] = {}
    worst = 0.0
    for pair in tiny_worlds(records, attributes):
        found = []
        for world in pair:
            key = np.sort((1 << np.arange(attributes)) @ world.codes).tobytes()
            if key not in laws:
                laws[key] = law(world, question, window)
            found.append(laws[key])
        assert found[0].keys() == found[1].keys()
        worst = max(worst, *(abs(p - found[1][answer]) for answer, p in found[0].items()))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("records", [1, 2, 3, 4])
def test_tables_with_laplace_noise_lose_their_epsilon_and_not_less(records: int) -> None:
    table = Table(attributes=(0, 1), budget=EPSILON)
    question = CountTables(run="r", domain=SCHEMA[2], noise="laplace", tables=(table,))
    # Beyond the counts that can occur likelihood ratios are constant, so the window may end there.
    loss = worst_loss(question, records, window=(0, records))
    assert EPSILON * 0.999 < loss <= EPSILON * (1 + 1e-9)


def test_several_tables_share_the_loss() -> None:
    tables = (Table(attributes=(0,), budget=EPSILON / 4), Table(attributes=(1,), budget=3 * EPSILON / 4))
    question = CountTables(run="r", domain=SCHEMA[2], noise="laplace", tables=tables)
    assert worst_loss(question, 2, window=(0, 2)) == pytest.approx(EPSILON, rel=1e-9)


def test_a_local_model_loses_its_two_shares() -> None:
    question = LocalModel(run="r", domain=SCHEMA[2], degree=1, root=0, structure=0.3, parameters=0.5)
    loss = worst_loss(question, 2, window=(0, 2))
    assert 0.5 * 0.999 < loss <= 0.8  # with two attributes there is only one structure, which costs nothing


@pytest.mark.parametrize("records", [2, 3, 4])
@pytest.mark.parametrize("placed", [(0,), (0, 2)])
def test_votes_lose_at_most_their_epsilon(records: int, placed: tuple[int, ...]) -> None:
    question = Vote(run="r", domain=SCHEMA[3], placed=placed, degree=1, epsilon=EPSILON)
    loss = worst_loss(question, records, attributes=3)
    assert EPSILON / 4 < loss <= EPSILON * (1 + 1e-9)


def test_a_vote_scaled_by_everybodys_records_would_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the thesis's form amounts to when a holder takes the pooled number of records for its own."""
    from panstream.models.federated import _statistics as statistics

    real = statistics.mutual_information_sensitivity
    monkeypatch.setattr(statistics, "mutual_information_sensitivity", lambda n, binary: real(10 * n, binary=binary))
    question = Vote(run="r", domain=SCHEMA[3], placed=(0,), degree=1, epsilon=EPSILON)
    assert worst_loss(question, 3, attributes=3) > EPSILON


def test_local_scores_lose_at_most_their_epsilon() -> None:
    question = LocalScores(run="r", domain=SCHEMA[2], families=((0, 1),), epsilon=EPSILON)
    laws: list[object] = []
    worst = 0
    for one, other in tiny_worlds(3):
        found = []
        for world in (one, other):
            data = question.write()
            holder = Holder("h", world, epsilon=math.inf, rng_factory=lambda: RecordingSource(laws))
            found.append(int(read_answer(holder.answer(data), digest(data)).scores[0]))
        worst = max(worst, abs(found[0] - found[1]))
    kappas = {law.kappa for law in laws if law.numerator}
    assert 0.999 * EPSILON < worst * max(kappas) <= EPSILON


@pytest.mark.parametrize("rho", [0.5, 0.02, 0.0005])
def test_tables_with_gaussian_noise_lose_their_rho_and_not_less(rho: float) -> None:
    noise = DiscreteGaussian.at_least(table_sigma(rho))
    losses = [2 * divergence(noise, 1, alpha) / alpha for alpha in (1.5, 2.0, 4.0, 16.0)]  # two cells move by one
    assert max(losses) <= rho * (1 + 1e-9)
    assert max(losses) > 0.99 * rho


def delta_of(numerators: list[int], epsilon: float) -> float:
    """Return the exact delta at ``epsilon`` of tables with these laws: in each, one cell gains and one loses a unit.

    The loss is linear in the noise, so with noises k and l in a table it is rate·(2(k - l) + 2). Its law is found by
    convolving the laws of k - l on a common grid, each loss rounded up.
    """
    step = epsilon / 1000
    law = np.array([1.0])
    offset = 0
    for numerator in numerators:
        rate = numerator / 2**52
        reach = int(12 / math.sqrt(2 * rate)) + 2
        k = np.arange(-reach, reach + 1)
        single = np.exp(-rate * k.astype(float) ** 2)
        single /= single.sum()
        both = np.maximum(signal.fftconvolve(single, single), 0.0)
        losses = np.ceil(rate * (2 * np.arange(-2 * reach, 2 * reach + 1) + 2) / step).astype(int)
        one = np.bincount(losses - losses[0], both)
        law = np.maximum(signal.fftconvolve(law, one), 0.0)
        offset += int(losses[0])
    losses = (offset + np.arange(law.size)) * step
    above = losses > epsilon
    return float((law[above] * -np.expm1(epsilon - losses[above])).sum())


@pytest.mark.parametrize("method", [GaussianSums, FederatedTree, IndependentMarginals])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_gaussian_methods_keep_epsilon_and_delta_on_two_attributes(method: type, epsilon: float) -> None:
    """All tables that one run asked a holder of two binary attributes for, with the laws that were drawn from."""
    laws: list[object] = []
    records = chain(4000, attributes=2)
    holders = [Holder("h", records, epsilon=epsilon, delta=1e-3, rng_factory=lambda: RecordingSource(laws))]
    method(epsilon=epsilon, delta=1e-3).run(Federation(records.domain, holders))
    numerators = [law.numerator for law in _per_table(laws, method)]
    exact = delta_of(numerators, epsilon)
    rho = sum(2 * numerator / 2**52 for numerator in numerators)
    assert exact <= 1e-3
    assert rho <= zcdp_rho(epsilon, 1e-3) * (1 + 1e-9) < 1.001 * rho
    assert _zcdp_delta(rho, epsilon) <= 1e-3 * (1 + 1e-6)


def _per_table(laws: list[object], method: type) -> list[DiscreteGaussian]:
    """One law per table: neighbouring tables of equal shares were noised in one call."""
    found = [law for law in laws if isinstance(law, DiscreteGaussian)]
    return found * 2 if method is IndependentMarginals else found


@pytest.mark.parametrize(
    ("method", "delta"),
    [
        (NoisyStatistics(epsilon=EPSILON), 0.0),
        (NoisyStatistics(epsilon=EPSILON, degree=2, clip_at_holder=True), 0.0),
        (MajorityVoting(epsilon=EPSILON), 0.0),
        (MajorityVoting(epsilon=EPSILON, degree=2, split=0.3), 0.0),
        (NoisyModel(epsilon=EPSILON, degree=2), 0.0),
        (AverageScores(epsilon=EPSILON, degree=2), 0.0),
        (AverageScores(epsilon=EPSILON, average="median"), 0.0),
        (DistributedParameters(epsilon=EPSILON, parents=((), (0,), (0, 1), (2,))), 0.0),
        (IndependentMarginals(epsilon=EPSILON), 0.0),
        (IndependentMarginals(epsilon=EPSILON, delta=1e-6, by_size=True), 1e-6),
        (GaussianSums(epsilon=EPSILON, delta=1e-6), 1e-6),
        (GaussianSums(epsilon=EPSILON, delta=1e-6, degree=2), 1e-6),
        (FederatedTree(epsilon=EPSILON, delta=1e-6), 1e-6),
    ],
    ids=range(13),
)
def test_each_holder_is_charged_the_claim_and_not_more(method: object, delta: float) -> None:
    """Composition per holder: a budget of exactly the claim suffices, one a percent smaller does not."""
    records = chain(3000)
    holders = deal(records, 3, epsilon=EPSILON, delta=delta)
    result = method.run(Federation(records.domain, holders, minimum=3))  # type: ignore[attr-defined]
    assert result.claim.epsilon == EPSILON
    assert (result.claim.delta, result.claim.unit, result.claim.adjacency) == (delta, "record", "replace")
    for holder in holders:
        assert EPSILON * 0.999 < holder.claim().epsilon <= EPSILON * (1 + 1e-9)
        assert holder.claim().delta == delta
    small = deal(records, 3, epsilon=EPSILON * 0.99, delta=delta)
    with pytest.raises(FederationAborted, match="budget"):
        method.run(Federation(records.domain, small, minimum=3))  # type: ignore[attr-defined]
    assert all(holder.ledger.epsilon <= EPSILON * 0.99 * (1 + 1e-9) for holder in small)


def test_pure_questions_cost_less_in_a_budget_with_delta() -> None:
    records = chain(3000)
    holder = Holder("h", records, epsilon=10.0, delta=1e-6)
    MajorityVoting(epsilon=1.0).run(Federation(records.domain, [holder]))
    votes = 3 * (0.5 / 3) ** 2 / 8
    tables = 3 * (0.5 / 3) ** 2 / 2
    assert holder.ledger.total.rho == pytest.approx(votes + tables)


def test_a_test_source_makes_no_claim() -> None:
    records = chain(300)
    holders = deal(records, 2, rng_factory=lambda: RecordingSource([]))
    result = NoisyStatistics(epsilon=1.0).run(Federation(records.domain, holders))
    assert math.isinf(result.claim.epsilon)
