"""A statistic on two machines from Python: durable steps, updates that count once, answers that go on."""

import itertools
import math
from pathlib import Path

import pytest

from panstream.algorithms.secret_shared.capped_counts import SharedHeavyCount
from panstream.algorithms.secret_shared.presence import SharedGraphDensity
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.monitor import TwoPartyMonitor
from panstream.errors import BudgetExhausted, InvalidParameter, StoreError, TwoPartyError

EDGES = SharedGraphDensity(vertices=30, epsilon=math.inf, count=True, deletions=True, releases=3)


def test_edges_come_and_go(tmp_path: Path) -> None:
    transport = InProcessTwoPartyTransport(tmp_path, "calls")
    pairs = [*itertools.combinations(range(12), 2)]
    monitor = TwoPartyMonitor(EDGES, transport, stream="calls")
    monitor.update(pairs, sequence=1)
    monitor.update(delete=pairs[:6], sequence=2)
    assert monitor.release().value == len(pairs) - 6
    transport.close()
    transport = InProcessTwoPartyTransport(tmp_path, "calls")  # all three start again
    monitor = TwoPartyMonitor(EDGES, transport, stream="calls")
    assert monitor.sequence == 2
    monitor.update(delete=pairs, sequence=2)  # counts already
    assert monitor.release().value == len(pairs) - 6
    monitor.update(delete=pairs[6:20])
    monitor.update(pairs[:1], sequence=5)
    assert monitor.release().value == len(pairs) - 20 + 1
    with pytest.raises(BudgetExhausted, match="releases=3"):
        monitor.release()
    with pytest.raises(InvalidParameter, match="sequence must be"):
        monitor.update(pairs, sequence=-1)
    transport.close()


def test_an_update_that_failed_is_sent_again_and_counts_once(tmp_path: Path) -> None:
    heavy = SharedHeavyCount(universe=20, epsilon=math.inf, crop=2)
    transport = InProcessTwoPartyTransport(tmp_path, "calls")
    monitor = TwoPartyMonitor(heavy, transport, stream="calls")
    decide = transport.first._commit_locally

    def dies(*given: object) -> None:
        decide(*given)  # type: ignore[arg-type]
        raise TwoPartyError("the answer is lost")

    transport.first._commit_locally = dies  # type: ignore[method-assign]
    with pytest.raises(TwoPartyError, match="the answer is lost"):
        monitor.update([1, 2, 3], sequence=1)
    transport.first._commit_locally = decide  # type: ignore[method-assign]
    monitor = TwoPartyMonitor(heavy, transport, stream="calls")
    monitor.update([1, 2, 3], sequence=1)
    monitor.update([1, 5], sequence=2)
    assert monitor.release().value == 1.0  # nobody but 1 came twice
    with pytest.raises(StoreError, match="shares of another"):
        TwoPartyMonitor(EDGES, transport, stream="calls")
    transport.close()
