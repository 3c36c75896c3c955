"""Both machines and the front end in one process, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import Party, StepTask, deal, open_answers
from panstream.algorithms.secret_shared.ring import Keystream
from panstream.algorithms.secret_shared.rules import Rule
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.primitives.noise.entropy import system_entropy


def fresh() -> NDArray[np.uint8]:
    key = np.empty(32, np.uint8)
    system_entropy(key)
    return key


def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    return np.concatenate(
        [np.empty(0, np.uint8), *(np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in arrays)]
    )


class Three:
    """A front end that knows the rules, and two parties that hold the shares."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.parties = Party(first=True), Party(first=False)

    def step(self, task: StepTask, change: Mapping[str, Dealt] | None = None) -> dict[str, list[int]]:
        self.rules = {name: rule for name, rule in self.rules.items() if name not in task.dropped}
        self.rules |= task.started
        keys = (fresh(), fresh())
        common = fresh()
        with Scratch() as scratch, NoiseSource() as rng:
            dealt = deal(task, self.rules, change or {}, *(Keystream(key, scratch) for key in keys))
            given = (None, {name: tuple(each.copy() for each in part) for name, part in dealt.items()})
            sent = [
                joined(party.open(task, Keystream(key, scratch), own, rng))
                for party, key, own in zip(self.parties, keys, given, strict=True)
            ]
            after = [
                party.close(other, Keystream(common, scratch))
                for party, other in zip(self.parties, reversed(sent), strict=True)
            ]
            for party, each in zip(self.parties, after, strict=True):
                party.install_shares(each)
            return open_answers(self.rules, [each.answers for each in after])

    def opened(self, name: str) -> NDArray[np.uint8]:
        """Return both shares together, of bits."""
        first, second = (party.shares[name].cells for party in self.parties)
        return first ^ second
