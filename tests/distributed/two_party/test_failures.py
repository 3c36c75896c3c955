"""What goes wrong with two machines: a clear error each, nothing lost, and answers stop rather than lie."""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.distributed.two_party import _rounds as rounds
from panstream.distributed.two_party.backend import TwoPartyBackend
from panstream.distributed.two_party.https import HttpsTwoPartyTransport
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.messages import pack, unpack
from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.errors import InvalidParameter, PanstreamError, StoreError, TwoPartyError
from panstream.primitives.certificates import Authority
from panstream.primitives.mutual_tls import Identity
from tests.distributed.two_party.test_https import Trio
from tests.distributed.two_party.test_steps import QUERIES, SIZE, batch, opened, settings, truths, values
from tests.engine.runtime.streams import rows


def goes_on(directory: Path, transport: InProcessTwoPartyTransport, batches: int) -> None:
    """An engine that is opened again takes the batches that were not acknowledged, and answers what is true."""
    with opened(directory, transport) as engine:
        for number in range(engine.last_sequence("p") + 1, batches):
            engine.apply(batch(number))
        found = values(engine)
    assert {name: found[name] for name in truths(batches)} == pytest.approx(truths(batches), rel=1e-4)


@pytest.mark.slow
def test_certificates_that_do_not_fit(tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    config = read_config(settings(tmp_path))
    try:
        foreign = Authority(tmp_path / "foreign").issue("front")
        mixed = Identity(certificate=foreign.certificate, key=foreign.key, authority=trio.made["front"].authority)
        for identity in (foreign, mixed):
            transport = HttpsTwoPartyTransport(trio.urls, ("a", "b"), identity)
            with pytest.raises(TwoPartyError, match=r"machine a: (no secure connection|it cannot be reached)"):
                open_engine(config, transport=transport, zero_noise=True)
        with pytest.raises(InvalidParameter, match="same name, or the same address"):
            HttpsTwoPartyTransport((trio.urls[0], trio.urls[0]), ("a", "b"), trio.made["front"])
        both = HttpsTwoPartyTransport(
            (trio.urls[0], trio.urls[0].replace("127.0.0.1", "localhost")), ("a", "b"), trio.made["front"]
        )
        with pytest.raises(TwoPartyError, match="machine b: the certificate at its address carries another name"):
            open_engine(config, transport=both, zero_noise=True)
        missing = {"certificate": tmp_path / "none.pem", "key": foreign.key, "authority": foreign.authority}
        with pytest.raises(InvalidParameter, match="certificate, key or authority file cannot be read"):
            HttpsTwoPartyTransport(trio.urls, ("a", "b"), Identity(**missing))
    finally:
        trio.close()


def test_one_machine_at_both_addresses(transport: InProcessTwoPartyTransport) -> None:
    class Twice(InProcessTwoPartyTransport):
        def __init__(self) -> None:
            self.first = self.second = transport.first

    with pytest.raises(TwoPartyError, match=r"the first machine \(--as a\), then the second"):
        TwoPartyBackend(Twice(), "s", {})


def test_a_machine_that_is_gone_in_the_middle_of_a_step(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        answer = transport.second.answer

        def gone(data: bytearray) -> bytearray:
            if unpack(data)[0]["verb"] == "exchange":
                raise TwoPartyError("machine b: it cannot be reached (ConnectionRefusedError)")
            return answer(data)

        transport.second.answer = gone  # type: ignore[method-assign]
        with pytest.raises(TwoPartyError, match="it cannot be reached"):
            engine.apply(batch(1))
        assert engine.broken
        left = [array for _, change in engine._backend._changes.values() for array in change]  # type: ignore[attr-defined]
        assert not any(array.any() for array in left)  # the changes of rows are wiped
        with pytest.raises(StoreError, match="start again from the store"):
            engine.release("count")  # no answer without both machines
        transport.second.answer = answer  # type: ignore[method-assign]
    goes_on(tmp_path, transport, 3)


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_full_disk(tmp_path: Path, transport: InProcessTwoPartyTransport, which: str) -> None:
    """Nothing of the step counts; the machine gives its state in memory up, and starts again from its disk."""
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        store = getattr(transport, which)._store

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        store._replace = full
        with pytest.raises(PanstreamError, match="No space left on device; what was stored before is intact"):
            engine.apply(batch(1))
        assert engine.broken
        with pytest.raises(TwoPartyError, match="gave its state up: start it again"):
            opened(tmp_path, transport)
    transport.close()
    transport.__init__(tmp_path, "s")  # type: ignore[misc]
    goes_on(tmp_path, transport, 3)


def test_a_pending_step_of_another_try(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """The second machine has a step pending that the first never took: the next try drops it."""
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        decide = transport.first._commit_locally

        def dies(*_: Any) -> None:
            raise TwoPartyError("machine a lost power")

        transport.first._commit_locally = dies  # type: ignore[method-assign]
        with pytest.raises(TwoPartyError, match="lost power"):
            engine.apply(batch(1))
        transport.first._commit_locally = decide  # type: ignore[method-assign]
    assert transport.second._in_doubt is not None
    stale = {"verb": "round", "stream": "s", "step": 3, "attempt": 1, "round": 0, "last": True, "after": [0, 0]}
    task = {"kind": "rows", "started": {}, "dropped": [], "answered": []}
    reply, _ = unpack(transport.second.answer(pack({**stale, "task": task})))
    assert "do not match" in reply["refused"] or "not newer" in reply["refused"]
    goes_on(tmp_path, transport, 3)
    assert transport.second._in_doubt is None


def test_a_machine_that_is_behind(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """The first machine's directory is restored from a backup: refused by the second, and by the front end."""
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        transport.close()
        snapshot = (tmp_path / "a" / "state.sealed").read_bytes()
        transport.__init__(tmp_path, "s")  # type: ignore[misc]
        engine.apply(batch(1))
    transport.close()
    (tmp_path / "a" / "state.sealed").write_bytes(snapshot)
    transport.__init__(tmp_path, "s")  # type: ignore[misc]
    with pytest.raises(PanstreamError, match="rolled back"):
        opened(tmp_path, transport)


def test_a_front_end_that_lost_its_directory(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """Its ledger and its log are gone, so it must not go on as if nothing had been spent."""
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        engine.apply(batch(1))
    with opened(tmp_path, transport) as engine:  # as long as it is there, all is well
        engine.apply(batch(2))
    (tmp_path / "front").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="its own directory is missing, or was rolled back"):
        opened(tmp_path, transport)
    shutil.rmtree(tmp_path / "front")
    (tmp_path / "elsewhere").rename(tmp_path / "front")
    goes_on(tmp_path, transport, 3)


def windowed(directory: Path, transport: InProcessTwoPartyTransport, now: list[float]) -> Engine:
    changes: dict[str, Any] = {"window": "60 s", "releases": 1}
    config = settings(directory)
    config["query"] = [{**query, **changes} for query in config["query"] if query["name"] == "share"]
    read = read_config(config)
    statistics = {plan.config.name: plan.algorithm for plan in plan_all(read, zero_noise=True)}
    backend = TwoPartyBackend(transport, "s", statistics)
    return Engine(read, backend=backend, zero_noise=True, clock=lambda: now[0], elapsed=lambda: now[0])


def test_windows_that_a_dead_front_end_never_committed_go(
    tmp_path: Path, transport: InProcessTwoPartyTransport
) -> None:
    now = [6e4]
    some = [rows(["share"], np.arange(SIZE), producer="p", sequence=number) for number in range(3)]
    with windowed(tmp_path, transport, now) as engine:
        engine.apply(some[0])
        assert [*transport.first._party.shares] == ["1000/0/share"]
        now[0] += 60
        engine._store.commit = lambda *_, **__: 1 / 0  # type: ignore[union-attr,method-assign,assignment]
        with pytest.raises(ZeroDivisionError):
            engine.apply(some[1])  # the machines have the step, the front end died with it
    assert "1001/0/share" in transport.first._party.shares
    now[0] += 60
    with windowed(tmp_path, transport, now) as engine:
        assert "1001/0/share" in transport.first._party.shares  # the batch may come again, and is in there
        engine.apply(some[1])
        engine.apply(some[2])
        engine.advance()
    for machine in (transport.first, transport.second):
        assert [*machine._party.shares] == ["1002/0/share"]


def test_a_batch_that_comes_again_late_counts_once(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    """It was in the step that the front end did not live to commit; others were applied, and the front end started
    again, before it comes.
    """
    names = [*QUERIES]
    with opened(tmp_path, transport) as engine:
        engine._store.commit = lambda *_, **__: 1 / 0  # type: ignore[union-attr,method-assign,assignment]
        with pytest.raises(ZeroDivisionError):
            engine.apply(batch(0))
    other = [rows(names, np.arange(5), values=np.ones(5), producer="q", sequence=number) for number in range(4)]
    for start in (0, 2):
        with opened(tmp_path, transport) as engine:
            for number in (start, start + 1):
                engine.apply(other[number])
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        assert values(engine)["count"] == SIZE + 4 * 5


def test_messages_leave_on_a_grid_once_noise_is_drawn(
    tmp_path: Path, transport: InProcessTwoPartyTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []
    for now in (17.0012, 17.0049999, 3.001):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        monkeypatch.setattr(time, "sleep", lambda seconds, now=now: left.append(now + seconds))
        rounds.wait_for_send_slot()
    assert left == pytest.approx([17.005, 17.005, 3.005])
    monkeypatch.undo()
    order: list[str] = []
    monkeypatch.setattr("panstream.distributed.two_party.participant.wait_for_send_slot", lambda: order.append("grid"))
    for which in ("first", "second"):
        machine = getattr(transport, which)
        draw = machine.answer

        def answered(data: bytearray, draw: Any = draw, which: str = which) -> bytearray:
            reply: bytearray = draw(data)
            order.append(which)
            return reply

        machine.answer = answered
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        order.clear()
        engine.apply(batch(1))
        assert "grid" not in order  # nothing is drawn
        order.clear()
        engine.release("share")
        assert order.count("grid") == 2
        assert order[order.index("grid") + 1] == "second"  # which says that it is ready
