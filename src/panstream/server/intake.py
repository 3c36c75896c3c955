"""What a request that brings events must say, and what it is told. Both ways in share it: the general one and the short one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from panstream.engine.producers import ID_PATTERN, Sender
from panstream.server.jobs import Taken
from panstream.server.openapi import MAX_SEQUENCE
from panstream.server.refusals import Refusal

__all__ = ["origin", "outcome"]

_SHOWN = 1_000  # row numbers told to the sender
_ID = re.compile(ID_PATTERN)


def origin(headers: Mapping[str, str], token: str) -> tuple[Sender | None, int]:
    """Return who sends, under which token's name, and the batch's number."""
    producer, sequence = headers.get("panstream-producer"), headers.get("panstream-sequence")
    if producer is None and sequence is None:
        return None, 0
    if producer is None or sequence is None:
        raise Refusal("bad_request", "Panstream-Producer and Panstream-Sequence are given together or not at all")
    if _ID.fullmatch(producer) is None:
        raise Refusal("bad_request", f"Panstream-Producer must be the id that opening it told, and fit {ID_PATTERN}")
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) < 20 and 1 <= int(sequence) <= MAX_SEQUENCE):
        raise Refusal("bad_request", f"Panstream-Sequence must be a whole number in 1..{MAX_SEQUENCE}")
    return Sender(token, producer), int(sequence)


def outcome(taken: Taken) -> dict[str, Any]:
    """Return what became of a body, for its sender."""
    applied = taken.applied
    skipped, late = applied.skipped, applied.late
    return {
        "new": applied.new,
        "rows": taken.rows,
        "skipped": {"count": len(skipped), "rows": list(skipped[:_SHOWN])},
        "late": {"count": len(late), "rows": list(late[:_SHOWN])},
    }
