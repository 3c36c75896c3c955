"""Batches that come in parts: their rows wait here until one call counts all of them as one batch.

A sender that cannot divide a batch the same way twice, such as a data engine whose partitions change after a crash,
sends the parts of an attempt in any order and any number, and then commits: all parts count, or none. Before that, a
part that is sent again replaces itself. Opening the producer anew gives it another id, so parts of an earlier attempt,
and whatever its senders still send, are dropped.

Privacy: until the commit the rows are in this process's memory in clear. They are wiped when they are counted, when the
attempt is given up or the producer opened anew, and when no part has come for ``staged_time`` seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from panstream.engine.runtime.producers import Sender
from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.ingest.jobs import Job

MAX_PART = 2**62
MAX_PARTS = 10_000  # of a batch
_PART = re.compile(r"([0-9]{1,19})/([0-9]{1,5}|\*)")
_NAMED = 10  # most missing parts that a message names


@dataclass(slots=True, eq=False)
class _Batch:
    """The parts of one batch, and how many there will be, if the sender has said so."""

    sequence: int
    parts: dict[int, Job] = field(default_factory=dict)
    count: int | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return sum(job.body.reserved for job in self.parts.values() if job.body is not None)

    def wipe(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for job in self.parts.values():
            release(job)
        self.parts.clear()


def release(job: Job) -> None:
    """Wipe a part, and return its memory reservation."""
    job.overwrite()
    if job.body is not None:
        job.body.release_reservation()


def part_from_headers(headers: Mapping[str, str]) -> tuple[int, int | None] | None:
    """Return the number of a part and of all parts (None if unknown), or None for a whole batch.

    >>> part_from_headers({"panstream-part": "2/8"}), part_from_headers({"panstream-part": "17/*"})
    ((2, 8), (17, None))
    """
    text = headers.get("panstream-part")
    if text is None:
        return None
    match = _PART.fullmatch(text)
    count = None if match is None or match[2] == "*" else int(match[2])
    highest = MAX_PART if count is None else count
    if match is None or not 1 <= int(match[1]) <= highest or (count or 0) > MAX_PARTS:
        raise HttpError("bad_request", f"Panstream-Part must be k/n with k in 1..n and n at most {MAX_PARTS}, or k/*")
    return int(match[1]), count


def wanted_parts(document: Any) -> Sequence[int]:
    """Return the numbers of the parts that the body of a commit names."""
    parts = document.get("parts") if isinstance(document, dict) and set(document) == {"parts"} else None
    if isinstance(parts, int) and not isinstance(parts, bool) and 0 <= parts <= MAX_PARTS:
        return range(1, parts + 1)
    if isinstance(parts, list) and len(parts) <= MAX_PARTS:
        is_valid = all(isinstance(part, int) and not isinstance(part, bool) and 1 <= part <= MAX_PART for part in parts)
        if is_valid and len(set(parts)) == len(parts):
            return list(parts)
    raise HttpError(
        "bad_request", f'the body must be {{"parts": n}} or {{"parts": [k, ...]}}, each once, at most {MAX_PARTS}'
    )


class StagingArea:
    """The parts that wait for a commit, by producer. For the event loop alone.

    Args:
        limits: How much memory they may use, and for how long.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._batches: dict[Sender, _Batch] = {}
        self._commits: dict[tuple[Sender, int], asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return sum(len(batch.parts) for batch in self._batches.values())

    def add(self, sender: Sender, job: Job, part: int, count: int | None) -> None:
        """Hold a parsed part instead of an earlier one of the same number; wipe it if it is refused.

        Raises:
            HttpError: If there is no memory, or the number of parts contradicts an earlier one.
        """
        batch = self._batches.setdefault(sender, _Batch(job.sequence))
        if batch.sequence != job.sequence:
            batch.wipe()
            batch = self._batches[sender] = _Batch(job.sequence)
        try:
            self._check(batch, job, part, count)
        except HttpError:
            release(job)
            if not batch.parts:
                self.drop(sender)
            raise
        batch.count = count
        if (earlier := batch.parts.get(part)) is not None:
            release(earlier)
        batch.parts[part] = job
        if batch.timer is not None:
            batch.timer.cancel()
        loop = asyncio.get_running_loop()
        batch.timer = loop.call_later(self._limits.staged_time, self.drop, sender)

    def _check(self, batch: _Batch, job: Job, part: int, count: int | None) -> None:
        if batch.parts and batch.count != count:
            raise HttpError("bad_request", "all parts of a batch must say the same number of parts")
        if part not in batch.parts and len(batch.parts) >= MAX_PARTS:
            raise HttpError("too_large", f"a batch may have {MAX_PARTS:,} parts")
        assert job.body is not None
        size = batch.size + job.body.reserved
        if size > self._limits.staged:
            raise HttpError(
                "too_large",
                f"the parts of a batch may use {self._limits.staged:,} bytes of memory together; send smaller batches, "
                "or raise --max-staged",
            )
        if size + sum(other.size for other in self._batches.values() if other is not batch) > self._limits.staged:
            raise HttpError("rate_limited", "parts of other batches wait for their commit; try again", retry_after=1)

    def take(self, sender: Sender, sequence: int, wanted: Sequence[int]) -> list[Job]:
        """Return the parts that a commit names, in that order, and wipe all others of the batch.

        Raises:
            HttpError: If one is missing; the others stay.
        """
        batch = self._batches.get(sender)
        held = batch.parts if batch is not None and batch.sequence == sequence else {}
        missing = [part for part in wanted if part not in held]
        if missing:
            shown = ", ".join(map(str, missing[:_NAMED])) + (", ..." if len(missing) > _NAMED else "")
            raise HttpError(
                "missing_parts", f"{len(missing)} parts of this batch are not here: {shown}; nothing was counted"
            )
        taken = [held.pop(part) for part in wanted]
        self.drop(sender)
        return taken

    def drop(self, sender: Sender) -> None:
        """Wipe the parts of a producer."""
        batch = self._batches.pop(sender, None)
        if batch is not None:
            batch.wipe()

    def drop_all(self) -> None:
        """Wipe all parts."""
        for sender in list(self._batches):
            self.drop(sender)

    async def commit_once(self, sender: Sender, sequence: int, commit: Callable[[], Any]) -> Any:
        """Return the outcome of ``commit()``, which runs once for requests that come at the same time.

        It ends even if the request that began it is gone: parts that were taken are counted or refused, and wiped.
        """
        key = (sender, sequence)
        task = self._commits.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(commit())
            self._commits[key] = task
            task.add_done_callback(lambda _: self._commits.pop(key, None))
        return await asyncio.shield(task)
