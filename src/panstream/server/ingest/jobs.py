"""Jobs for the engine's thread: a request body from admission to commit, or a call; and the threads that parse bodies.

A body is received by the event loop, parsed by a parser thread, applied by the engine's thread and held until the
commit. Its job's ``Stage`` says which thread owns it, and only that one may access its memory.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeAlias

from panstream.engine.rows.row_batch import BatchResult, RowBatch, RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.name_decoder import lower_thread_priority
from panstream.engine.runtime.producers import ID_PATTERN, Sender
from panstream.engine.sources.coalescer import concat_batches
from panstream.server.auth import Authenticator, QuotaTracker
from panstream.server.errors import HttpError, frame_json_response, to_json
from panstream.server.ingest.request_bodies import RequestBody, parse

MAX_SEQUENCE = 2**62
_FAILED = "the state could not be stored; everything acknowledged is stored, send the rest again"
_MAX_NUMBERS = 1_000  # row numbers in a response
_SMALL = 1 << 18  # bytes of a body that is parsed too quickly to delay others
_ID = re.compile(ID_PATTERN)
_END = b"\r\n\r\n"
_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\x20-\x7e\t]*\r\n)+")
_PAIRS = re.compile(r"([^:]+):[ \t]*([^\r]*)\r\n")  # in lines that match _LINES
_UNUSUAL = frozenset(("transfer-encoding", "expect", "upgrade", "te", "trailer", "keep-alive", "proxy-connection"))
_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}")
_ALL_APPLIED = b'{"new":true,"rows":%d,"skipped":{"count":0,"rows":[]},"late":{"count":0,"rows":[]}}'

OnDone: TypeAlias = Callable[[Any, BaseException | None], None]  # the result, or why there is none


class Stage(IntEnum):
    """Which thread owns a job."""

    RECEIVING = 0  # the event loop
    PARSING = 1  # a parser thread
    READY = 2  # the engine's thread
    ANSWERED = 3  # none: the body is wiped


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The outcome of a batch, which only its sender receives: it depends on rows."""

    applied: BatchResult
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the body of the response as JSON values."""
        skipped = self.applied.skipped
        late = self.applied.late
        return {
            "new": self.applied.new,
            "rows": self.rows,
            "skipped": {"count": len(skipped), "rows": skipped[:_MAX_NUMBERS].tolist()},
            "late": {"count": len(late), "rows": late[:_MAX_NUMBERS].tolist()},
        }

    def to_http_response(self) -> bytes:
        """Return head and body of the response, without JSON encoding in the usual case that all rows count."""
        applied = self.applied
        if applied.new and not (len(applied.skipped) or len(applied.late)):
            return frame_json_response(200, _ALL_APPLIED % self.rows)
        return frame_json_response(200, to_json(self.to_json()))


def _ignore_result(result: Any, refusal: BaseException | None) -> None:
    pass


@dataclass(slots=True, eq=False)
class Job:
    """A request body, with its rows once they are parsed, or a call of the engine; and the outcome."""

    body: RequestBody | None = None
    sender: Sender | None = None
    sequence: int = 0
    call: Callable[[Engine], Any] | None = None
    durable: bool = False  # of a call: whether it is answered after the next commit
    on_done: OnDone = _ignore_result
    stage: Stage = Stage.RECEIVING
    rows: RowBatch | None = None
    is_part: bool = False  # its rows are parsed and stay in the job until it is wiped
    parts: tuple[Job, ...] = ()  # whose rows are this job's
    result: Any = None
    refusal: BaseException | None = None

    def add_received(self, count: int) -> bool:
        """Record ``count`` received bytes.

        Returns:
            True once the body is complete.
        """
        assert self.body is not None
        self.body.size += count
        if self.body.size >= self.body.expected:
            self.stage = Stage.PARSING
        return self.stage is Stage.PARSING

    def overwrite(self) -> None:
        """Wipe a body and its rows, which may share memory; a second call does nothing."""
        if self.rows is not None:
            self.rows.wipe()
            self.rows = None
        if self.body is not None:
            self.body.overwrite()
        for part in self.parts:
            part.overwrite()

    @property
    def reserved(self) -> int:
        """Bytes of memory that are reserved for the body and its parts."""
        own = 0 if self.body is None else self.body.reserved
        return own + sum(part.reserved for part in self.parts)

    def release_reservations(self) -> None:
        """Return the memory reservations of a wiped body and its parts."""
        for part in self.parts:
            part.release_reservations()
        if self.body is not None:
            self.body.release_reservation()


def fail_jobs(jobs: Iterable[Job], why: str = _FAILED, retry_after: int | None = 1) -> None:
    """Refuse jobs with status 503, except those that are refused already."""
    for job in jobs:
        job.refusal = job.refusal or HttpError("unavailable", why, retry_after=retry_after)


def sender_from_headers(headers: Mapping[str, str], token: str) -> tuple[Sender | None, int]:
    """Return the producer of a batch, None without the headers, and the batch's sequence number.

    Raises:
        HttpError: If one of the two headers is missing or invalid.
    """
    producer = headers.get("panstream-producer")
    sequence = headers.get("panstream-sequence")
    if producer is None and sequence is None:
        return None, 0
    if producer is None or sequence is None:
        raise HttpError("bad_request", "Panstream-Producer and Panstream-Sequence are given together or not at all")
    if _ID.fullmatch(producer) is None:
        raise HttpError("bad_request", f"Panstream-Producer must be the id that opening it returned: {ID_PATTERN}")
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) < 20 and 1 <= int(sequence) <= MAX_SEQUENCE):
        raise HttpError("bad_request", f"Panstream-Sequence must be a whole number in 1..{MAX_SEQUENCE}")
    return Sender(token, producer), int(sequence)


@dataclass(slots=True, eq=False)
class FastPath:
    """The fast path of event batches: no task, no request object, and the body is received into its final memory.

    It admits only requests that the general path would admit; those to be refused take that one, and are refused there.

    Args:
        first: The request line of the batches.
        access: Checks tokens.
        quotas: Quotas of the tokens.
        check: Raises HttpError while the server stops.
        enqueue: Passes a complete body to the engine.
    """

    first: bytes
    access: Authenticator
    quotas: QuotaTracker
    check: Callable[[], None]
    enqueue: Callable[[Job], None]

    def admit(self, data: bytearray, size: int) -> tuple[Job, RequestBody, int] | None:
        """Return a job, its body and where that begins in ``data``; None if the request takes the general path.

        The request is counted in the token's quota, and memory for the body is reserved.
        """
        head = read_head(data, 0, size, self.first)
        if head is None:
            return None
        headers, begin = head
        if "panstream-part" in headers:
            return None
        try:
            grant = self.access.check(headers, "ingest")
            self.check()
            sender, sequence = sender_from_headers(headers, grant.name)
            body = RequestBody.from_headers(headers, self.quotas, grant.name)
        except HttpError:
            return None
        try:
            self.quotas.enter(grant.name)
        except HttpError:
            body.wipe()
            return None
        return Job(body, sender, sequence), body, begin

    def submit(self, job: Job, on_response: Callable[[bytes, bool], None]) -> None:
        """Apply a complete body; once durable, ``on_response`` is called with the response and whether it is a 200."""

        def on_done(outcome: BatchOutcome | None, refusal: BaseException | None) -> None:
            self._leave(job)
            job.on_done = _ignore_result  # breaks a reference cycle: the job is freed without the garbage collector
            if outcome is None:
                error = refusal if isinstance(refusal, HttpError) else HttpError("internal")
                on_response(error.to_http_response(), False)
            else:
                on_response(outcome.to_http_response(), True)

        job.on_done = on_done
        self.enqueue(job)

    def abandon(self, job: Job) -> None:
        """Drop a request whose body was not received completely, and wipe what was."""
        self._leave(job)
        assert job.body is not None
        job.body.wipe()

    def _leave(self, job: Job) -> None:
        assert job.body is not None
        self.quotas.leave(job.body.token)


def read_head(data: bytearray, start: int, stop: int, first: bytes) -> tuple[dict[str, str], int] | None:
    """Parse the head in ``data[start:stop]`` if it is plain and starts with the request line ``first``.

    Returns:
        The headers by lower-case name, and where the body begins. None if anything is unusual: then the general
        parser decides, so that requests are refused by one piece of code only.

    >>> request = bytearray(b"POST /x HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3\\r\\n\\r\\n{}\\n")
    >>> read_head(request, 0, len(request), b"POST /x HTTP/1.1\\r\\n")
    ({'host': 'a', 'content-length': '3'}, 48)
    """
    if not data.startswith(first, start, stop):
        return None
    end = data.find(_END, start + len(first), stop)
    if end < 0:
        return None
    head = bytes(memoryview(data)[start + len(first) : end + 2])
    if _LINES.fullmatch(head) is None:
        return None
    headers: dict[str, str] = {}
    pairs = _PAIRS.findall(head.decode("ascii"))
    for name, value in pairs:
        headers[name.lower()] = value.rstrip(" \t")
    if len(headers) < len(pairs) or not _UNUSUAL.isdisjoint(headers):
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    if "host" not in headers or _LENGTH.fullmatch(headers.get("content-length", "")) is None:
        return None
    return headers, end + len(_END)


class _FairQueue:
    """A thread-safe queue that serves tokens round-robin, so that none is delayed by all that another one sends."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Job]] = {}  # by token, the next one first
        self._ended = False
        self._changed = threading.Condition()

    def put(self, job: Job) -> None:
        """Append a body to its token's queue."""
        assert job.body is not None
        with self._changed:
            self._queues.setdefault(job.body.token, deque()).append(job)
            self._changed.notify()

    def end(self) -> None:
        """Make ``get`` return None once the queue is empty."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def get(self) -> Job | None:
        """Wait for the next body and return it; None after ``end``."""
        with self._changed:
            self._changed.wait_for(lambda: self._queues or self._ended)
            if not self._queues:
                return None
            token, jobs = next(iter(self._queues.items()))
            job = jobs.popleft()
            del self._queues[token]
            if jobs:
                self._queues[token] = jobs  # behind the others
            return job


class ParserPool:
    """Two threads that parse bodies: one for small bodies, one with low priority for large and compressed ones.

    The engine's thread never parses, and a small body never waits for a large one.

    Args:
        schema: The columns to parse.
        on_parsed: Called with every job by the thread that parsed or refused it.
        on_died: Called if a thread ends by an error.
    """

    def __init__(self, schema: RowSchema, on_parsed: Callable[[Job], None], on_died: Callable[[], None]) -> None:
        self._schema = schema
        self._on_parsed = on_parsed
        self._on_died = on_died
        self._small = _FairQueue()
        self._large = _FairQueue()
        self._threads = [
            threading.Thread(target=self._run, args=[jobs], name="parse", daemon=True)
            for jobs in (self._small, self._large)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Parse the queued bodies, and end the threads."""
        for jobs in (self._small, self._large):
            jobs.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def submit(self, job: Job) -> None:
        """Queue a job's body for parsing."""
        assert job.body is not None
        plain = job.body.encoding == "identity" and job.body.size <= _SMALL
        (self._small if plain else self._large).put(job)

    def _run(self, jobs: _FairQueue) -> None:
        if jobs is self._large:
            lower_thread_priority()
        try:
            while (job := jobs.get()) is not None:
                self._parse(job)
                self._on_parsed(job)
        except BaseException:
            self._on_died()

    def _parse(self, job: Job) -> None:
        assert job.body is not None
        try:
            job.rows = self._join(job, job.body) if job.body.kind == "parts" else parse(job.body, self._schema)
            job.stage = Stage.READY
        except HttpError as refusal:
            # A new error: the raised one holds a traceback, and with it the body.
            job.refusal = HttpError(refusal.code, refusal.message, retry_after=refusal.retry_after)
        except Exception as error:
            job.refusal = HttpError.after(error, "a body could not be read")

    def _join(self, job: Job, body: RequestBody) -> RowBatch:
        """Return the rows of all parts as one batch; it may share their memory, which is wiped with it."""
        batches = [part.rows for part in job.parts if part.rows is not None and len(part.rows)]
        if not batches:
            return RowBatch.none(self._schema)
        if len(batches) > 1:
            body.reserve(sum(int(batch.columns.nbytes) for batch in batches))
        return replace(concat_batches(batches, self._schema), first_row=1)
