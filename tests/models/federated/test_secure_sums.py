"""Secure sums: exact up to the noise of one holder, unreadable in parts, and every way to cheat refused or paid for."""

from __future__ import annotations

import contextlib
import functools
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from panstream.errors import FederationAborted, InvalidParameter, PeerUnreachable
from panstream.models.federated import (
    DistributedParameters,
    FederatedPairs,
    Federation,
    Holder,
    NoisyStatistics,
    Roster,
)
from panstream.models.federated._answers import KeyAnnouncement, Refused, TablesAnswer, read_answer
from panstream.models.federated._mask_code import combine, from_field
from panstream.models.federated._messages import digest
from panstream.models.federated._questions import Table
from panstream.models.federated.secure_sums import MARGIN, JoinSum, SubmitSum, noise_parts, noise_share
from panstream.models.networks import Records, contingency
from panstream.primitives.noise import DiscreteGaussian
from panstream.privacy.composition import zcdp_epsilon
from tests.models.federated.common import chain

RECORDS = chain(300)
SCHEMA = RECORDS.domain.digest()
NAMES = ("east", "north", "south", "west")
KEYS = {name: Ed25519PrivateKey.generate() for name in (*NAMES, "mallory")}
PUBLIC = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}
TABLES = (Table(attributes=(0, 1), budget=0.001), Table(attributes=(2,), budget=0.001))


def roster(name: str, **changed: object) -> Roster:
    given = {"key": KEYS[name], "members": {each: PUBLIC[each] for each in NAMES}, "colluders": 1}
    return Roster(**{**given, **changed})  # type: ignore[arg-type]


def holders(names: tuple[str, ...] = NAMES, records: Records = RECORDS, **given: object) -> list[Holder]:
    options = {"epsilon": 5.0, "delta": 1e-6, **given}
    return [Holder(name, records, roster=roster(name), **options) for name in names]  # type: ignore[arg-type]


def opening_question(run: str = "r", members: tuple[str, ...] = NAMES, colluders: int = 1) -> JoinSum:
    return JoinSum(run=run, domain=SCHEMA, tables=TABLES, members=members, colluders=colluders, dropouts=0)


def ask(holder: Holder, question: JoinSum | SubmitSum) -> object:
    return read_answer(holder.answer(question.write()), digest(question.write()))


def closing(question: JoinSum, everybody: list[Holder]) -> SubmitSum:
    openings = [ask(holder, question) for holder in everybody]
    assert all(isinstance(opening, KeyAnnouncement) for opening in openings)
    return SubmitSum.after(question, openings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_sum_is_exact_up_to_the_noise_it_announces() -> None:
    """960 cells of noise; their variance is within 6 standard errors (probability of failure below 1e-8)."""
    exact = [len(NAMES) * contingency(RECORDS, table.attributes) for table in TABLES]
    gaps = []
    repeats = 120
    for run in range(repeats):
        sums = Federation(RECORDS.domain, holders(epsilon=50.0), run=f"r{run}").secure_sums(TABLES, colluders=2)
        gaps += [(found - true).ravel() for found, true in zip(sums.tables, exact, strict=True)]
    noise = np.concatenate(gaps)
    variance = noise_share(0.001, 2).variance * 4
    assert math.isclose(sums.deviations[0] ** 2, variance, rel_tol=1e-12)
    assert abs(noise.var() / variance - 1) < 6 * math.sqrt(2 / noise.size)


def test_noise_never_enters_the_counts_that_later_answers_start_from() -> None:
    """Two sums with the same part of the noise would differ by a holder's table under less noise than was paid for."""
    everybody = holders()
    exact = contingency(RECORDS, (0, 1))
    for run in ("one", "two"):
        question = closing(opening_question(run), everybody)
        assert all(isinstance(ask(holder, question), TablesAnswer) for holder in everybody)
    assert all((holder._statistics.exact((0, 1)) == exact).all() for holder in everybody)


@pytest.mark.parametrize(("members", "colluders"), [(3, 1), (10, 3), (30, 10)])
def test_the_honest_parts_together_have_the_noise_of_one_holder(members: int, colluders: int) -> None:
    """A table of budget rho needs a variance of 1/rho, the squared L2 distance 2 of a replaced record over 2·rho."""
    budget = 0.001
    honest = noise_share(budget, noise_parts(members, colluders, 0)).variance * (members - colluders)
    assert 1 / budget <= honest <= 1.01 / budget


def convolved(sigma: float, parts: int) -> NDArray[np.float64]:
    """The exact distribution of a sum of discrete Gaussians, as an array around 0."""
    reach = math.ceil(16 * sigma)
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return functools.reduce(np.convolve, [one / one.sum()] * parts)


def renyi(distribution: NDArray[np.float64], alpha: float) -> float:
    """The divergence of order alpha between a distribution and itself moved by one."""
    logs = np.log(distribution[distribution > 1e-100])  # beyond, less than 1e-90 of the sum
    return math.log(float(np.exp(alpha * logs[1:] + (1 - alpha) * logs[:-1]).sum())) / (alpha - 1)


@pytest.mark.parametrize(("spread", "parts"), [(3.0, 2), (3.0, 7), (4.5, 3)])
def test_added_discrete_noise_costs_what_one_of_its_variance_costs(spread: float, parts: int) -> None:
    """Exact convolution: the Rényi divergence of all orders to a neighbour stays below alpha/(2·m·s²)·(1 + 1e-9)."""
    summed = convolved(spread, parts)
    for alpha in (1.5, 2.0, 4.0, 16.0):
        assert renyi(summed, alpha) <= alpha / (2 * parts * spread**2) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("members", "colluders"), [(3, 1), (4, 2), (10, 3), (30, 10)])
