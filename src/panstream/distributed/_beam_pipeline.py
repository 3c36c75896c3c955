"""The classes that Beam pickles and runs; imports Beam."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from panstream.client.client import Client
from panstream.client.transport import HttpConnection
from panstream.distributed.beam import BeamTarget
from panstream.errors import InvalidParameter, PanstreamError, RequestRejected

_COUNTS = ("rows", "skipped", "late", "repeated")


class Write(beam.PTransform):  # type: ignore[misc]
    """Divides rows by their contents, groups them by part and window, and sends the groups."""

    def __init__(self, target: BeamTarget) -> None:
        super().__init__(label="WriteToPanstream")
        self._target = target

    def expand(self, rows: Any) -> Any:
        """Return what follows: nothing."""
        target = self._target
        keyed = rows | "Divide" >> beam.ParDo(_Divide(target.parts))
        if target.window is None:
            if not rows.is_bounded:
                raise InvalidParameter("window must be given: the input has no end")
            windowed = keyed | "Together" >> beam.WindowInto(GlobalWindows())
            parts = rows.pipeline | "Parts" >> beam.Create([(part, None) for part in range(target.parts)])
        else:
            windows = FixedWindows(target.window)
            windowed = keyed | "Windows" >> beam.WindowInto(
                windows, trigger=DefaultTrigger(), accumulation_mode=AccumulationMode.DISCARDING, allowed_lateness=0
            )
            limits = {} if target.stop is None else {"stop_timestamp": target.stop - target.window}
            ticks = rows.pipeline | "Ticks" >> PeriodicImpulse(
                start_timestamp=target.start, fire_interval=target.window, **limits
            )
            parts = (
                ticks
                | "Parts" >> beam.FlatMap(_every_part, target.parts)
                | "Parts by window" >> beam.WindowInto(windows)
            )
        # A part is sent even if it has no rows: numbers have no gaps, and do not depend on what rows contain.
        grouped = (windowed, parts) | "All parts" >> beam.Flatten() | "Group" >> beam.GroupByKey()
        return grouped | "Send" >> beam.ParDo(_Send(target))


def _every_part(_: Any, parts: int) -> Iterator[tuple[int, None]]:
    for part in range(parts):
        yield part, None


class _Divide(beam.DoFn):  # type: ignore[misc]
    """Pairs a row with its part, which its contents alone decide."""

    def __init__(self, parts: int) -> None:
        self._parts = parts

    def process(self, element: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        row = _as_dict(element)
        digest = hashlib.blake2b(repr(_ordered(row)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        yield int.from_bytes(digest, "big") % self._parts, row


def _as_dict(element: Any) -> dict[str, Any]:
    if isinstance(element, Mapping):
        return dict(element)
    for method in ("_asdict", "as_dict"):
        if hasattr(element, method):
            return dict(getattr(element, method)())
    raise InvalidParameter(
        f"an element must be a dictionary, a named tuple or a beam.Row, got {type(element).__name__}"
    )


def _ordered(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items(), key=lambda item: item[0]))


class _Send(beam.DoFn):  # type: ignore[misc]
    """Sends groups at the end of a bundle, each part's windows in order."""

    def __init__(self, target: BeamTarget) -> None:
        self._target = target
        self._groups: list[tuple[int, int, list[dict[str, Any]]]] = []

    def setup(self) -> None:
        """Refuse another division of rows of which some were counted."""
        target = self._target
        connection = HttpConnection(target.url, self._token(), target.ca_file, target.retry)
        try:
            producers = connection.request("GET", "/v1/producers")["producers"]
        finally:
            connection.close()
        for producer in producers:
            name = str(producer["name"])
            is_other = name.startswith(f"beam.{target.job}.") and not name.startswith(target.prefix)
            if is_other and int(producer["last"]):
                division = name.removeprefix(f"beam.{target.job}.").rpartition(".")[0]
                raise InvalidParameter(
                    f"parts, window and start must stay as they were for job {target.job!r}: some of it was counted as "
                    f"{division!r} (start.window.parts); use another job for other rows"
                )

    def start_bundle(self) -> None:
        """Begin with no groups: those of a bundle that failed come again."""
        self._groups = []

    def process(self, element: tuple[int, Iterable[Any]], window: Any = beam.DoFn.WindowParam) -> None:
        """Hold a group until the bundle ends."""
        part, values = element
        target = self._target
        rows = [row for row in values if row is not None]
        number = 1
        if target.window is not None:
            number = (int(float(window.start)) - target.start) // target.window + 1
            if number < 1:
                Metrics.counter("panstream", "before_start").inc(len(rows))
                return
        self._groups.append((number, part, rows))

    def finish_bundle(self) -> None:
        """Send the groups."""
        groups = self._groups
        self._groups = []
        for number, part, rows in sorted(groups, key=lambda group: group[:2]):
            self._send(number, part, rows)

    def _send(self, number: int, part: int, rows: list[dict[str, Any]]) -> None:
        target = self._target
        name = f"{target.prefix}{part}"
        if number > 1:
            self._wait_for(name, number - 1)
        client = Client(
            target.url,
            stream=target.stream,
            token=self._token(),
            producer=name,
            connections=1,
            compression="zstd",
            ca_file=target.ca_file,
            retry=target.retry,
        )
        with client:
            try:
                client.send_numbered(_columns(rows), number)
            except RequestRejected as error:
                if error.code != "too_large":
                    raise
                raise InvalidParameter(
                    "parts is too small: a part does not fit into one request. Use a shorter window, raise the "
                    "server's --max-body, or use more parts under another job"
                ) from None
            for count in _COUNTS:
                Metrics.counter("panstream", count).inc(int(getattr(client.sent, count)))

    def _wait_for(self, name: str, number: int) -> None:
        """Wait until a part's window was sent, by another worker; raise PanstreamError if it is not in time."""
        target = self._target
        connection = HttpConnection(target.url, self._token(), target.ca_file, target.retry)
        try:
            for attempt in range(target.retry.max_attempts):
                known = connection.request("GET", "/v1/producers")["producers"]
                if any(producer["name"] == name and int(producer["last"]) >= number for producer in known):
                    return
                target.retry.delay(attempt)
        finally:
            connection.close()
        raise PanstreamError(f"window {number} of {name!r} has not been sent, so the next one has to be repeated")

    def _token(self) -> str | None:
        return self._target.token if self._target.token is not None else os.environ.get("PANSTREAM_TOKEN")


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns, in an order that does not depend on that in which the runner brings them."""
    if not rows:
        return {}
    rows = sorted(rows, key=lambda row: repr(_ordered(row)))
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
