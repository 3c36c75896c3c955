"""The Spark sink with a small stand-in for Spark; ``make spark`` kills the driver of a real one."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from panstream.client.delivery_report import DeliveryReport
from panstream.client.transport import RetryPolicy
from panstream.distributed import spark
from panstream.errors import InvalidParameter, RequestRejected
from panstream.server.auth import Limits
from tests.server.server_live import Live, served, write_config

QUICK = RetryPolicy(max_attempts=4, sleep=lambda seconds: None)
QUERY = "0b6e4c6c-3f0d-4f53-9d3c-7d2f0f6b6a11"
_task: list[int] = []  # the partition that runs


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with served(write_config(tmp_path_factory.mktemp("spark")), Limits(body=20_000)) as server:
        yield server


@pytest.fixture(autouse=True)
def _partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_partition_id", lambda: _task[-1])
    monkeypatch.setattr(spark, "_attempt_id", lambda: len(_task))


@dataclass
class Frame:
    """As much of a DataFrame as the sink uses. With ``dies_after``, Spark is killed after as many parts."""

    partitions: list[list[dict[str, Any]]]
    dies_after: int = 999
    hashes: bool = True  # whether rows are divided by contents, or stay in the partitions that they are in
    query: str | None = QUERY
    columns: tuple[str, ...] = ("user", "region", "amount")

    @property
    def sparkSession(self) -> Any:
        context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": self.query}.get)
        return SimpleNamespace(sparkContext=context)

    def repartition(self, parts: int, *columns: str) -> "Frame":
        assert columns == tuple(f"`{name}`" for name in self.columns)
        divided: list[list[dict[str, Any]]] = [[] for _ in range(parts)]
        for number, partition in enumerate(self.partitions):
            for row in partition:
                divided[(zlib.crc32(repr(row).encode()) if self.hashes else number) % parts].append(row)
        return Frame(divided, self.dies_after, self.hashes)

    def mapInArrow(self, work: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Any:
        return SimpleNamespace(collect=lambda: list(self._run(work)))

    def _run(self, work: Callable[[Iterator[Any]], Iterator[Any]]) -> Iterator[dict[str, Any]]:
        for number, rows in enumerate(self.partitions):
            if number >= self.dies_after:
                raise KeyboardInterrupt
            _task.append(number)
            for answer in work(iter([pa.RecordBatch.from_pylist(rows)] if rows else [])):
                yield from answer.to_pylist()


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"user": f"u{n}", "region": "north", "amount": 0.5} for n in range(start, stop)]


def frame(count: int, partitions: int, **options: Any) -> Frame:
    size = -(-count // partitions)
    return Frame([rows(start, min(start + size, count)) for start in range(0, count, size)], **options)


def url(live: Live) -> str:
    return f"http://{live.host}:{live.port}"


def sink(live: Live, **options: Any) -> Callable[[Any, int], None]:
    return spark.sink(url(live), "visits", retry=QUICK, **{"parts": 4, **options})


@pytest.mark.parametrize(("job", "hashes", "counted"), [("hashed", True, 400), ("plain", False, 440)])
def test_a_batch_that_is_repeated_in_other_partitions(live: Live, job: str, hashes: bool, counted: int) -> None:
    """The control, without the division by contents, loses some rows and counts others twice."""
    before = live.rows()
    send = sink(live, job=job)
    with pytest.raises(KeyboardInterrupt):
        send(frame(400, 2, dies_after=1, hashes=hashes), 0)
    assert live.rows() > before
    send(frame(400, 5, hashes=hashes), 0)
    assert live.rows() - before == counted


def test_many_deaths(live: Live) -> None:
    before = live.rows()
    reports: list[tuple[int, DeliveryReport]] = []
    for batch in range(4):
        for dies_after in (0, 1, 2, 3, 4):
            send = sink(live, on_batch=lambda batch, report: reports.append((batch, report)))
            try:
                send(frame(100, 1 + dies_after, dies_after=dies_after), batch)
            except KeyboardInterrupt:
                continue
    assert live.rows() - before == 400
    assert [(batch, report.batches, report.rows, report.repeated) for batch, report in reports] == [
        (batch, 4, 100, 3) for batch in range(4)
    ]


def test_what_the_server_stores_does_not_depend_on_rows(live: Live) -> None:
    for job, batches in (("many", [500, 1, 30]), ("none", [0, 0, 0])):
        for number, count in enumerate(batches):
            sink(live, job=job)(frame(count, 1) if count else Frame([[]]), number)
    stored = live.get("/v1/producers").json["producers"]
    lasts = {job: [p["last"] for p in stored if p["name"].startswith(f"spark.{job}.")] for job in ("many", "none")}
    assert lasts == {"many": [3] * 4, "none": [3] * 4}


def test_another_division_is_refused_before_anything_is_sent(live: Live) -> None:
    with pytest.raises(KeyboardInterrupt):
        sink(live, job="moved")(frame(50, 1, dies_after=1), 0)
    before = live.rows()
    for options in ({"parts": 5}, {"parts": 2}):
        with pytest.raises(InvalidParameter, match="parts must stay 4 and first_batch 0 for batch 0"):
            sink(live, job="moved", **options)(frame(50, 1), 0)
    sink(live, job="moved")(frame(50, 1), 0)
    with pytest.raises(InvalidParameter, match="say first_batch=1"):
        sink(live, job="moved", parts=5)(frame(50, 1), 1)
    sink(live, job="moved", parts=5, first_batch=1)(frame(50, 1), 1)
    with pytest.raises(InvalidParameter, match="parts must stay 5 and first_batch 1 for batch 1"):
        sink(live, job="moved")(frame(50, 1), 1)
    with pytest.raises(InvalidParameter, match="first_batch is 1, but Spark repeats batch 0"):
        sink(live, job="moved", parts=5, first_batch=1)(frame(50, 1), 0)
    assert live.rows() - before <= 100


def test_a_checkpoint_that_began_elsewhere_needs_its_first_batch(live: Live) -> None:
    before = live.rows()
    with pytest.raises(InvalidParameter, match="it knows 0 of 57 earlier ones"):
        sink(live, job="later")(frame(10, 1), 57)
    assert live.rows() == before
    for batch in (57, 58, 58):
        sink(live, job="later", first_batch=57)(frame(10, 1), batch)
    assert live.rows() - before == 20


def test_one_dataframe_counts_once_under_its_name(live: Live) -> None:
    before = live.rows()
    options = {"job": "2026-11-19", "parts": 3, "retry": QUICK}
    first, second = (spark.write(frame(200, 2), url(live), "visits", **options) for _ in range(2))
    assert (first.rows, first.repeated, second.rows, second.repeated) == (200, 0, 200, 3)
    assert live.rows() - before == 200
    with pytest.raises(InvalidParameter, match="parts must stay 3"):
        spark.write(frame(200, 2), url(live), "visits", **{**options, "parts": 4})


def test_names_and_parameters_are_checked_first() -> None:
    address = "http://127.0.0.1:1"
    for wrong in ({"parts": 0}, {"parts": 1000}, {"first_batch": -1}, {"job": "a.b"}, {"job": "x" * 33}):
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            spark.sink(address, "visits", **wrong)
    with pytest.raises(InvalidParameter, match="url"):
        spark.sink("counts.example", "visits")
    with pytest.raises(InvalidParameter, match="job must be given"):
        spark.sink(address, "visits")(Frame([[]], query=None), 0)
    assert "secret" not in repr(
        spark._Target(url=address, stream="s", token="secret", ca_file=None, retry=QUICK, parts=1)
    )


def test_a_part_that_is_too_large_says_what_to_do(live: Live) -> None:
    large = Frame([[{"user": f"u{n * 7919}" * 9, "region": "north", "amount": 0.1 * n} for n in range(4000)]])
    with pytest.raises(InvalidParameter, match="parts is too small") as error:
        sink(live, job="large", parts=1)(large, 0)
    assert "u79" not in str(error.value)


def test_the_longest_names_fit(live: Live) -> None:
    sink(live, job="j" * 32, first_batch=2**31, parts=11)(frame(1, 1), 2**31)
    assert max(len(p["name"]) for p in live.get("/v1/producers").json["producers"]) == 6 + 32 + 1 + 10 + 1 + 2 + 1 + 2


def test_staged_parts_in_any_partitions(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_CHUNK_ROWS", 30)
    before = live.rows()
    reports: list[DeliveryReport] = []
    for batch in range(3):
        for dies_after in (0, 1, 2, 99):
            send = sink(live, job="staged", staged=True, on_batch=lambda _, report: reports.append(report))
            try:
                send(frame(100, 1 + dies_after % 7, dies_after=dies_after), batch)
            except KeyboardInterrupt:
                assert len(live.running._service.staging) == 0  # given up
        send(frame(100, 3), batch)
    assert live.rows() - before == 300
    assert [(report.batches, report.rows, report.repeated) for report in reports] == [(1, 100, 0), (1, 0, 1)] * 3
    sink(live, job="staged", staged=True)(Frame([]), 3)
    sink(live, job="staged", staged=True)(Frame([[], rows(0, 5)]), 4)
    assert live.rows() - before == 305
    with pytest.raises(InvalidParameter, match="staged must stay True and first_batch 0 for batch 4"):
        sink(live, job="staged")(frame(10, 1), 4)
    with pytest.raises(InvalidParameter, match="say first_batch=5"):
        sink(live, job="staged")(frame(10, 1), 5)
    with pytest.raises(InvalidParameter, match="it knows 5 of 9 earlier ones"):
        sink(live, job="staged", staged=True)(frame(10, 1), 9)


def test_a_driver_that_dies_leaves_parts_that_the_next_one_drops(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after SIGKILL: nobody gives them up. A task of the dead driver that still sends is refused."""
    before = live.rows()
    staging = live.running._service.staging
    target = spark._Target(url=url(live), stream="visits", token=None, ca_file=None, retry=QUICK, parts=4, staged=True)
    opened = live.ask("POST", f"/v1/producers/{target.prefix('killed')}").json
    headers = {"Panstream-Producer": opened["id"], "Panstream-Sequence": "1"}
    list(spark._stage_part(target, headers, iter([pa.RecordBatch.from_pylist(rows(0, 50))])))
    assert len(staging) == 1
    sink(live, job="killed", staged=True)(frame(80, 2), 0)
    assert len(staging) == 0
    with pytest.raises(RequestRejected, match="closed, retired or reopened"):
        list(spark._stage_part(target, headers, iter([pa.RecordBatch.from_pylist(rows(0, 50))])))
    assert live.rows() - before == 80


def test_a_server_that_loses_parts_gets_the_batch_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    before = live.rows()
    commit = spark._commit
    lost: list[int] = []

    def lose(*arguments: Any) -> Any:
        if not lost:
            lost.append(1)
            live.running._service.staging._batches.popitem()[1].wipe()
        return commit(*arguments)

    monkeypatch.setattr(spark, "_commit", lose)
    sink(live, job="lost", staged=True)(frame(60, 3), 0)
    assert lost
    assert live.rows() - before == 60
    report = spark.write(frame(60, 3), url(live), "visits", job="lost-2", staged=True, retry=QUICK)
    again = spark.write(frame(60, 2), url(live), "visits", job="lost-2", staged=True, retry=QUICK)
    assert (report.rows, again.rows, again.repeated) == (60, 0, 1)