def test_a_table_costs_no_more_than_is_charged_at_the_least_noise_that_is_allowed(members: int, colluders: int) -> None:
    """The shipped parts, convolved exactly: a replaced record moves two cells, at every order below the charge."""
    budget = 1 / (9.0001 * (members - colluders))  # parts with a standard deviation just above 3
    table = Table(attributes=(0,), budget=budget)
    names = tuple(f"h{number:02}" for number in range(members))
    join = JoinSum(run="r", domain=SCHEMA, tables=(table,), members=names, colluders=colluders, dropouts=0)
    openings = [KeyAnnouncement(key=f"{number:064x}", signature="0" * 128) for number in range(members)]
    charge = SubmitSum.after(join, openings).loss().rho
    summed = convolved(noise_share(budget, noise_parts(members, colluders, 0)).sigma, members - colluders)
    for alpha in (1.1, 2.0, 5.0, 20.0):
        assert 2 * renyi(summed, alpha) <= alpha * charge + 1e-12


@pytest.mark.parametrize(("spread", "parts"), [(0.5, 2), (0.5, 4), (0.7, 3), (1.0, 5)])
def test_the_papers_bound_holds_where_it_can_be_seen(spread: float, parts: int) -> None:
    """Kairouz, Liu, Steinke 2021: m parts are ½e²-zCDP with e² = D²/(m·s²) + τ/2·d, τ = 10·Σ exp(-2π²s²k/(k+1)).

    Exact for one cell, d = 1, moved by D = 1; without τ it fails at the smallest noise, so the constant is needed.
    """
    summed = convolved(DiscreteGaussian.at_least(spread).sigma, parts)
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * spread**2 * k / (k + 1)) for k in range(1, parts))
    e = min(math.sqrt(1 / (parts * spread**2) + tau / 2), 1 / (math.sqrt(parts) * spread) + tau)
    rho = max(renyi(summed, alpha) / alpha for alpha in (1.05, 1.5, 2.0, 4.0, 16.0))
    assert rho <= e**2 / 2
    if spread == 0.5:
        assert rho > 1 / (2 * parts * spread**2)


def test_the_margin_covers_the_papers_excess_at_any_size() -> None:
    """2^25 cells, 1,000 members and parts of a standard deviation of 3: the bound adds less than a part in 1e9."""
    tau = 10 * 999 * math.exp(-(math.pi**2) * 9)
    rho = 1 / (9 * 999)
    assert tau / 4 * 2**25 < rho * MARGIN


