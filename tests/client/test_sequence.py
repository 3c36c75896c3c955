"""The order and the fate of batches over several connections, beside a server that fails in every way."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from panstream.client._sequence import Batch, BatchSequence
from panstream.errors import BatchStatusUnknown, RequestRejected, ServerUnreachable

IN_FLIGHT = 4


class Server:
    """Applies batches in order, as the real one promises; loses requests and answers, forgets, and refuses."""

    def __init__(self, seed: int, *, forgets: bool) -> None:
        self.chance = random.Random(seed)
        self.forgets = forgets
        self.changed = threading.Condition()
        self.applied: list[bytes] = []
        self.openings = 0
        self.last = 0
        self.healthy = False

    def open(self) -> dict[str, Any]:
        with self.changed:
            self.openings += 1
            self.changed.notify_all()
            return {"name": "p", "id": f"p@{self.openings}", "last": self.last, "in_flight": IN_FLIGHT}

    def take(self, body: bytes, producer: str, number: int) -> dict[str, Any]:
        """Return the answer, or refuse; a batch that comes too early waits, though not for ever."""
        with self.changed:
            if self.forgets and not self.healthy and self.chance.random() < 0.03:
                self.openings += 1  # another sender took over, or the producer was closed
            self.changed.wait_for(lambda: self._is_its_turn(producer, number), timeout=0.02)
            if producer != f"p@{self.openings}":
                raise RequestRejected("", code="unknown_producer", status=409)
            assert number <= self.last + IN_FLIGHT, "more batches in flight than the server has place for"
            if number > self.last + 1:
                raise RequestRejected("", code="sequence_gap", status=409)
            if body.startswith(b"bad"):
                raise RequestRejected("", code="bad_body", status=400)
            if number <= self.last:
                return {"new": False}
            self.last = number
            self.applied += [body] if body else []
            self.changed.notify_all()
            return {"new": True}

    def _is_its_turn(self, producer: str, number: int) -> bool:
        return producer != f"p@{self.openings}" or number <= self.last + 1


class FaultyWire:
    """A connection as the client sees it after all its tries: answered, refused, or unreachable."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.unanswered = False

    def clone(self, **options: Any) -> "FaultyWire":
        return FaultyWire(self.server)

    def close(self) -> None:
        pass

    def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        self.unanswered = False
        fault = 1.0 if self.server.healthy else self.server.chance.random()
        if fault < 0.1:
            self.unanswered = fault < 0.05
            raise ServerUnreachable("lost on the way")
        if headers is None:
            return self.server.open()
        try:
            answer = self.server.take(body, headers["Panstream-Producer"], int(headers["Panstream-Sequence"]))
        except RequestRejected:
            self.unanswered = fault < 0.2  # an earlier try of this request got no answer
            raise
        if fault < 0.2:
            self.unanswered = True
            raise ServerUnreachable("the answer was lost")
        return answer


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_batch_counts_once_and_in_order(seed: int, forgets: bool) -> None:
    """Only if the server forgot the producer may a batch be uncertain; then, too, nothing counts twice."""
    server = Server(seed, forgets=forgets)
    sequence = BatchSequence("p", "s", FaultyWire(server))  # type: ignore[arg-type]
    bodies = [(b"bad" if number % 11 == 5 else b"row") + b" %d" % number for number in range(60)]
    fates: dict[bytes, str] = {}

    def deliver(body: bytes, batch: Batch) -> None:
        try:
            sequence.deliver(batch, FaultyWire(server))  # type: ignore[arg-type]
            fates[body] = "counted"
        except BatchStatusUnknown:
            fates[body] = "uncertain"
        except RequestRejected as refused:
            fates[body] = refused.code
        except ServerUnreachable:
            assert batch.stuck

    with ThreadPoolExecutor(6) as lanes:
        for start in range(0, len(bodies), 6):
            added = [(body, sequence.add(body, {})) for body in bodies[start : start + 6]]
            while waiting := [(body, batch) for body, batch in added if body not in fates]:
                for _, batch in waiting:
                    batch.stuck = False
                for future in [lanes.submit(deliver, *each) for each in waiting]:
                    future.result(60)
        server.healthy = True
    counted = [body for body in bodies if fates[body] == "counted"]
    certain = [body for body in server.applied if fates[body] != "uncertain"]
    assert certain == counted
    assert server.applied == sorted(server.applied, key=bodies.index), "in the order in which they were cut"
    assert len(set(server.applied)) == len(server.applied)
    assert {fates[body] for body in bodies if body.startswith(b"bad")} <= {"bad_body", "uncertain"}
    assert ("uncertain" in fates.values()) <= forgets


def test_a_gap_that_no_batch_of_ours_explains_numbers_anew() -> None:
    """The server was put back to an older state: what it lacks is not ours to send any more."""
    server = Server(0, forgets=False)
    server.healthy = True
    sequence = BatchSequence("p", "s", FaultyWire(server))  # type: ignore[arg-type]
    wire: Any = FaultyWire(server)
    for body in (b"one", b"two"):
        assert sequence.deliver(sequence.add(body, {}), wire) == {"new": True}
    server.last = 0
    assert sequence.deliver(sequence.add(b"three", {}), wire) == {"new": True}
    assert (server.last, server.openings) == (1, 2)
