"""Sends the rows of Spark to a panstream server, each exactly once.

A batch is divided into a fixed number of parts by a hash of its rows' contents, and every part is a producer whose
batches carry Spark's own numbers. A batch that Spark repeats has the same parts, whatever partitions it has then, so
the server knows those that it has applied. Parts without rows are sent, too: what the server stores of the parts is
the number of batches alone.

With ``staged`` the rows stay in the partitions that they are in. The parts of a batch wait in the server's memory, and
one call of the driver counts all of them as one batch of one producer, or none.

The claim begins at the server. In Spark, executors, Python workers, the driver and shuffle files hold rows in clear:
see docs/howto/spark-and-beam.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from panstream.client.client import Client
from panstream.client.delivery_report import DeliveryReport
from panstream.client.transport import ARROW, HttpConnection, RetryPolicy, encode
from panstream.errors import InvalidParameter, PanstreamError, RequestRejected
from panstream.primitives import validation as checks

__all__ = ["sink", "write"]

_JOB = re.compile(r"[A-Za-z0-9_:-]{1,32}")
_PATIENT = RetryPolicy(max_attempts=40, max_delay=10.0)
_COUNTS = ("rows", "skipped", "late", "repeated")
_STAGED = "first long, chunks int"
_MAX_CHUNKS = 4096  # of a partition
_CHUNK_ROWS = 250_000
_CHUNK_BYTES = 8 << 20  # before compression
_ATTEMPTS = 3  # to stage a batch of which the server has lost parts
_RESULT = "part int, " + ", ".join(f"{name} long" for name in _COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A server, and how a batch is divided on its way there."""

    url: str
    stream: str
    token: str | None = field(repr=False)
    ca_file: str | None
    retry: RetryPolicy
    parts: int
    first_batch: int = 0
    staged: bool = False

    def __post_init__(self) -> None:
        checks.require_integer_in_range(1, 999, parts=self.parts)
        checks.require_integer_in_range(0, 2**31, first_batch=self.first_batch)
        HttpConnection(self.url, None, None, self.retry)  # refuses what is no address

    @property
    def events_path(self) -> str:
        """The path to which parts are sent."""
        return f"/v1/streams/{quote(self.stream, safe='')}/events"

    @property
    def commit_path(self) -> str:
        """The path at which parts are committed or given up."""
        return f"/v1/streams/{quote(self.stream, safe='')}/commit"

    def secret(self) -> str | None:
        """Return the token, from the environment of this process if there was none."""
        return self.token if self.token is not None else os.environ.get("PANSTREAM_TOKEN")

    def prefix(self, job: str) -> str:
        """Return the common beginning of the names of a job's producers; its only name, if staged."""
        return f"spark.{job}.{self.first_batch}.{'staged' if self.staged else f'{self.parts}.'}"

    def connect(self) -> HttpConnection:
        """Return a connection to the server."""
        return HttpConnection(self.url, self.secret(), self.ca_file, self.retry)


def sink(
    url: str,
    stream: str,
    *,
    token: str | None = None,
    parts: int = 8,
    job: str | None = None,
    first_batch: int = 0,
    staged: bool = False,
    ca_file: str | None = None,
    retry: RetryPolicy | None = None,
    on_batch: Callable[[int, DeliveryReport], None] = lambda batch, report: None,
) -> Callable[[Any, int], None]:
    """Return a function for ``foreachBatch`` that sends every row of a streaming query to a server once.

    ::

        rows = spark.readStream.schema("user string, region string").parquet("visits")
        rows.writeStream.foreachBatch(sink("https://counts.example:8080", "visits")).option(
            "checkpointLocation", "checkpoint"
        ).start()

    Exactly once holds if Spark repeats a batch with the same rows: no random numbers, current times or samples in the
    query. Executors need ``panstream[arrow]``.

    Args:
        url: The server, such as https://host:port.
        stream: The name of the stream.
        token: What ``panstream token`` printed. Spark serializes it with its tasks; without one,
            every executor reads PANSTREAM_TOKEN in its environment.
        parts: How many producers share a batch. A part must fit into the server's
            ``--max-body``. Change it only together with ``first_batch``.
        job: A name for the query, instead of the id in its checkpoint.
        first_batch: The first batch of the query that this server counts, if not 0.
        staged: Whether rows wait in the server's memory, in clear, until all of a batch are
            there, instead of being divided by contents. That takes no shuffle, and partitions
            may differ when Spark repeats a batch; a batch must fit into ``--max-staged``.
        ca_file: Certificates to trust, PEM, on every executor.
        retry: How often and for how long to try again; Spark waits meanwhile.
        on_batch: Called on the driver with every batch's number and what became of its rows.
    """
    target = _Target(
        url=url,
        stream=stream,
        token=token,
        ca_file=ca_file,
        retry=retry or _PATIENT,
        parts=parts,
        first_batch=first_batch,
        staged=staged,
    )
    if job is not None:
        _check_job(job)

    def send(frame: Any, batch: int) -> None:
        on_batch(batch, _send_batch(frame, target, job or _query_id(frame), batch))

    return send