def test_a_part_of_the_sum_is_noise_over_the_whole_field() -> None:
    """Three of four vectors: the missing member's masks spread each cell over the field (8 cells, 1 in 2^72)."""
    everybody = holders()
    question = closing(opening_question(), everybody)
    found = [ask(holder, question) for holder in everybody]
    vectors = [each.tables[0].astype(np.uint64) for each in found]  # type: ignore[attr-defined]
    assert np.abs(from_field(combine([(1, vector) for vector in vectors], 8))).max() < 10_000
    for left_out in vectors:
        others = combine([(1, vector) for vector in vectors if vector is not left_out], 8)
        assert np.abs(from_field(others).astype(float)).max() > 2.0**52
    again = [ask(holder, question) for holder in everybody]
    assert all((a.tables[0] == b.tables[0]).all() for a, b in zip(found, again, strict=True))  # type: ignore[attr-defined]
    assert len(everybody[0].ledger.rows()) == 1


def test_the_charge_is_the_tables_budgets() -> None:
    (first, *_) = everybody = holders()
    Federation(RECORDS.domain, everybody).secure_sums(TABLES)
    assert math.isclose(first.ledger.total.rho, 0.002, rel_tol=1e-8)
    assert first.ledger.total.rho >= 0.002


def test_an_analyst_who_lies_about_a_dropout_pays_twice() -> None:
    (first, *_) = everybody = holders()
    assert isinstance(ask(first, closing(opening_question(), everybody)), TablesAnswer)
    fewer = opening_question(members=NAMES[:3])
    assert isinstance(ask(first, closing(fewer, everybody[:3])), TablesAnswer)
    assert math.isclose(first.ledger.total.rho, 0.004, rel_tol=1e-8)


def test_a_second_closing_with_other_openings_is_refused_and_free() -> None:
    everybody = holders()
    question = closing(opening_question(), everybody)
    assert isinstance(ask(everybody[0], question), TablesAnswer)
    fresh = closing(opening_question(), holders())
    mixed = replace(question, openings=(question.openings[0], *fresh.openings[1:]))
    answer = ask(everybody[0], mixed)
    assert isinstance(answer, Refused)
    assert "already closed" in answer.text
    assert len(everybody[0].ledger.rows()) == 1


def refused(answer: object, reason: str, text: str) -> None:
    assert isinstance(answer, Refused)
    assert answer.reason == reason
    assert text in answer.text


def test_invented_members_and_foreign_openings_are_refused() -> None:
    everybody = holders()
    refused(ask(everybody[0], opening_question(members=("east", "mallory", "north"))), "roster", "not pinned")
    refused(ask(everybody[0], opening_question(members=("north", "south", "west"))), "roster", "not a member")
    question = closing(opening_question(), everybody)
    forged = KeyAnnouncement(key="ab" * 32, signature=question.openings[1].signature)
    replayed = closing(opening_question("other"), everybody).openings[1]
    for bad in (forged, replayed):
        openings = (question.openings[0], bad, *question.openings[2:])
        refused(ask(everybody[0], replace(question, openings=openings)), "question", "not signed by its pinned key")
    own = closing(opening_question("third"), everybody).openings[0]
    refused(
        ask(everybody[0], replace(question, openings=(own, *question.openings[1:]))), "question", "not signed by its"
    )
    assert everybody[0].ledger.rows() == []
    assert isinstance(ask(everybody[0], question), TablesAnswer)  # the refusals used nothing up


def test_rosters_cannot_be_mixed() -> None:
    """Openings for a sum over three are not openings for one over four, and nobody stands in for two members."""
    everybody = holders()
    four = closing(opening_question(), everybody)
    three = closing(opening_question(members=NAMES[:3]), everybody[:3])
    mixed = replace(four, openings=(*three.openings, four.openings[3]))
    refused(ask(everybody[0], mixed), "question", "not signed by its pinned key")
    refused(ask(everybody[0], replace(three, openings=four.openings[:3])), "question", "not signed by its pinned key")
    with pytest.raises(InvalidParameter, match="same key"):
        replace(four, openings=(four.openings[0], *four.openings[:3]))
    assert everybody[0].ledger.rows() == []


def test_a_member_whose_key_everybody_could_use_is_refused() -> None:
    """A point of small order, properly signed: the shared secret would be 0 for everyone."""
    everybody = holders()
    question = closing(opening_question(), everybody)
    weak = bytes(32)
    signature = roster("north").sign(question.opened, "north", weak).hex()
    openings = (question.openings[0], KeyAnnouncement(key=weak.hex(), signature=signature), *question.openings[2:])
    refused(ask(everybody[0], replace(question, openings=openings)), "question", "not a valid one")
    assert everybody[0].ledger.rows() == []
    assert isinstance(ask(everybody[0], question), TablesAnswer)  # the one-time key is still there


