"""Every algorithm panstream ships, by name: the one list that bytes, exports, conformance suite and audit read.

Pure data: looking a name up imports only the module it names.
"""

from __future__ import annotations

__all__ = ["ALGORITHMS"]

ALGORITHMS: dict[str, str] = {
    "OptBern": "panstream.density.optbern",
}