def write(
    frame: Any,
    url: str,
    stream: str,
    *,
    job: str,
    token: str | None = None,
    parts: int = 8,
    staged: bool = False,
    ca_file: str | None = None,
    retry: RetryPolicy | None = None,
) -> DeliveryReport:
    """Send all rows of a DataFrame to a server, once however often it is called with the same ``job``.

    Args:
        frame: The DataFrame, with the columns of the stream.
        url: The server, such as https://host:port.
        stream: The name of the stream.
        job: A name for these rows: letters, digits, ``_``, ``:`` and ``-``, at most 32.
        token: What ``panstream token`` printed, or from PANSTREAM_TOKEN on the executors.
        parts: How many producers share the rows. A part must fit into the server's ``--max-body``.
        staged: See `sink`; all rows together must fit into ``--max-staged``.
        ca_file: Certificates to trust, PEM, on every executor.
        retry: How often and for how long to try again.
    """
    target = _Target(
        url=url, stream=stream, token=token, ca_file=ca_file, retry=retry or _PATIENT, parts=parts, staged=staged
    )
    _check_job(job)
    return _send_batch(frame, target, job, 0)


def _check_job(job: str) -> None:
    if _JOB.fullmatch(job) is None:
        raise InvalidParameter(f"job must match {_JOB.pattern}")


def _query_id(frame: Any) -> str:
    """Return the id of the streaming query that runs, from its checkpoint: a new checkpoint is a new query."""
    try:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    except Exception:  # Spark Connect has no context
        query = None
    if not query:
        raise InvalidParameter("job must be given: Spark does not say which streaming query this is")
    return str(query).replace("-", "")


def _send_batch(frame: Any, target: _Target, job: str, batch: int) -> DeliveryReport:
    """Send a batch, part by part on the executors; return the server's answers, added up."""
    if batch < target.first_batch:
        raise InvalidParameter(f"first_batch is {target.first_batch:,}, but Spark repeats batch {batch:,}")
    if target.staged:
        return _send_staged(frame, target, job, batch)
    _check_division(target, job, batch)
    columns = ["`" + name.replace("`", "``") + "`" for name in frame.columns]
    divided = frame.repartition(target.parts, *columns)  # Murmur3 with a fixed seed: by content alone
    send = partial(_send_part, target, target.prefix(job), batch - target.first_batch + 1)
    answers = divided.mapInArrow(send, _RESULT).collect()
    if sorted(answer["part"] for answer in answers) != list(range(target.parts)):
        raise PanstreamError(f"Spark has not run every one of {target.parts} parts once: the batch has to be repeated")
    report = DeliveryReport(batches=target.parts)
    for name in _COUNTS:
        setattr(report, name, sum(int(answer[name]) for answer in answers))
    return report


def _check_division(target: _Target, job: str, batch: int) -> None:
    """Raise InvalidParameter if parts of this batch may have been counted in another division."""
    own = target.prefix(job)
    lasts = dict.fromkeys([own] if target.staged else [f"{own}{part}" for part in range(target.parts)], 0)
    connection = target.connect()
    try:
        producers = connection.request("GET", "/v1/producers")["producers"]
    finally:
        connection.close()
    for producer in producers:
        name = str(producer["name"])
        if name in lasts:
            lasts[name] = int(producer["last"])
        elif name.startswith(f"spark.{job}."):
            first, parts = name.split(".")[2:4]
            if int(first) + int(producer["last"]) > batch:
                division = "staged must stay True" if parts == "staged" else f"parts must stay {parts}"
                own_division = "staged=True" if target.staged else f"parts={target.parts}"
                raise InvalidParameter(
                    f"{division} and first_batch {int(first):,} for batch {batch:,}, of which some was counted "
                    f"in this division; got {own_division} and first_batch={target.first_batch:,}"
                )
    done = batch - target.first_batch  # batches before this one
    if min(lasts.values()) < done:
        raise InvalidParameter(
            f"first_batch must be the first batch that this server counts: it knows {min(lasts.values()):,} of "
            f"{done:,} earlier ones in {len(lasts)} parts. Was parts or staged changed, the token replaced by one of "
            f"another name, or nothing sent for weeks? If nothing of batch {batch:,} was counted, say "
            f"first_batch={batch}"
        )