def test_a_holder_that_comes_twice_stops_the_run_and_one_that_repeats_sends_the_same() -> None:
    everybody = holders()
    twice = Holder("east", RECORDS, epsilon=5.0, delta=1e-6, roster=roster("east"))
    with pytest.raises(FederationAborted, match="same name"):
        Federation(RECORDS.domain, [*everybody, twice]).secure_sums(TABLES)
    federation = [Federation(RECORDS.domain, everybody, run="r") for _ in range(2)]
    first, second = (each.secure_sums(TABLES) for each in federation)
    assert all((a == b).all() for a, b in zip(first.tables, second.tables, strict=True))
    assert all(len(holder.ledger.rows()) == 1 for holder in everybody)


def test_holders_without_a_roster_or_with_higher_demands_stay_out() -> None:
    plain = Holder("east", RECORDS, epsilon=1.0, delta=1e-6)
    refused(ask(plain, opening_question()), "roster", "no roster")
    careful = Holder("east", RECORDS, epsilon=1.0, delta=1e-6, roster=roster("east", colluders=2))
    refused(ask(careful, opening_question()), "roster", "asks for 2")
    wrong = Holder("east", RECORDS, epsilon=1.0, delta=1e-6, roster=roster("east", key=KEYS["mallory"]))
    refused(ask(wrong, opening_question()), "roster", "itself")


@pytest.mark.parametrize(
    ("members", "colluders", "budget", "text"),
    [
        (("a", "b"), 1, 0.001, "3 to"),
        (("b", "a", "c"), 1, 0.001, "in order"),
        (("a", "b", "c"), 2, 0.001, "colluders"),
        (("a", "b", "c"), 0, 0.001, "colluders"),
        (("a", "b", "c"), 1, 0.5, "smaller budget"),
    ],
)
def test_sums_that_would_protect_nobody_cannot_be_asked(
    members: tuple[str, ...], colluders: int, budget: float, text: str
) -> None:
    tables = (Table(attributes=(0,), budget=budget),)
    with pytest.raises(InvalidParameter, match=text):
        JoinSum(run="r", domain=SCHEMA, tables=tables, members=members, colluders=colluders, dropouts=0)


def test_the_budget_refuses_before_anything_is_drawn_and_the_key_stays() -> None:
    everybody = holders(epsilon=0.05)
    question = closing(opening_question(), everybody)
    refused(ask(everybody[0], question), "budget", "epsilon")
    assert everybody[0].ledger.rows() == []


def test_the_one_time_key_leaves_the_ledger_with_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "east.ledger"
    first = Holder("east", RECORDS, epsilon=5.0, delta=1e-6, ledger=path, roster=roster("east"))
    everybody = [first, *holders(NAMES[1:])]
    question = closing(opening_question(), everybody)
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        secret = ledger.execute("SELECT secret FROM openings").fetchone()[0]
    assert len(secret) == 32
    assert isinstance(ask(first, question), TablesAnswer)
    assert all(secret not in each.read_bytes() for each in tmp_path.iterdir())  # the write-ahead log too
    first.close()
    assert secret not in path.read_bytes()


class Failing:
    """A channel that fails from the n-th question on."""

    remote = False

    def __init__(self, holder: Holder, after: int) -> None:
        self.holder = holder
        self.left = after
        self.name = holder.name

    def answer(self, data: bytes) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise PeerUnreachable("it is gone")
        return self.holder.answer(data)


def test_who_fails_early_is_left_out_and_who_fails_late_stops_the_run() -> None:
    everybody = holders()
    early = Federation(RECORDS.domain, [*everybody[:3], Failing(everybody[3], 1)], attempts=1)
    assert early.secure_sums(TABLES).holders == 3
    assert list(early.dropped) == ["west"]
    everybody = holders()
    late = Federation(RECORDS.domain, [*everybody[:3], Failing(everybody[3], 2)], attempts=1)
    with pytest.raises(FederationAborted, match="charged again"):
        late.secure_sums(TABLES)


