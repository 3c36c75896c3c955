"""Counts that a sender keeps of its own rows, so that at most K of them are counted in a window.

Windows of length L are [kL, (k+1)L) of Unix time, and k is the window's number. A sender numbers its rows of a kind in
every window, 1, 2, 3, ..., and stores the last number before a row leaves. A window that is over never opens again, so
no number is used twice for a window, whatever the sender's clock does. A row carries its numbers in the column
``sender_counts``, one entry KIND:LENGTH:WINDOW:NUMBER for every kind and length. A query takes a row whose entry names
the window that the row falls into and a number of at most K, so it takes at most K rows of a sender in a window.

What is stored names nothing but windows and counts: ``"86400 20775 r3;604800 2967 r5"`` says that three rows were
numbered in day 20775 and five in week 2967. server/website/counter.js does the same in browsers.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from typing import Final

COLUMN: Final = "sender_counts"
ROW: Final = "row"  # the kind of all rows
CODES: Final = {  # of kinds, in what is stored: one letter each
    ROW: "r",
    "view": "v",
    "entry": "e",
    "referral": "f",
    "campaign": "c",
    "load": "l",
    "error": "x",
    "event": "n",
}
_ENTRY = re.compile(r"(\d+) (-?\d+) ((?:[a-z]\d+)*)")
_COUNT = re.compile(r"([a-z])(\d+)")


def window_number(time: float, length: float) -> int:
    """Return the number k of the window [k·length, (k+1)·length) that contains a time.

    >>> window_number(1_700_000_000.0, 86_400)
    19675
    """
    return math.floor(time / length)


class SentCounts:
    """The counts of one sender.

    Args:
        caps: The largest number that a row may have, by kind and length of the window in seconds.
        text: What ``text()`` returned before; empty at first.

    Raises:
        ValueError: If ``text`` is not such a text.
    """

    def __init__(self, caps: Mapping[tuple[str, int], int], text: str = "") -> None:
        self._caps = dict(caps)
        self._windows: dict[int, int] = {}
        self._counts: dict[int, dict[str, int]] = {}
        for entry in filter(None, text.split(";")):
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise ValueError("not the text of sender counts")
            length = int(match[1])
            self._windows[length] = int(match[2])
            self._counts[length] = {code: int(count) for code, count in _COUNT.findall(match[3])}

    def begin(self, now: float) -> None:
        """Regard the windows that are open as used up: for a sender that does not know what it sent in them."""
        for (_, length), _cap in self._caps.items():
            self._windows[length] = max(window_number(now, length), self._windows.get(length, -(1 << 62)))
            self._counts[length] = {CODES[kind]: cap for (kind, of), cap in self._caps.items() if of == length}

    def number(self, kinds: tuple[str, ...], now: float) -> str:
        """Number a row of some kinds, and return its entries; the counts must be stored before the row is sent.

        A row has no entry for a kind that has reached its cap, nor while the clock shows an earlier window than before.

        >>> counts = SentCounts({("row", 86_400): 2})
        >>> [counts.number(("row",), 1_700_000_000.0) for _ in range(3)]
        ['row:86400:19675:1', 'row:86400:19675:2', '']
        """
        entries = []
        for (kind, length), cap in self._caps.items():
            window = window_number(now, length)
            if window > self._windows.get(length, window - 1):
                self._windows[length] = window
                self._counts[length] = {}
            counts = self._counts[length]
            number = counts.get(CODES[kind], 0) + 1
            if kind in kinds and window == self._windows[length] and number <= cap:
                counts[CODES[kind]] = number
                entries.append(f"{kind}:{length}:{window}:{number}")
        return " ".join(entries)

    def text(self) -> str:
        """Return what has to be stored."""
        return ";".join(
            f"{length} {window} " + "".join(f"{code}{count}" for code, count in self._counts[length].items())
            for length, window in self._windows.items()
        )


def parse_caps(text: str) -> dict[str, int]:
    """Return caps by window length, as given on a command line.

    >>> parse_caps("1 day=8, 7 days=12")
    {'1 day': 8, '7 days': 12}
    """
    caps = {}
    for part in text.split(","):
        length, _, most = part.partition("=")
        caps[length.strip()] = 0
        with contextlib.suppress(ValueError):
            caps[length.strip()] = int(most)
    return caps
