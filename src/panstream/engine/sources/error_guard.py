"""Translate errors of readers: their own messages may quote data."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from typing import TypeVar

from panstream.engine.arrow import pa
from panstream.errors import SourceError
from panstream.primitives.inputs.parquet_footer import CorruptParquet

T = TypeVar("T")


def translate_reader_errors(call: Callable[[], T], *, label: str, what: str) -> T:
    """Return ``call()``; if it fails to read its input, raise a SourceError with ``label`` and a reason.

    The error is raised after the ``except`` block, so that the reader's error, which may hold data, is not chained.
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
