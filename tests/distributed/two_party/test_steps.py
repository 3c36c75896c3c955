"""Steps on two machines: durable on both or on neither, whatever fails, and an engine on top that notices nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.distributed.two_party.backend import TwoPartyBackend
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.participant import Participant
from panstream.engine.config.config import read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.errors import ConfigError, NotSupported, PanstreamError, StoreError, TwoPartyError
from tests.engine.runtime.streams import rows

USERS = 300
SIZE = 25
BATCHES = 6
FULL = os.environ.get("PANSTREAM_FULL") == "1"  # every point of failure, instead of every eleventh
QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "distinct": ("SELECT COUNT(DISTINCT user) FROM s", {"memory": 4096}),
    "share": ("SELECT DENSITY(user) FROM s", {"universe": USERS}),
    "count": ("SELECT COUNT(*) FROM s", {}),
    "mean": ("SELECT AVG(value) FROM s", {"lower": 0.0, "upper": 10.0}),
}


def settings(directory: Path, **changes: Any) -> dict[str, Any]:
    columns = {"user": "int", "value": "double"}
    stream = {"name": "s", "columns": columns, "user": "user", "machines": ["https://a", "https://b"]}
    query = [
        {"name": name, "sql": sql, "epsilon": 1.0, "releases": BATCHES, **more} for name, (sql, more) in QUERIES.items()
    ]
    files = {"certificate": "f.pem", "key": "f.key", "authority": "authority.pem"}
    machines = {"names": ["a", "b"], **files}
    store = {"directory": str(directory / "front")}
    return {"stream": stream, "query": query, "two_party": machines, "store": store, **changes}


def batch(number: int) -> RowBatch:
    rng = np.random.default_rng(number)
    ids = rng.integers(0, USERS, SIZE)
    values = rng.uniform(0, 10, SIZE)
    return rows([*QUERIES], ids, values=values, producer="p", sequence=number)


def truths(batches: int) -> dict[str, float]:
    found = [batch(number) for number in range(batches)]
    counts = np.bincount(np.concatenate([each.ids for each in found]), minlength=USERS)
    values = np.concatenate([each.queries["mean"].values for each in found])
    return {
        "share": np.count_nonzero(counts) / USERS,
        "count": float(values.size),
        "mean": float(values.mean()),
    }


def opened(directory: Path, transport: InProcessTwoPartyTransport, **options: Any) -> Engine:
    config = read_config(settings(directory))
    statistics = {plan.config.name: plan.algorithm for plan in plan_all(config, zero_noise=True)}
    return Engine(config, backend=TwoPartyBackend(transport, "s", statistics), zero_noise=True, **options)


def values(engine: Engine) -> dict[str, float]:
    return {name: engine.release(name)[0].record["value"] for name in QUERIES}


def test_an_engine_on_two_machines_answers_what_is_true(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    with opened(tmp_path, transport) as engine:
        for number in range(2):
            engine.apply(batch(number))
        first = values(engine)
        engine.apply(batch(2))
    with opened(tmp_path, transport) as engine:  # goes on where it was
        assert engine.last_sequence("p") == 2
        second = values(engine)
    transport.close()
    for found, batches in ((first, 2), (second, 3)):
        for name, truth in truths(batches).items():
            assert found[name] == pytest.approx(truth, rel=1e-4), name
        assert found["distinct"] == pytest.approx(truths(batches)["share"] * USERS, rel=0.05)


class Dies(Exception):
    """Everything loses power at a chosen point."""


class Flaky(InProcessTwoPartyTransport):
    """Machines that fail at a chosen message or commit: by losing power, or by not being reached."""

    def __init__(self, directory: Path, failure: type[Exception]) -> None:
        super().__init__(directory, "s")
        self.left: int | None = None
        self.failure = failure
        self.passed = 0
        for machine in (self.first, self.second):
            self._watch(machine)

    def _watch(self, machine: Participant) -> None:
        answer = machine.answer
        commit = machine._store.commit

        def answered(data: bytes, caller: str = "") -> bytes:
            self._point()
            found = answer(data)
            self._point()
            return found

        def committed(parts: Any) -> None:
            if self.failure is Dies:
                self._point()
            commit(parts)
            if self.failure is Dies:
                self._point()

        machine.answer = answered  # type: ignore[method-assign]
        machine._store.commit = committed  # type: ignore[method-assign,assignment]

    def _point(self) -> None:
        self.passed += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise self.failure("failed on purpose")


def finish(directory: Path, failure: type[Exception], at: int | None) -> tuple[dict[int, dict[str, float]], int, int]:
    """Feed all batches and answer after each, opening everything again after a failure at point ``at``; return the
    answers, how many points were passed, and how often something failed.
    """
    transport = Flaky(directory, failure)
    found = {}
    failures = 0
    transport.left = at
    while True:
        try:
            published: dict[str, list[float]] = {}
            with opened(directory, transport, publish=lambda release: None) as engine:
                for number in range(engine.last_sequence("p") + 1, 3):
                    engine.apply(batch(number))
                while any(engine.release_count(name) < 2 for name in QUERIES):
                    for name in QUERIES:
                        if engine.release_count(name) < 2:
                            engine.release(name)
                for name in QUERIES:
                    published[name] = [each.record["value"] for each in engine.log.history(name)]
            for number in range(2):
                found[number] = {name: published[name][number] for name in QUERIES}
            break
        except (Dies, PanstreamError):
            failures += 1
            assert failures < 4
            if failure is Dies:
                passed = transport.passed
                for machine in (transport.first, transport.second):
                    machine._store.close()
                transport = Flaky(directory, failure)
                transport.passed = passed
    transport.left = None
    passed = transport.passed
    check_fit(transport)
    transport.close()
    return found, passed, failures


def check_fit(transport: InProcessTwoPartyTransport) -> None:
    """Both shares of every state are of the same step and try, and open to a thermometer of users who came."""
    TwoPartyBackend(transport, "s", {})  # the next dealer resolves what is in doubt on the second machine
    first = transport.first._record
    second = transport.second._record
    assert (first.step, first.attempt) == (second.step, second.attempt)
    assert transport.second._in_doubt is None
    a, b = (machine._party.shares["0/0/share"].cells for machine in (transport.first, transport.second))
    came = np.unpackbits(a ^ b, count=USERS, bitorder="little")
    assert np.array_equal(np.flatnonzero(came), np.unique(np.concatenate([batch(n).ids for n in range(3)])))


@pytest.mark.slow
@pytest.mark.parametrize("failure", [Dies, TwoPartyError])
def test_a_failure_at_any_point_loses_and_doubles_nothing(tmp_path: Path, failure: type[Exception]) -> None:
    wanted, points, _ = finish(tmp_path / "whole", failure, None)
    truth = truths(3)
    assert {name: wanted[1][name] for name in truth} == pytest.approx(truth, rel=1e-4)
    failed = 0
    for at in range(0, points, FULL or 11):
        found, _, failures = finish(tmp_path / str(at), failure, at)
        assert found == wanted, at
        failed += failures
    assert failed > points // (2 * (FULL or 11))


def test_machines_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    transport = InProcessTwoPartyTransport(tmp_path, "s")
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
    transport.close()
    snapshot = (tmp_path / "b" / "state.sealed").read_bytes()
    transport = InProcessTwoPartyTransport(tmp_path, "s")
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(1))
    transport.close()
    (tmp_path / "b" / "state.sealed").write_bytes(snapshot)  # a backup of one machine is restored
    transport = InProcessTwoPartyTransport(tmp_path, "s")
    with pytest.raises(TwoPartyError, match="do not match"):
        opened(tmp_path, transport)
    transport.close()
    for name in ("a", "b"):  # both machines' directories are gone
        (tmp_path / name / "state.sealed").unlink()
    transport = InProcessTwoPartyTransport(tmp_path, "s")
    with pytest.raises(StoreError, match="rolled back"):
        opened(tmp_path, transport)
    with pytest.raises(TwoPartyError, match="refused: this machine belongs to stream 's'"):
        TwoPartyBackend(transport, "other", {})
    transport.close()
    with pytest.raises(TwoPartyError, match="belongs to the other machine"):
        Participant(tmp_path / "a", first=False, stream="s")


def test_idle_machines_blind_their_shares(tmp_path: Path, transport: InProcessTwoPartyTransport) -> None:
    with opened(tmp_path, transport) as engine:
        engine.apply(batch(0))
        before = [machine._party.shares["0/0/share"].cells.copy() for machine in (transport.first, transport.second)]
        transport.first.idle()
        after = [machine._party.shares["0/0/share"].cells.copy() for machine in (transport.first, transport.second)]
        assert not np.array_equal(before[0], after[0])
        assert np.array_equal(before[0] ^ before[1], after[0] ^ after[1])
        engine.apply(batch(1))  # the front end follows
    with opened(tmp_path, transport) as engine:  # the machines are a step ahead, without rows
        assert values(engine)["count"] == 2 * SIZE


def test_explain_says_who_sees_what(tmp_path: Path) -> None:
    text = explain(read_config(settings(tmp_path))).text()
    for said in (
        "any number, at one machine at a time (both never in one epoch)",
        "both machines in one epoch show the exact state",
        "run it on neither machine",
        "on one machine the error would be",
        "assumption  AES-256-CTR, X25519, TLS 1.3; front end and machines run hardened",
    ):
        assert said in text, said


def test_refused_configurations(tmp_path: Path) -> None:
    whole = settings(tmp_path)
    for part, changes, reason in (
        ("stream", {"machines": ["https://a"]}, "two different addresses"),
        ("stream", {"machines": ["https://a", "https://a"]}, "two different addresses"),
        ("two_party", {"names": ["a", "a"]}, "two different names"),
        ("store", {"durability": "none"}, "durability"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_config({**whole, part: {**whole[part], **changes}})
    asked = {"name": "q", "sql": "SELECT COUNT(DISTINCT user) FROM s", "epsilon": 1.0}
    weighted = {**whole["stream"], "columns": {"user": "int", "w": "int"}, "weight": "w"}
    for stream, query, reason in (
        (whole["stream"], {**asked, "announced": 1}, "need no announced"),
        (whole["stream"], {**asked, "unit": "event"}, "not offered on two machines"),
        (weighted, asked, "counters modulo a prime"),
    ):
        with pytest.raises(ConfigError, match=reason):
            plan_all(read_config({**whole, "stream": stream, "query": [query]}))
    with pytest.raises(NotSupported, match="held by two machines"):
        Engine(read_config(whole))
