"""Holders of different size, missing categories, drop-outs, late answers, garbage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from panstream.errors import FederationAborted, InvalidParameter
from panstream.models.federated import FederatedTree, Federation, Holder, MajorityVoting, NoisyModel, NoisyStatistics
from panstream.models.federated._answers import (
    HolderInfo,
    LocalModelAnswer,
    Refused,
    ScoresAnswer,
    TablesAnswer,
    VoteAnswer,
    read_answer,
)
from panstream.models.federated._messages import Message
from panstream.models.networks import Records
from tests.models.federated.common import Flaky, chain, deal

RECORDS = chain(3000)
DOMAIN = RECORDS.domain


def spoiled(kind: type, replacement: object) -> object:
    """Answers of one kind are replaced by something else that is properly encoded."""

    def spoil(data: bytes) -> bytes:
        question = Message.decode(data).fields["question"]
        return replacement.write(question) if isinstance(read_answer(data, question), kind) else data

    return spoil


def test_a_late_answer_is_asked_for_again_and_costs_nothing_twice() -> None:
    holders = deal(RECORDS, 3, epsilon=1.0)
    slow = Flaky(holders[0], failures=2, late=True)
    federation = Federation(DOMAIN, [slow, *holders[1:]], minimum=3)
    NoisyStatistics(epsilon=1.0).run(federation)
    assert slow.asked == 4  # three times for the introduction, once for the tables
    slow = Flaky(holders[0], failures=0)
    assert holders[0].ledger.epsilon == pytest.approx(1.0)


def test_the_same_run_again_gives_the_same_network_for_free() -> None:
    holders = deal(RECORDS, 3, epsilon=1.0, delta=1e-6)
    first, again = (FederatedTree(epsilon=1.0).run(Federation(DOMAIN, holders, run="monday")) for _ in range(2))
    for one, other in zip(first.network.tables, again.network.tables, strict=True):
        np.testing.assert_array_equal(one, other)
    assert holders[0].ledger.epsilon == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(FederationAborted, match="budget"):
        FederatedTree(epsilon=1.0).run(Federation(DOMAIN, holders))


def test_the_run_goes_on_without_one_that_drops_out_half_way() -> None:
    holders = deal(RECORDS, 3)
    said: list[str] = []

    class Dying(Flaky):
        def answer(self, data: bytes) -> bytes:
            return super().answer(data) if self.asked < 2 else b"connection reset"

    channels = [Dying(holders[0]), *holders[1:]]
    result = FederatedTree(epsilon=5.0).run(Federation(DOMAIN, channels, report=said.append))
    assert result.holders == ("h1", "h2")
    assert "not an answer" in result.dropped["h0"]
    assert any("h0 is left out" in line for line in said)
    assert len(result.network.edges) == 3


def test_too_few_left_stops_the_run_with_all_reasons() -> None:
    holders = deal(RECORDS, 3)
    channels = [Flaky(holders[0], failures=99), Flaky(holders[1], spoil=lambda _: b"junk"), holders[2]]
    with pytest.raises(
        FederationAborted, match=r"1 holders are left .* h0: it did not answer within 1 s; h1: what it sent"
    ):
        NoisyStatistics(epsilon=1.0).run(Federation(DOMAIN, channels, minimum=2))


@pytest.mark.parametrize(
    ("method", "kind", "replacement", "reason"),
    [
        (NoisyStatistics(epsilon=1.0), TablesAnswer, TablesAnswer(tables=()), "other shapes"),
        (NoisyStatistics(epsilon=1.0), TablesAnswer, ScoresAnswer(scores=np.zeros(3, np.int64)), "another kind"),
        (NoisyStatistics(epsilon=1.0), TablesAnswer, Refused(reason="fault", text="disk full"), "disk full"),
        (MajorityVoting(epsilon=1.0), VoteAnswer, VoteAnswer(child=0, parents=(1,)), "not up for election"),
        (NoisyModel(epsilon=1.0), LocalModelAnswer, LocalModelAnswer(parents=((), (0,)), tables=()), "domain"),
        (
            NoisyModel(epsilon=1.0),
            LocalModelAnswer,
            LocalModelAnswer(
                parents=((1,), (0,), (0,), (0,)),
                tables=tuple(np.ones(s, np.int64) for s in ((3, 2), (2, 3), (2, 2), (2, 3))),
            ),
            "cycle",
        ),
        (NoisyStatistics(epsilon=1.0), HolderInfo, VoteAnswer(child=0, parents=()), "another kind"),
    ],
    ids=range(7),
)
def test_a_lying_holder_is_left_out(method: object, kind: type, replacement: object, reason: str) -> None:
    holders = deal(RECORDS, 3)
    channels = [Flaky(holders[0], spoil=spoiled(kind, replacement)), *holders[1:]]
    result = method.run(Federation(DOMAIN, channels))  # type: ignore[attr-defined]
    assert result.holders == ("h1", "h2")
    assert reason in result.dropped["h0"]


def test_tables_that_cannot_come_from_the_declared_records_are_left_out() -> None:
    holders = deal(RECORDS, 3)

    def inflate(data: bytes) -> bytes:
        question = Message.decode(data).fields["question"]
        answer = read_answer(data, question)
        if isinstance(answer, TablesAnswer):
            answer = TablesAnswer(tables=tuple(table + 100_000 for table in answer.tables))
        return answer.write(question)

    result = NoisyStatistics(epsilon=1.0).run(Federation(DOMAIN, [Flaky(holders[0], spoil=inflate), holders[1]]))
    assert "add up" in result.dropped["h0"]


def test_holders_of_very_different_size_and_without_some_categories() -> None:
    small = RECORDS.take(np.flatnonzero(RECORDS.codes[1] != 2)[:7])
    parts = [RECORDS.take(np.arange(2500)), small, RECORDS.take(np.arange(2500, 3000))]
    holders = [Holder(f"h{at}", part, epsilon=math.inf) for at, part in enumerate(parts)]
    for method in (
        NoisyStatistics(epsilon=50.0),
        MajorityVoting(epsilon=50.0),
        NoisyModel(epsilon=50.0),
        FederatedTree(epsilon=50.0),
    ):
        result = method.run(Federation(DOMAIN, holders))
        assert result.records == 3007
        assert result.network.cross_entropy(RECORDS) < 4.2
        assert min(table.min() for table in result.network.tables) > 0


def test_a_holder_with_another_domain_or_without_records_does_not_take_part() -> None:
    other = Holder("other", chain(100, attributes=3), epsilon=1.0)
    empty = Holder("empty", Records(DOMAIN, np.empty((4, 0), np.uint16)), epsilon=1.0)
    federation = Federation(DOMAIN, [other, empty, *deal(RECORDS, 2)])
    assert [each.holder for each in federation.holders] == ["h0", "h1"]
    assert "agreed" in federation.dropped["other"]
    assert "no records" in federation.dropped["empty"]


def test_two_holders_of_one_name_stop_the_run() -> None:
    holders = [Holder("same", RECORDS, epsilon=1.0) for _ in range(2)]
    with pytest.raises(FederationAborted, match="same name"):
        _ = Federation(DOMAIN, holders).holders


def test_parameters_of_a_federation_are_checked() -> None:
    channels = deal(RECORDS, 2)
    with pytest.raises(InvalidParameter, match="minimum"):
        Federation(DOMAIN, channels, minimum=3)
    with pytest.raises(InvalidParameter, match="attempts"):
        Federation(DOMAIN, channels, attempts=0)
    runs = {Federation(DOMAIN, channels).run for _ in range(20)}
    assert len(runs) == 20 and all(len(run) == 32 for run in runs)


def test_an_answer_to_another_question_is_not_taken() -> None:
    holders = deal(RECORDS, 1)
    kept: list[bytes] = []

    def replay(data: bytes) -> bytes:
        kept.append(data)
        return kept[0]

    federation = Federation(DOMAIN, [Flaky(holders[0], spoil=replay)])
    with pytest.raises(FederationAborted, match="another question"):
        NoisyStatistics(epsilon=1.0).run(federation)