@pytest.mark.slow
def test_all_pairs_over_secure_sums_say_what_they_rest_on() -> None:
    model = FederatedPairs(epsilon=1.0, delta=1e-6, secure=True).run(Federation(RECORDS.domain, holders()))
    assert (model.claim.epsilon, model.claim.delta) == (1.0, 1e-6)
    assert "up to 1 of 4 holders" in model.claim.assumption
    assert math.isclose(model.network.marginal((0, 1)).sum(), 1.0, rel_tol=1e-9)
    with pytest.raises(InvalidParameter, match="secure"):
        FederatedPairs(epsilon=1.0, colluders=2)


def test_a_holders_own_claim_says_what_it_rests_on() -> None:
    """Of two sums, each with its own number of colluders; what is left without them adds up over both."""
    everybody = holders(delta=1e-6)
    assert everybody[0].claim().assumption == ""
    for run, colluders in (("one", 1), ("two", 2)):
        question = closing(opening_question(run, colluders=colluders), everybody)
        assert isinstance(ask(everybody[0], question), TablesAnswer)
    claim = everybody[0].claim()
    assert "up to 1 of 4 holders" in claim.assumption and "up to 2 of 4 holders" in claim.assumption
    assert math.isclose(claim.epsilon, zcdp_epsilon(2 * 0.002 * (1 + MARGIN), 1e-6), rel_tol=1e-9)
    alone = zcdp_epsilon((3 + 2) * 0.002, 1e-6)  # one part of three of the noise is left, or of two
    assert f"if all others collude, epsilon is {alone:.3g}" in claim.assumption
    assert everybody[1].claim().assumption == ""  # it opened both sums and closed none


@pytest.mark.slow
def test_the_claims_of_analyst_and_holder_name_the_same_assumption(tmp_path: Path) -> None:
    """Also after a restart: it is stored with the charge."""
    ledger = tmp_path / "north.sqlite"
    everybody = [
        Holder(name, RECORDS, epsilon=1.0, delta=1e-6, roster=roster(name), ledger=ledger if at == 1 else ":memory:")
        for at, name in enumerate(NAMES)
    ]
    model = FederatedPairs(epsilon=1.0, delta=1e-6, secure=True).run(Federation(RECORDS.domain, everybody))
    everybody[1].close()
    with Holder("north", RECORDS, epsilon=1.0, delta=1e-6, ledger=ledger) as north:
        assert north.claim().assumption == model.claim.assumption != ""
    assert "collude" not in model.claim.note


def test_a_secure_sum_has_less_noise_than_four_plain_answers() -> None:
    plain = Federation(RECORDS.domain, holders()).sums("gaussian", TABLES).deviations
    secure = Federation(RECORDS.domain, holders()).secure_sums(TABLES).deviations
    ratios = [one / other for one, other in zip(secure, plain, strict=True)]
    assert ratios == pytest.approx([math.sqrt(1 / 3)] * 2, rel=1e-3)  # of sqrt(4/3) sigma and 2 sigma


@pytest.mark.parametrize(
    "method",
    [
        NoisyStatistics(epsilon=1.0, delta=1e-6, secure=True),
        DistributedParameters(epsilon=1.0, delta=1e-6, secure=True, parents=((), (0,), (1,), (2,))),
    ],
    ids=lambda method: type(method).__name__,
)
def test_the_thesis_statistics_by_secure_sums(method: NoisyStatistics | DistributedParameters) -> None:
    """They cost exactly the claim, and the noise of the sums is that of one holder, whatever the number of holders."""
    everybody = holders(epsilon=1.0)
    model = method.run(Federation(RECORDS.domain, everybody))
    assert (model.claim.epsilon, model.claim.delta) == (1.0, 1e-6)
    assert "up to 1 of 4 holders" in model.claim.assumption
    assert model.method.endswith("secure sums")
    assert all(0.999 < holder.ledger.epsilon <= 1.0 for holder in everybody)
    with pytest.raises(FederationAborted, match="budget"):
        method.run(Federation(RECORDS.domain, holders(epsilon=0.99)))


def test_what_secure_sums_of_the_thesis_statistics_need() -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        NoisyStatistics(epsilon=1.0, secure=True)
    with pytest.raises(InvalidParameter, match="clip_at_holder"):
        NoisyStatistics(epsilon=1.0, delta=1e-6, secure=True, clip_at_holder=True)
    with pytest.raises(InvalidParameter, match="secure=True"):
        NoisyStatistics(epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidParameter, match="secure=True"):
        DistributedParameters(epsilon=1.0, colluders=1, parents=((),))
