from __future__ import annotations

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidParameter, StoreDamaged
from panstream.models.federated import Holder
from panstream.models.federated._answers import HolderInfo, Refused, TablesAnswer, read_answer
from panstream.models.federated._messages import digest
from panstream.models.federated._questions import (
    CountTables,
    InfoQuestion,
    LocalModel,
    LocalScores,
    Table,
    Vote,
)
from panstream.models.networks import Domain, Records
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.privacy.holder_loss import Loss
from panstream.privacy.table_loss import mutual_information_sensitivity
from tests.models.federated.common import RecordingSource, chain

RECORDS = chain(200)
SCHEMA = RECORDS.domain.digest()


def count(run: str, budget: float, noise: str = "laplace", attributes: tuple[int, ...] = (0, 1)) -> bytes:
    table = Table(attributes=attributes, budget=budget)
    return CountTables(run=run, domain=SCHEMA, noise=noise, tables=(table,)).write()


def refusal(holder: Holder, question: bytes) -> Refused:
    answer = read_answer(holder.answer(question), digest(question))
    assert isinstance(answer, Refused)
    return answer


def test_the_same_question_is_charged_and_drawn_once() -> None:
    holder = Holder("h", RECORDS, epsilon=1.0)
    first = holder.answer(count("r", 0.5))
    assert [holder.answer(count("r", 0.5)) for _ in range(5)] == [first] * 5
    assert holder.ledger.total == Loss(epsilon=0.5, rho=0.125)
    assert holder.answer(count("s", 0.5)) != first
    assert holder.ledger.epsilon == pytest.approx(1.0)
    assert holder.claim().epsilon == pytest.approx(1.0)


def test_a_stored_answer_is_sent_even_when_the_budget_is_gone() -> None:
    holder = Holder("h", RECORDS, epsilon=0.5)
    first = holder.answer(count("r", 0.5))
    assert refusal(holder, count("s", 0.01)).reason == "budget"
    assert holder.answer(count("r", 0.5)) == first


def test_the_ledger_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Holder("h", RECORDS, epsilon=1.0, ledger=path) as holder:
        first = holder.answer(count("r", 0.75))
    with Holder("h", RECORDS, epsilon=1.0, ledger=path) as again:
        assert again.answer(count("r", 0.75)) == first
        assert again.ledger.epsilon == 0.75
        assert refusal(again, count("s", 0.75)).reason == "budget"
        assert [(kind, run) for kind, run, _ in again.ledger.rows()] == [("count-tables", "r")]


def test_a_ledger_of_another_table_or_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Holder("h", RECORDS, epsilon=1.0, ledger=path).close()
    with pytest.raises(StoreDamaged, match="records"):
        Holder("h", chain(199), epsilon=1.0, ledger=path)
    with pytest.raises(StoreDamaged, match="domain"):
        Holder("h", chain(200, attributes=3), epsilon=1.0, ledger=path)
    (tmp_path / "text").write_text("this is not a database at all, but long enough to be read as one")
    with pytest.raises(StoreDamaged, match="cannot be used"):
        Holder("h", RECORDS, epsilon=1.0, ledger=tmp_path / "text")


def test_what_fails_before_the_commit_is_not_charged(tmp_path: Path) -> None:
    class Broken(RecordingSource):
        def add_discrete_laplace(self, values: object, law: object) -> None:
            raise KeyboardInterrupt

    path = tmp_path / "ledger.sqlite"
    holder = Holder("h", RECORDS, epsilon=1.0, ledger=path, rng_factory=lambda: Broken([]))
    with pytest.raises(KeyboardInterrupt):
        holder.answer(count("r", 0.5))
    assert holder.ledger.total == Loss()
    holder.close()
    with Holder("h", RECORDS, epsilon=1.0, ledger=path) as again:
        assert again.ledger.total == Loss()
        assert isinstance(read_answer(again.answer(count("r", 1.0)), digest(count("r", 1.0))), TablesAnswer)


def test_an_answer_leaves_only_after_it_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Holder("h", RECORDS, epsilon=1.0, ledger=path) as holder:
        answer = holder.answer(count("r", 0.5))
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT answer, epsilon FROM answers").fetchall() == [(answer, 0.5)]
        other.close()


def test_many_threads_share_one_budget() -> None:
    holder = Holder("h", RECORDS, epsilon=1.0)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda at: holder.answer(count(f"run {at}", 0.1)), range(40)))
    served = [read_answer(data, digest(count(f"run {at}", 0.1))) for at, data in enumerate(answers)]
    assert sum(isinstance(each, TablesAnswer) for each in served) == 10
    assert holder.ledger.epsilon == pytest.approx(1.0)


