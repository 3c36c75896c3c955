"""Errors of readers, turned into ours: a reader's own message may quote the data it stumbled over."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from typing import TypeVar

from panstream.engine.arrow import pa
from panstream.errors import SourceError

T = TypeVar("T")


class CorruptParquet(ValueError):
    """This is not what a Parquet file has here."""


def translate_reader_errors(call: Callable[[], T], *, label: str, what: str) -> T:
    """Return ``call()``; if it cannot read its input, raise a ``SourceError`` that names the place and nothing else.

    The error is raised outside the ``except`` block, so that the reader's error is not even chained to it.
    """
    try:
        return call()
    except FileNotFoundError:
        reason = "does not exist"
    except PermissionError:
        reason = "may not be read"
    except IsADirectoryError:
        reason = "is a directory"
    except MemoryError:
        reason = f"could not be read: a part of it claims to be larger than memory, so it is damaged or not {what}"
    except (pa.ArrowException, OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, CorruptParquet):
        reason = f"could not be read: it is cut off, damaged or not {what}"
    raise SourceError(f"{label} {reason}")
