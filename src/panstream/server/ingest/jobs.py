"""Jobs for the engine: a body on its way from accepted to durable, or a call; and the threads that parse bodies.

A body is received by the event loop, parsed by a parser's thread, applied by the engine's thread and kept until the
commit; its job's ``Stage`` says who has it, and only they may touch its memory.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from panstream.engine.rows.row_batch import BatchResult, RowBatch, RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.name_decoder import lower_thread_priority
from panstream.engine.runtime.producers import ID_PATTERN, Sender
from panstream.server.auth import Authenticator, QuotaTracker
from panstream.server.errors import HttpError, frame_json_response, to_json
from panstream.server.ingest.request_bodies import RequestBody, parse

MAX_SEQUENCE = 2**62
_FAILED = "the state could not be stored; what was acknowledged is kept, send the rest again"
_SHOWN = 1_000  # row numbers told to the sender
_SMALL = 1 << 18  # bytes of a body that does not keep others waiting
_ID = re.compile(ID_PATTERN)
_END = b"\r\n\r\n"
_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\x20-\x7e\t]*\r\n)+")
_PAIRS = re.compile(r"([^:]+):[ \t]*([^\r]*)\r\n")  # of lines that fit
_UNUSUAL = frozenset(("transfer-encoding", "expect", "upgrade", "te", "trailer", "keep-alive", "proxy-connection"))
_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}")
_ALL = b'{"new":true,"rows":%d,"skipped":{"count":0,"rows":[]},"late":{"count":0,"rows":[]}}'

Tell: TypeAlias = Callable[[Any, BaseException | None], None]  # the result, or why there is none


class Stage(IntEnum):
    """How far a job has come."""

    RECEIVING = 0  # the event loop has it
    PARSING = 1  # a parser's thread has it
    READY = 2  # the engine's thread has it, until it is answered
    ANSWERED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What became of a body, for its sender alone."""

    applied: BatchResult
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        skipped = self.applied.skipped
        late = self.applied.late
        return {
            "new": self.applied.new,
            "rows": self.rows,
            "skipped": {"count": len(skipped), "rows": skipped[:_SHOWN].tolist()},
            "late": {"count": len(late), "rows": late[:_SHOWN].tolist()},
        }

    def to_http_response(self) -> bytes:
        """Return the whole answer; nearly all bodies are new and have no row to tell of."""
        applied = self.applied
        if applied.new and not (len(applied.skipped) or len(applied.late)):
            return frame_json_response(200, _ALL % self.rows)
        return frame_json_response(200, to_json(self.to_json()))


def _ignore_result(result: Any, refusal: BaseException | None) -> None:
    pass


@dataclass(slots=True, eq=False)
class Job:
    """A body with its rows once they are parsed, or a call; and what came of it."""

    body: RequestBody | None = None
    sender: Sender | None = None
    sequence: int = 0
    call: Callable[[Engine], Any] | None = None
    durable: bool = False  # of a call: whether it is answered with the commit
    on_done: Tell = _ignore_result
    stage: Stage = Stage.RECEIVING
    rows: RowBatch | None = None
    result: Any = None
    refusal: BaseException | None = None

    def received(self, count: int) -> bool:
        """Note that so many bytes more of a body have come; return whether it is whole."""
        assert self.body is not None
        self.body.size += count
        if self.body.size >= self.body.expected:
            self.stage = Stage.PARSING
        return self.stage is Stage.PARSING

    def overwrite(self) -> None:
        """Overwrite a body and what was parsed of it, which may be the same memory; nothing the second time."""
        if self.rows is not None:
            self.rows.wipe()
            self.rows = None
        if self.body is not None:
            self.body.overwrite()


def fail_jobs(jobs: Iterable[Job], why: str = _FAILED, retry_after: int | None = 1) -> None:
    """Refuse jobs for the server's own fault, unless they are refused already."""
    for job in jobs:
        job.refusal = job.refusal or HttpError("unavailable", why, retry_after=retry_after)


def sender_from_headers(headers: Mapping[str, str], token: str) -> tuple[Sender | None, int]:
    """Return who sends, under which token's name, and the batch's number."""
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