def test_gaussian_noise_needs_a_delta_and_then_rho_adds_up() -> None:
    assert refusal(Holder("h", RECORDS, epsilon=100.0), count("r", 1e-6, "gaussian")).reason == "budget"
    holder = Holder("h", RECORDS, epsilon=1.0, delta=1e-6)
    whole = zcdp_rho(1.0, 1e-6)
    for part in range(4):
        holder.answer(count(f"run {part}", whole / 4, "gaussian"))
    assert holder.ledger.epsilon == pytest.approx(1.0)
    assert refusal(holder, count("more", whole / 1000, "gaussian")).reason == "budget"
    assert refusal(holder, count("more", 0.05)).reason == "budget"


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 10), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_the_rho_of_a_budget_is_its_largest(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon * (1 + 1e-9)
    assert zcdp_epsilon(rho * 1.001, delta) > epsilon


def test_questions_about_another_domain_or_outside_it_are_refused() -> None:
    holder = Holder("h", RECORDS, epsilon=1.0)
    table = Table(attributes=(0,), budget=0.1)
    foreign = CountTables(run="r", domain="other", noise="laplace", tables=(table,)).write()
    assert refusal(holder, foreign) == Refused(reason="schema", text="the question is about another domain")
    groups = Table(attributes=(0,), budget=0.1, groups=((0, 1, 1),))
    for question in (
        CountTables(run="r", domain=SCHEMA, noise="laplace", tables=(Table(attributes=(9,), budget=0.1),)),
        CountTables(run="r", domain=SCHEMA, noise="laplace", tables=(groups,)),
        Vote(run="r", domain=SCHEMA, placed=(7,), degree=1, epsilon=0.1),
        Vote(run="r", domain=SCHEMA, placed=(0, 1, 2, 3), degree=1, epsilon=0.1),
        LocalModel(run="r", domain=SCHEMA, degree=1, root=4, structure=0.1, parameters=0.1),
        LocalScores(run="r", domain=SCHEMA, families=((0, 4),), epsilon=0.1),
    ):
        assert refusal(holder, question.write()).reason == "schema", question
    assert holder.ledger.total == Loss()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_whatever_arrives_is_answered_and_costs_nothing(garbage: bytes) -> None:
    holder = Holder("h", RECORDS, epsilon=1.0)
    assert refusal(holder, garbage).reason == "question"
    assert holder.ledger.total == Loss()
    holder.close()


def test_noise_beyond_the_sampler_is_refused_and_not_charged() -> None:
    holder = Holder("h", RECORDS, epsilon=1.0)
    assert refusal(holder, count("r", 1e-300)).reason == "question"
    assert holder.ledger.total == Loss()


def test_an_introduction_is_free_and_tells_public_facts_only() -> None:
    holder = Holder("h", RECORDS, epsilon=2.0, delta=1e-6, rng_factory=lambda: RecordingSource([]))
    question = InfoQuestion(run="r").write()
    answer = read_answer(holder.answer(question), digest(question))
    assert answer == HolderInfo(
        holder="h", records=200, domain=SCHEMA, epsilon=2.0, delta=1e-6, spent=0.0, secure=False, pinned=()
    )
    assert math.isinf(holder.claim().epsilon)


def test_a_budget_is_checked() -> None:
    for epsilon, delta in ((0.0, 0.0), (-1.0, 0.0), (1.0, 1.0), (1.0, -0.1)):
        with pytest.raises(InvalidParameter):
            Holder("h", RECORDS, epsilon=epsilon, delta=delta)
    with pytest.raises(InvalidParameter):
        Holder("", RECORDS, epsilon=1.0)


@pytest.mark.parametrize("records", range(2, 8))
def test_the_sensitivity_of_mutual_information_by_brute_force(records: int) -> None:
    from panstream.models.networks.contingency import contingency
    from panstream.models.networks.information import mutual_information
    from tests.models.federated.common import tiny_worlds

    worst = max(
        abs(mutual_information(contingency(one, (0, 1))) - mutual_information(contingency(other, (0, 1))))
        for one, other in tiny_worlds(records)
    )
    assert worst == pytest.approx(mutual_information_sensitivity(records, binary=True), rel=1e-9)


def test_grouped_tables_are_sums_of_the_exact_ones() -> None:
    table = Table(attributes=(1, 3), budget=1000.0, groups=((0, 1, 0), None))
    question = CountTables(run="r", domain=SCHEMA, noise="laplace", tables=(table,)).write()
    holder = Holder("h", RECORDS, epsilon=math.inf, rng_factory=lambda: RecordingSource([]))
    answer = read_answer(holder.answer(question), digest(question))
    assert isinstance(answer, TablesAnswer)
    joined = np.where(RECORDS.codes[1] == 1, 1, 0)
    expected = [[int(((joined == a) & (RECORDS.codes[3] == b)).sum()) for b in range(3)] for a in range(2)]
    assert answer.tables[0].tolist() == expected


def test_questions_that_would_keep_a_holder_busy_for_ever_are_refused() -> None:
    wide = Records(Domain({f"x{at}": ["0", "1"] for at in range(60)}), np.zeros((60, 10), np.uint16))
    large = Records(
        Domain({f"x{at}": [str(each) for each in range(1000)] for at in range(4)}), np.zeros((4, 10), np.uint16)
    )
    placed = tuple(range(40))
    for records, kind, fields in (
        (wide, Vote, {"placed": placed, "degree": 8, "epsilon": 0.1}),
        (wide, LocalModel, {"degree": 8, "root": 0, "structure": 0.1, "parameters": 0.1}),
        (large, Vote, {"placed": (0, 1), "degree": 2, "epsilon": 0.1}),
        (large, LocalModel, {"degree": 2, "root": 0, "structure": 0.1, "parameters": 0.1}),
        (large, LocalScores, {"families": ((0, 1, 2),), "epsilon": 0.1}),
        (large, CountTables, {"noise": "laplace", "tables": (Table(attributes=(0, 1, 2), budget=0.1),)}),
    ):
        holder = Holder("h", records, epsilon=1.0)
        question = kind(run="r", domain=records.domain.digest(), **fields)  # type: ignore[arg-type]
        assert "limit" in refusal(holder, question.write()).text, question
        assert holder.ledger.total == Loss()
