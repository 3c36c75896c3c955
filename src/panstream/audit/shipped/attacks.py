"""What an intruder does with a stolen file or with the process's memory: guesses, as trials whose advantage is reported."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from panstream.algorithm import Monitor
from panstream.audit.case import Case, Trial
from panstream.audit.member import member_odds
from panstream.batch import Items
from panstream.density.optbern import OptBern
from panstream.distinct.bitmap import Bitmap

__all__ = ["LeavesIdsBehind", "attack_cases", "attack_controls", "in_freed_memory"]

_NEEDLE, _OTHER = 0x51A7C0FFEE5EED17, 0x2B0B5EEDCAFED00D
_LARGEST = 32  # words; numpy hands freed small blocks out again as they are
_WAITING = 8  # blocks of one size that may have been freed


class LeavesIdsBehind(Bitmap):
    """Frees its copy of the ids without overwriting it. Never use it."""

    def batch(self, ids: Any) -> Items:
        """Return ids that nobody will wipe."""
        return replace(Bitmap.batch(self, ids), owned=())


def in_freed_memory(number: int) -> bool:
    """Return whether a block that the allocator hands out still holds the number."""
    for words in range(1, _LARGEST + 1):
        blocks = [np.empty(words, np.uint64) for _ in range(_WAITING)]
        if any((block == np.uint64(number)).any() for block in blocks):
            return True
    return False


def _left_behind(algorithm: Bitmap, first: bool) -> bool:
    for words in range(1, _LARGEST + 1):  # what earlier runs left
        for block in [np.empty(words, np.uint64) for _ in range(_WAITING)]:
            block.fill(0)
    Monitor(algorithm).update([_NEEDLE if first else _OTHER, 5, 7])
    return in_freed_memory(_NEEDLE)


def _odds_speak(algorithm: OptBern, first: bool) -> bool:
    monitor = Monitor(algorithm)
    monitor.update([0, 1] if first else [1])
    return member_odds(monitor.to_bytes(), 0).factor > 1


def attack_cases() -> list[Case]:
    """Return attacks on sound code: they succeed no more often than the claim allows."""
    bits = OptBern(universe=2, epsilon=1.0)
    table = Bitmap(epsilon=1.0, buckets=64, levels=2)
    shared: dict[str, Any] = {"kind": "production", "sampled": True, "quick_runs": 500, "runs": 4_000}
    return [
        Case(
            name="OptBern, membership attack on a stolen file",
            claimed=bits.claim().epsilon,
            trial=Trial(
                "the likelihood ratio of the stolen bytes speaks for the member", partial(_odds_speak, bits), True
            ),
            algorithm=bits,
            **shared,
        ),
        Case(
            name="Bitmap, allocator residue",
            claimed=table.claim().epsilon,
            trial=Trial("the member's id is in freed memory after the step", partial(_left_behind, table), True),
            algorithm=table,
            **shared,
        ),
    ]


def attack_controls() -> list[Case]:
    """Return what the same attack finds where a copy is not overwritten."""
    careless = LeavesIdsBehind(epsilon=1.0, buckets=64, levels=2)
    return [
        Case(
            name="Ids left in freed memory",
            kind="control",
            claimed=careless.claim().epsilon,
            trial=Trial("the member's id is in freed memory after the step", partial(_left_behind, careless), True),
            algorithm=careless,
            stands_for="memory that is freed and not overwritten: the allocator hands it to whoever asks next",
            sampled=True,
            quick_runs=300,
            runs=2_000,
        )
    ]
