"""Sends the rows of an Apache Beam pipeline to a panstream server, each exactly once.

Rows are divided into a fixed number of parts by a hash of their contents, and grouped by part. A part is a producer of
the server; its batch is the whole input or, with ``window``, one window of it. A bundle that the runner repeats has the
same batches under the same numbers, so the server knows those that it has applied.

The claim begins at the server. In Beam, workers and shuffles hold rows in clear: see docs/howto/beam.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from panstream.client.transport import HttpConnection, RetryPolicy
from panstream.errors import InvalidParameter, import_optional
from panstream.primitives import validation as checks

__all__ = ["WriteToPanstream"]

_JOB = re.compile(r"[A-Za-z0-9_:-]{1,32}")
_PATIENT = RetryPolicy(max_attempts=40, max_delay=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamTarget:
    """A server, and how rows are divided on their way there. Beam pickles it with the pipeline."""

    url: str
    stream: str
    job: str
    token: str | None = field(repr=False)
    parts: int
    window: int | None
    start: int
    stop: int | None
    ca_file: str | None
    retry: RetryPolicy

    def __post_init__(self) -> None:
        checks.require_integer_in_range(1, 999, parts=self.parts)
        if _JOB.fullmatch(self.job) is None:
            raise InvalidParameter(f"job must match {_JOB.pattern}, and be the same whenever the pipeline is run again")
        HttpConnection(self.url, None, None, self.retry)  # refuses what is no address
        if self.window is not None:
            checks.require_integer_in_range(1, 366 * 86_400, window=self.window)
            checks.require_integer_in_range(0, 2**40, start=self.start)
            if self.start % self.window:
                raise InvalidParameter(f"start must be a multiple of window, {self.window} seconds, got {self.start}")
            if self.stop is not None and (self.stop <= self.start or self.stop % self.window):
                raise InvalidParameter("stop must be after start, and a multiple of window")

    @property
    def prefix(self) -> str:
        """The common beginning of the names of the parts."""
        division = f"{self.start}.{self.window}" if self.window is not None else "all"
        return f"beam.{self.job}.{division}.{self.parts}."


def WriteToPanstream(
    url: str,
    stream: str,
    *,
    job: str,
    parts: int = 8,
    window: int | None = None,
    start: int = 0,
    stop: int | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    retry: RetryPolicy | None = None,
) -> Any:
    """Return a transform that sends every row of a collection to a server once.

    ::

        with beam.Pipeline() as pipeline:
            rows = pipeline | beam.io.ReadFromParquet("visits/*.parquet")
            rows | WriteToPanstream("https://counts.example:8080", "visits", job="visits-2026-11-19")

    Elements are dictionaries, named tuples or ``beam.Row``, with the columns of the stream. Counters of the namespace
    ``panstream`` say what became of the rows: ``rows``, ``skipped``, ``late``, ``repeated`` (batches that were counted
    before) and ``before_start``.

    Args:
        url: The server, such as https://host:port.
        stream: The name of the stream.
        job: A name for these rows, the same whenever the pipeline is run again: letters, digits,
            ``_``, ``:`` and ``-``, at most 32. Another name counts all rows again.
        parts: How many producers share the rows. A part, of a window if there are any, must fit
            into the server's ``--max-body``.
        window: Seconds of event time that are sent together; an unbounded input needs it. The
            input's own windows are replaced, and data that come after the watermark has passed
            the end of their window are dropped, as Beam does.
        start: Event time in seconds since 1970 at which the first window begins, the same
            whenever the pipeline is run again; earlier rows are left out.
        stop: Event time at which the last window ends; None goes on.
        token: What ``panstream token`` printed. Beam pickles it with the pipeline; without one,
            every worker reads PANSTREAM_TOKEN in its environment.
        ca_file: Certificates to trust, PEM, on every worker.
        retry: How often and for how long to try again; the pipeline waits meanwhile.

    Returns:
        An ``apache_beam.PTransform``.
    """
    target = BeamTarget(
        url=url,
        stream=stream,
        job=job,
        token=token,
        parts=parts,
        window=window,
        start=start,
        stop=stop,
        ca_file=ca_file,
        retry=retry or _PATIENT,
    )
    import_optional("apache_beam", "sending rows from Beam", "beam")
    from panstream.distributed._beam_pipeline import Write

    return Write(target)
