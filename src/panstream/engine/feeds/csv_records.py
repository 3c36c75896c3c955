"""Where CSV records end (RFC 4180): a newline in quotes ends none, and a quote counts only at the start of a field."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter

__all__ = ["Dialect"]


class Dialect:
    """A delimiter and a quote; ``quote=None`` takes quotes as ordinary characters, as tab-separated logs often do."""

    def __init__(self, *, delimiter: str = ",", quote: str | None = '"') -> None:
        if len(delimiter.encode()) != 1 or delimiter in "\r\n":
            raise InvalidParameter("delimiter must be one character of ASCII")
        if quote is not None and (len(quote.encode()) != 1 or quote in "\r\n" + delimiter):
            raise InvalidParameter("quote must be one character of ASCII other than the delimiter, or None")
        self.delimiter, self.quote = delimiter, quote
        edge = re.escape(delimiter.encode())
        field = plain = rb"[^\r\n" + edge + rb"]*+"
        if quote is not None:
            mark = re.escape(quote.encode())
            inner = rb"[^" + mark + rb"]*+"
            quoted = mark + inner + rb"(?:" + mark + mark + inner + rb")*+" + mark + plain
            field = rb"(?:" + quoted + rb"|(?!" + mark + rb")" + plain + rb")"
        # A carriage return at the very end may be half of a line end.
        record = field + rb"(?:" + edge + field + rb")*+(?:\r\n|\n|\r(?=[^\n]))"
        self._record = re.compile(record)

    def first_end(self, data: bytearray, begin: int, end: int) -> int | None:
        """Return where the record that begins at ``begin`` ends, with its line end, or ``None`` if it does not."""
        match = self._record.match(data, begin, end)
        return None if match is None else match.end()

    def likely_end(self, data: bytearray, end: int) -> int:
        """Return where the last record ends, taking it that every quote has its place."""
        last = data.rfind(b"\n", 0, end) + 1
        if self.quote is None or not last:
            return last
        quotes = np.count_nonzero(np.frombuffer(data, np.uint8, last) == ord(self.quote))
        return self.last_end(data, end) if quotes % 2 else last

    def last_end(self, data: bytearray, end: int) -> int:
        """Return where the last complete record ends, 0 if there is none."""
        last = data.rfind(b"\n", 0, end) + 1
        if self.quote is None or not last:
            return last
        view = np.frombuffer(data, np.uint8, end)
        quotes = np.flatnonzero(view == ord(self.quote))
        if not self._orderly(view, quotes):
            return self._walked(data, end)
        while last and (before := int(np.searchsorted(quotes, last))) % 2:
            last = data.rfind(b"\n", 0, int(quotes[before - 1])) + 1
        return last

    def _orderly(self, view: NDArray[np.uint8], quotes: NDArray[np.int64]) -> bool:
        """Tell whether every quote opens a field, closes it, or is doubled inside it."""
        edges = np.zeros(256, bool)
        edges[[*b"\r\n", ord(self.delimiter), ord(self.quote or "")]] = True
        opening, closing = quotes[0::2], quotes[1::2]
        before = view[opening[opening > 0] - 1]
        after = view[closing[closing < view.size - 1] + 1]
        return bool(edges[before].all() and edges[after].all())

    def _walked(self, data: bytearray, end: int) -> int:
        """Go from record to record. Blocks end with a newline only: whether a carriage return ends a line, the next byte tells."""
        position: int | None = 0
        last = 0
        while position is not None:
            last = position if position and data[position - 1] == 0x0A else last
            position = self.first_end(data, position, end)
        return last