def _send_staged(frame: Any, target: _Target, job: str, batch: int) -> DeliveryReport:
    """Stage a batch from the partitions that it is in, and commit it; again if the server has lost parts of it."""
    _check_division(target, job, batch)
    sequence = batch - target.first_batch + 1
    report = DeliveryReport()
    connection = target.connect()
    try:
        for attempt in range(_ATTEMPTS):
            # Opened anew, so that what earlier attempts have staged, and still send, is dropped.
            producer = connection.request("POST", f"/v1/producers/{target.prefix(job)}", b"")
            if int(producer["last"]) >= sequence:
                report.add({"new": False, "rows": 0, "skipped": {"count": 0}, "late": {"count": 0}})
                return report
            batch_headers = {"Panstream-Producer": str(producer["id"]), "Panstream-Sequence": str(sequence)}
            try:
                answers = frame.mapInArrow(partial(_stage_part, target, batch_headers), _STAGED).collect()
                numbers = [answer["first"] + chunk for answer in answers for chunk in range(answer["chunks"])]
                report.add(_commit(connection, target, batch_headers, numbers))
                return report
            except RequestRejected as error:
                if error.code != "missing_parts" or attempt + 1 == _ATTEMPTS:
                    raise
            except BaseException:
                with contextlib.suppress(PanstreamError), contextlib.closing(connection.clone(once=True)) as last:
                    last.request("DELETE", target.commit_path, headers=batch_headers)
                raise
    finally:
        connection.close()
    raise AssertionError


def _commit(connection: HttpConnection, target: _Target, headers: dict[str, str], numbers: list[int]) -> dict[str, Any]:
    body = json.dumps({"parts": numbers}).encode()
    return dict(connection.request("POST", target.commit_path, body, {**headers, "Content-Type": "application/json"}))


def _stage_part(target: _Target, headers: dict[str, str], batches: Iterator[Any]) -> Iterator[Any]:
    """Send the rows of a partition in chunks; yield one row with their numbers. Runs on an executor."""
    import pyarrow as pa

    first = (
        _attempt_id() * _MAX_CHUNKS + 1
    )  # attempts of a task have numbers of their own: the driver names what counts
    chunks = 0
    connection = target.connect()
    try:
        for rows in _chunks(batches):
            if chunks == _MAX_CHUNKS:
                raise InvalidParameter(f"a partition may have {_MAX_CHUNKS:,} chunks of {_CHUNK_ROWS:,} rows")
            part = {"Panstream-Part": f"{first + chunks}/*", "Content-Type": ARROW, "Content-Encoding": "zstd"}
            connection.request("POST", target.events_path, encode(rows, "zstd"), {**headers, **part})
            chunks += 1
    finally:
        connection.close()
    yield pa.RecordBatch.from_pydict({"first": pa.array([first], pa.int64()), "chunks": pa.array([chunks], pa.int32())})


def _chunks(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield the record batches of a partition, as many together as fit into a request."""
    pending: list[Any] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK_ROWS):
            piece = batch.slice(start, _CHUNK_ROWS)
            if pending and (rows + piece.num_rows > _CHUNK_ROWS or size + piece.nbytes > _CHUNK_BYTES):
                yield pending
                pending = []
                rows = size = 0
            pending.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if pending:
        yield pending


def _send_part(target: _Target, prefix: str, sequence: int, batches: Iterator[Any]) -> Iterator[Any]:
    """Send one part of a batch; yield one row with the server's answer. Runs on an executor."""
    import pyarrow as pa

    part = _partition_id()
    if part >= target.parts:
        raise PanstreamError("Spark has not divided the batch as it was told to: nothing of this part was sent")
    rows = [batch for batch in batches if batch.num_rows]
    client = Client(
        target.url,
        stream=target.stream,
        token=target.secret(),
        producer=f"{prefix}{part}",
        connections=1,
        compression="zstd",
        ca_file=target.ca_file,
        retry=target.retry,
    )
    with client:
        try:
            client.send_numbered(pa.Table.from_batches(rows) if rows else {}, sequence)
        except RequestRejected as error:
            if error.code != "too_large":
                raise
            raise InvalidParameter(
                "parts is too small: a part of a batch does not fit into one request. Read less per batch (such as "
                "maxFilesPerTrigger), raise the server's --max-body, or begin again with more parts"
            ) from None
        sent = client.sent
    counts = {"part": pa.array([part], pa.int32())}
    counts |= {name: pa.array([getattr(sent, name)], pa.int64()) for name in _COUNTS}
    yield pa.RecordBatch.from_pydict(counts)


def _attempt_id() -> int:
    from pyspark import TaskContext

    return int(TaskContext.get().taskAttemptId())


def _partition_id() -> int:
    from pyspark import TaskContext

    return int(TaskContext.get().partitionId())