class FastPath:
    """The fast path of events: no task, no request object, the body received straight into its place.

    It takes only what would be taken anyway. Whatever would be refused at its head goes the general way, and is refused
    there. ``first`` is the line that its requests begin with; ``check`` refuses everything while the server stops.
    """

    def __init__(
        self,
        first: bytes,
        access: Authenticator,
        gate: QuotaTracker,
        check: Callable[[], None],
        submit: Callable[[Job], None],
    ) -> None:
        self.first = first
        self._access = access
        self._gate = gate
        self._check = check
        self._submit = submit

    def admit(self, data: bytearray, size: int) -> tuple[Job, RequestBody, int] | None:
        """Return a job, its body and where that begins in ``data``; None if the request is unusual or to be refused.

        Its place is held and its body's memory reserved.
        """
        head = read_head(data, 0, size, self.first)
        if head is None:
            return None
        headers, begin = head
        try:
            grant = self._access.check(headers, "ingest")
            self._check()
            sender, sequence = sender_from_headers(headers, grant.name)
            body = RequestBody.from_headers(headers, self._gate, grant.name)
        except HttpError:
            return None
        try:
            self._gate.enter(grant.name)
        except HttpError:
            body.wipe()
            return None
        return Job(body, sender, sequence), body, begin

    def submit(self, job: Job, tell: Callable[[bytes, bool], None]) -> None:
        """Have a whole body applied; ``tell`` hears the answer, and whether it is a good one, when that is durable."""

        def told(outcome: BatchOutcome | None, refusal: BaseException | None) -> None:
            self._leave(job)
            job.on_done = _ignore_result  # no circle: the job is freed with its last word, not when the collector runs
            if outcome is None:
                tell((refusal if isinstance(refusal, HttpError) else HttpError("internal")).to_http_response(), False)
            else:
                tell(outcome.to_http_response(), True)

        job.on_done = told
        self._submit(job)

    def abandon(self, job: Job) -> None:
        """Forget a request whose body did not come."""
        self._leave(job)
        assert job.body is not None
        job.body.wipe()

    def _leave(self, job: Job) -> None:
        assert job.body is not None
        self._gate.leave(job.body.token)


def read_head(data: bytearray, start: int, stop: int, first: bytes) -> tuple[dict[str, str], int] | None:
    """Return the headers, by their names in small letters, and where the body begins; None if anything is unusual.

    ``first`` is the line that the request must begin with; ``data[start:stop]`` is looked at. Whatever is unusual is
    left to the general parser: which requests are refused, and how, is decided in one place.

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
    """A queue with a line for every token, so that nobody waits for all that another one sends. For any thread.

    Tokens take turns; within a line, first come, first served.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[Job]] = {}  # whose turn it is stands first
        self._ended = False
        self._changed = threading.Condition()

    def put(self, job: Job) -> None:
        """Put a body at the end of its token's line."""
        assert job.body is not None
        with self._changed:
            self._lines.setdefault(job.body.token, deque()).append(job)
            self._changed.notify()

    def end(self) -> None:
        """Have ``get`` return None once nothing waits."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def get(self) -> Job | None:
        """Return the next body; wait until there is one. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            if not self._lines:
                return None
            token, line = next(iter(self._lines.items()))
            job = line.popleft()
            del self._lines[token]
            if line:
                self._lines[token] = line  # behind the others
            return job


class ParserPool:
    """One thread for small bodies, which wait for no large one, and one for large and compressed ones.

    The latter gives way to everybody who needs the processor. So the engine's thread never parses, whatever somebody
    sends. ``parsed`` is called with every job by the thread that
    parsed it, or refused it; ``died`` if such a thread ends.
    """

    def __init__(self, schema: RowSchema, parsed: Callable[[Job], None], died: Callable[[], None]) -> None:
        self._schema = schema
        self._parsed = parsed
        self._died = died
        self._small = _FairQueue()
        self._large = _FairQueue()
        self._threads = [
            threading.Thread(target=self._run, args=[jobs], name="parse", daemon=True)
            for jobs in (self._small, self._large)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Parse what waits, and end."""
        for jobs in (self._small, self._large):
            jobs.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def submit(self, job: Job) -> None:
        """Have the body of a job parsed."""
        assert job.body is not None
        plain = job.body.encoding == "identity" and job.body.size <= _SMALL
        (self._small if plain else self._large).put(job)

    def _run(self, jobs: _FairQueue) -> None:
        if jobs is self._large:
            lower_thread_priority()
        try:
            while (job := jobs.get()) is not None:
                self._parse(job)
                self._parsed(job)
        except BaseException:
            self._died()

    def _parse(self, job: Job) -> None:
        assert job.body is not None
        try:
            job.rows = parse(job.body, self._schema)
            job.stage = Stage.READY
        except HttpError as refusal:
            job.refusal = HttpError(refusal.code, refusal.message, row=refusal.row, retry_after=refusal.retry_after)
        except Exception as error:
            job.refusal = HttpError.after(error, "a body could not be read")
