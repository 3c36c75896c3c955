"""Batches of one producer are applied in the order of their numbers, whichever overtakes which on the way."""

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.producers import Sender
from panstream.errors import InvalidParameter, ProducerFenced
from panstream.server.auth import Limits, QuotaTracker
from panstream.server.errors import HttpError
from panstream.server.ingest import jobs as jobs_module
from panstream.server.ingest.batch_order import ReorderBuffer
from panstream.server.ingest.engine_thread import EngineThread
from panstream.server.ingest.jobs import BatchOutcome, Job
from panstream.server.ingest.request_bodies import RequestBody
from tests.server.server_live import EXACT, LINES, served, write_config
from tests.waiting import PATIENCE, until

TIMED = f"""
[stream]
name = "visits"
time = "at"
[stream.columns]
at = "int"
[[query]]
name = "minutes"
sql = "SELECT COUNT(*) FROM visits"
epsilon = {EXACT}
window = "1 minute"
[store]
directory = "state"
step = "5 ms"
"""
ONE = Sender("token", "one@0000000000000000")
OTHER = Sender("token", "other@0000000000000000")


class Table:
    """What a reorder buffer asks an engine: which producers are open, and how far each was applied."""

    def __init__(self, *open_: Sender) -> None:
        self.lasts = {sender.id: 0 for sender in open_}

    @property
    def producers(self) -> "Table":
        return self

    def position_key(self, sender: Sender) -> str:
        if sender.id not in self.lasts:
            raise ProducerFenced("closed", code="unknown_producer")
        return sender.id

    def last_sequence(self, place: str) -> int:
        return self.lasts[place]

    def apply(self, jobs: list[Job]) -> list[int]:
        """Apply what was not refused; return the numbers in order."""
        applied = []
        for job in jobs:
            if job.refusal is None and job.sender is not None and job.sequence > self.lasts[job.sender.id]:
                assert job.sequence == self.lasts[job.sender.id] + 1, "out of order"
                self.lasts[job.sender.id] = job.sequence
                applied.append(job.sequence)
        return applied


def codes(jobs: list[Job]) -> dict[int, str]:
    return {job.sequence: job.refusal.code for job in jobs if isinstance(job.refusal, HttpError)}


def held(sequence: int, sender: Sender = ONE, size: int = 0) -> Job:
    return Job(RequestBody(QuotaTracker(Limits()), "json", "identity", reserved=size), sender, sequence)


