"""What the specimens share: a canary that must never be shown, and batches to refuse."""

from __future__ import annotations

from typing import Any

__all__ = ["BAD_IDS", "BAD_VALUES", "CANARY"]

CANARY = "8103482173001"

BAD_IDS: tuple[dict[str, Any], ...] = (
    {"ids": [1, int(CANARY)]},
    {"ids": [2, None]},
    {"ids": [f"x{CANARY}"]},
    {"ids": [1.5]},
)

BAD_VALUES: tuple[dict[str, Any], ...] = (
    {"values": [1, None]},
    {"values": [f"x{CANARY}"]},
    {"values": [1.0, float("nan")]},
    {"values": f"x{CANARY}"},
)
