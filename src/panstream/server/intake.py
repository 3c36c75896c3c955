"""What a request that brings events must say, and what it is told. Both ways in share it: the general one and the short one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from panstream.server.jobs import Taken
from panstream.server.openapi import MAX_SEQUENCE, PRODUCER_PATTERN
from panstream.server.refusals import Refusal

__all__ = ["origin", "outcome"]

_SHOWN = 1_000  # row numbers told to the sender
_PRODUCER = re.compile(PRODUCER_PATTERN)


def origin(headers: Mapping[str, str]) -> tuple[str | None, int]:
    """Return producer and sequence from the headers."""
    producer, sequence = headers.get("panstream-producer"), headers.get("panstream-sequence")
    if producer is None and sequence is None:
        return None, 0
    if producer is None or sequence is None:
        raise Refusal("bad_request", "Panstream-Producer and Panstream-Sequence are given together or not at all")
    if _PRODUCER.fullmatch(producer) is None:
        raise Refusal("bad_request", f"Panstream-Producer must fit {PRODUCER_PATTERN}")
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) < 20 and int(sequence) <= MAX_SEQUENCE):
        raise Refusal("bad_request", f"Panstream-Sequence must be a whole number in 0..{MAX_SEQUENCE}")
    return producer, int(sequence)


def outcome(taken: Taken) -> dict[str, Any]:
    """Return what became of a body, for its sender."""
    applied = taken.applied
    skipped = sorted({*taken.bad, *applied.skipped}) if applied.new else []
    late = list(applied.late)
    return {
        "new": applied.new,
        "rows": taken.rows,
        "skipped": {"count": len(skipped), "rows": skipped[:_SHOWN]},
        "late": {"count": len(late), "rows": late[:_SHOWN]},
    }
