"""Arrow IPC, as a stream or as a file; a stream may also come through a pipe or compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from panstream.engine.arrow import pa
from panstream.engine.feeds.guard import guarded
from panstream.engine.feeds.ipc_checks import CheckedStream, check_file
from panstream.engine.feeds.layouts import check_types
from panstream.engine.feeds.typed import from_arrow
from panstream.engine.rows import Rows, RowSchema
from panstream.errors import FeedError

__all__ = ["ArrowInput"]

_MAGIC = b"ARROW1"


class ArrowInput:
    """Record batches of one input. Memory is bounded by the largest batch that its writer made.

    ``handle`` is a pyarrow file or stream that reads into memory of its own: nothing is mapped, since batches are
    overwritten after use.
    """

    def __init__(self, handle: Any, schema: RowSchema, *, place: str, seekable: bool) -> None:
        self._handle, self._schema, self._place = handle, schema, place
        head = guarded(lambda: handle.read(len(_MAGIC)), place=place, what="Arrow IPC") if seekable else b""
        if seekable:
            handle.seek(0)
        self._is_file = head == _MAGIC
        try:
            self._reader = self._guarded(lambda: self._open())
            check_types(self._reader.schema, schema, place)
        except FeedError:
            handle.close()
            raise

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows in order."""
        number = 0
        while (batch := self._guarded(lambda number=number: self._batch(number))) is not None:  # type: ignore[misc]
            number += 1
            yield from_arrow(batch, self._schema, place=self._place)

    def close(self) -> None:
        """Close the input."""
        self._handle.close()

    def _open(self) -> Any:
        if not self._is_file:
            return pa.ipc.open_stream(pa.PythonFile(CheckedStream(self._handle, self._place), "r"))
        check_file(self._handle, self._place)
        names = pa.ipc.open_file(self._handle).schema
        wanted = [names.get_field_index(name) for name in self._schema.columns]
        # Other columns are not even read; a missing one is reported by check_types.
        options = pa.ipc.IpcReadOptions(included_fields=sorted(wanted) if min(wanted) >= 0 else None)
        return pa.ipc.open_file(self._handle, options=options)

    def _batch(self, number: int) -> Any:
        if self._is_file:
            if number >= self._reader.num_record_batches:
                return None
            return self._reader.get_batch(number)
        return next(iter(self._reader), None)

    def _guarded(self, call: Callable[[], Any]) -> Any:
        return guarded(call, place=self._place, what="Arrow IPC")
