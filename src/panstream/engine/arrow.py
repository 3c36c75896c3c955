"""pyarrow for the engine, or the command that installs it."""

from __future__ import annotations

from panstream.errors import MissingExtra

__all__ = ["compute", "pa"]

try:
    import pyarrow as pa
    import pyarrow.compute as compute
except ImportError:
    raise MissingExtra("the stream engine", "engine") from None