@pytest.mark.parametrize("seed", range(20))
def test_any_arrival_order_within_the_window_gives_the_order_of_the_numbers(seed: int) -> None:
    chance = random.Random(seed)
    limits = Limits(out_of_order=8)
    buffer = ReorderBuffer(limits)
    table = Table(ONE, OTHER)
    applied: dict[str, list[int]] = {ONE.id: [], OTHER.id: []}
    while min(table.lasts.values()) < 60:
        sender = chance.choice([ONE, OTHER])
        last = table.lasts[sender.id]
        numbers = chance.choices(range(max(1, last - 2), last + limits.window // 2), k=chance.randrange(5))
        ready = buffer.arrange([held(number, sender) for number in numbers], table)  # type: ignore[arg-type]
        for job in ready:
            assert job.sender is not None
            applied[job.sender.id] += table.apply([job])
        assert set(codes(ready).values()) <= {"unavailable"}, "a repeated one replaces the one that waits"
        assert len(buffer) < limits.window
    assert all(numbers == [*range(1, len(numbers) + 1)] for numbers in applied.values())


def test_a_batch_whose_predecessor_never_comes_is_refused_in_time_and_taken_later() -> None:
    now = [0.0]
    table = Table(ONE)
    buffer = ReorderBuffer(Limits(order_time=20.0), clock=lambda: now[0])
    assert buffer.arrange([held(3), held(2)], table) == []  # type: ignore[arg-type]
    now[0] = 19.0
    assert buffer.arrange([], table) == []  # type: ignore[arg-type]
    assert buffer.seconds_left == pytest.approx(1.0)
    now[0] = 20.0
    refused = buffer.arrange([], table)  # type: ignore[arg-type]
    assert codes(refused) == {2: "sequence_gap", 3: "sequence_gap"}
    assert "batch 1 of this producer" in str(refused[0].refusal)
    assert len(buffer) == 0
    assert table.apply(buffer.arrange([held(2), held(3), held(1)], table)) == [1, 2, 3]  # type: ignore[arg-type]


def test_the_buffer_is_bounded_and_what_is_missing_is_always_taken() -> None:
    limits = Limits(out_of_order=8, max_concurrent=8, memory=1 << 20)
    assert limits.window == 4
    buffer = ReorderBuffer(limits)
    table = Table(ONE, OTHER)
    too_far = buffer.arrange([held(6)], table)  # type: ignore[arg-type]
    assert codes(too_far) == {6: "sequence_gap"}
    full = buffer.arrange([held(number, sender) for number in (2, 3, 4) for sender in (ONE, OTHER)], table)  # type: ignore[arg-type]
    assert len(buffer) == limits.window - 1, "of all producers of a token: others' requests find a place"
    assert set(codes(full).values()) == {"rate_limited"}
    assert sorted(codes(full)) == [3, 4], "those that are farthest from their turn go"
    assert table.apply(buffer.arrange([held(1, ONE), held(1, OTHER)], table))[:2] == [1, 2]  # type: ignore[arg-type]
    large = buffer.arrange([held(9), held(8, size=1 << 17)], table)  # type: ignore[arg-type]
    assert codes(large) == {9: "sequence_gap", 8: "sequence_gap"}
    heavy = buffer.arrange([held(4, size=1 << 16), held(5, size=1 << 17)], table)  # type: ignore[arg-type]
    assert codes(heavy) == {5: "rate_limited"}, "an eighth of the memory for one token alone"


def test_batches_of_a_producer_that_was_opened_again_do_not_wait() -> None:
    buffer = ReorderBuffer(Limits())
    table = Table(ONE)
    assert buffer.arrange([held(2)], table) == []  # type: ignore[arg-type]
    del table.lasts[ONE.id]
    assert [job.sequence for job in buffer.arrange([], table)] == [2], "the engine refuses it"  # type: ignore[arg-type]


def timed(second: int, count: int = 5) -> bytes:
    return b'{"at": %d}\n' % second * count


def taken(directory: Path, posts: list[tuple[bytes, int]]) -> tuple[list[Any], list[float]]:
    """Return what becomes of one producer's posts that wait together for the engine, and the windows' answers."""
    config = write_config(directory, TIMED)

    async def work() -> tuple[list[Any], list[float]]:
        worker = EngineThread(lambda: Engine(config))
        worker._loop = asyncio.get_running_loop()
        sender = Sender("token", worker.engine.producers.open("token", "p", 9).id)
        worker._parsers.start()
        gate = QuotaTracker(Limits())
        outcomes: list[Any] = [None] * len(posts)
        for index, (data, sequence) in enumerate(posts):
            body = RequestBody(gate, "csv" if data == b"nonsense" else "json", "identity")
            body.append(data)
            job = Job(body, sender, sequence)
            job.on_done = lambda result, refusal, index=index: outcomes.__setitem__(index, refusal or result)  # type: ignore[misc]
            worker.submit(job)
        await asyncio.to_thread(worker._parsers.stop)
        worker._parsers.start = lambda: None  # type: ignore[method-assign]
        worker.run()
        await worker.call(lambda engine: None)
        await worker.stop()
        await asyncio.sleep(0)
        assert gate._memory == 0, "what waited is wiped, and its memory given back"
        with Engine(config) as engine:
            engine.finish()
            return outcomes, [release.record["value"] for release in engine.log.history("minutes")]

    return asyncio.run(work())


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 4, 1, 3)])
def test_no_row_is_late_because_its_batch_was_overtaken(tmp_path: Path, order: tuple[int, ...]) -> None:
    outcomes, values = taken(tmp_path, [(timed(60 * number), number) for number in order])
    assert all(isinstance(each, BatchOutcome) and not len(each.applied.late) for each in outcomes), outcomes
    assert values == pytest.approx([5.0] * 4, abs=0.2)


def test_those_behind_a_refused_batch_wait_for_its_number(tmp_path: Path) -> None:
    """An empty one under that number lets them go on; the server stops before one that is still missing comes."""
    posts = [(timed(60), 1), (timed(180), 3), (b"nonsense", 2), (b"", 2), (timed(300), 5)]
    outcomes, values = taken(tmp_path, posts)
    assert [getattr(each, "code", "taken") for each in outcomes] == [
        "taken",
        "taken",
        "bad_body",
        "taken",
        "unavailable",
    ]
    assert values == pytest.approx([5.0, 5.0], abs=0.2)


def test_a_batch_is_not_applied_if_the_engine_refuses_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Engine.apply

    def refuse(self: Engine, rows: Any, **options: Any) -> Any:
        if rows.origins or rows.sequence == 2:
            raise InvalidParameter("not this one")
        return real(self, rows, **options)

    monkeypatch.setattr(Engine, "apply", refuse)
    outcomes, values = taken(tmp_path, [(timed(60 * number), number) for number in (1, 2, 3)])
    assert [getattr(each, "code", "taken") for each in outcomes] == ["taken", "bad_body", "unavailable"]
    assert values == pytest.approx([5.0], abs=0.2)


@pytest.mark.slow
def test_a_large_batch_is_not_overtaken_by_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is parsed by a thread of its own; the large one's is held up until the small one is with the engine."""
    config = write_config(tmp_path, TIMED)
    real = jobs_module.parse
    with served(config) as server:
        worker = server.running.worker
        producer = server.opened("p")

        def slow(body: Any, schema: Any) -> Any:
            if body.size > jobs_module._SMALL:
                until(lambda: len(worker._order) == 1)
            return real(body, schema)

        monkeypatch.setattr(jobs_module, "parse", slow)
        answers: dict[int, Any] = {}

        def send(number: int, body: bytes) -> None:
            answers[number] = server.post(body, LINES, Panstream_Producer=producer, Panstream_Sequence=str(number)).json

        large = threading.Thread(target=send, args=[1, timed(60, 40_000)])
        large.start()
        send(2, timed(120))
        large.join(PATIENCE)
        assert [answers[number]["late"]["count"] for number in (1, 2)] == [0, 0]
        assert [answers[number]["new"] for number in (1, 2)] == [True, True]
