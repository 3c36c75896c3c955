"""What one machine stores on disk: its shares, and public facts about the step they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from panstream.algorithms.secret_shared.party import StateShare
from panstream.algorithms.secret_shared.rules import rule_from_parameters
from panstream.errors import StoreDamaged

_FORMAT = 1

Answers = dict[str, list[tuple[int, list[int], int]]]
"""By state: number, values and step of every answer that the dealer may ask for again."""


@dataclass(slots=True)
class StepRecord:
    """The public facts of a committed step.

    Attributes:
        step: Its number.
        attempt: The attempt that succeeded. Step and attempt identify a set of shares on both machines.
        origins: By producer, its last batch that the dealer has not committed, and the step it was in.
        answers: Answers that the dealer has not committed.
        kinds: By state, the kind of its rule.
        committed_states: States that the dealer has committed.
    """

    step: int = 0
    attempt: int = 0
    origins: dict[str, tuple[int, int]] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    committed_states: frozenset[str] = frozenset()

    def answers_since(self, step: int) -> dict[str, list[Any]]:
        """Return number and values of the answers of this step and later ones, by state."""
        answers = {name: [entry[:2] for entry in entries if entry[2] >= step] for name, entries in self.answers.items()}
        return {name: entries for name, entries in answers.items() if entries}

    def after(
        self, step: int, attempt: int, kinds: dict[str, str], origins: Mapping[str, int], *, committed: int
    ) -> StepRecord:
        """Return the record of the next step.

        Args:
            step: The step's number.
            attempt: The number of the attempt that succeeded.
            kinds: The kind of every state.
            origins: By producer, its last batch in the step.
            committed: The last step that the dealer has committed: it asks for nothing up to it again.
        """
        recent = {name: entry for name, entry in self.origins.items() if entry[1] > committed}
        recent |= {name: (sequence, step) for name, sequence in origins.items()}
        answers = {name: [entry for entry in entries if entry[2] > committed] for name, entries in self.answers.items()}
        answers = {name: entries for name, entries in answers.items() if entries}
        committed_states = frozenset(self.kinds if committed >= self.step else self.committed_states) & kinds.keys()
        return StepRecord(step, attempt, recent, answers, kinds, committed_states)


def encode_step(
    name: str, held: StepRecord, shares: dict[str, StateShare], about: dict[str, Any]
) -> dict[str, bytes | memoryview]:
    """Return the named parts of a commit: the record as JSON, and views of the shares, which are not copied."""
    states = {
        state: [held.kinds[state], share.rule.parameters(), share.released, sorted(share.answers)]
        for state, share in shares.items()
    }
    meta = {
        "format": _FORMAT,
        "step": held.step,
        "attempt": held.attempt,
        "origins": held.origins,
        "answers": held.answers,
        "states": states,
        "known": sorted(held.committed_states),
        **about,
    }
    cells = {f"{name}/{state}": share.cells.data for state, share in shares.items()}
    answers = {
        f"{name} {number}/{state}": part.data.cast("B")
        for state, share in shares.items()
        for number, part in share.answers.items()
    }
    return {name: json.dumps(meta).encode(), **cells, **answers}


def decode_step(name: str, parts: Mapping[str, bytes]) -> tuple[dict[str, Any], StepRecord, dict[str, StateShare]]:
    """Return header, record and shares from the parts that `encode_step` returned.

    Raises:
        StoreDamaged: If the format is unknown.
        KeyError, TypeError, ValueError: If the parts are something else.
    """
    meta = json.loads(parts[name])
    if meta["format"] != _FORMAT:
        raise StoreDamaged(f"the shares have format {meta['format']!r}; this release reads format {_FORMAT}")
    kinds = {}
    shares = {}
    for state, (kind, parameters, released, numbers) in meta["states"].items():
        rule = rule_from_parameters(kind, parameters)
        cells = np.frombuffer(parts[f"{name}/{state}"], np.uint8).copy()
        if cells.size != rule.size:
            raise ValueError(state)
        prepared = {number: rule.ring.from_bytes(parts[f"{name} {number}/{state}"]) for number in numbers}
        kinds[state] = kind
        shares[state] = StateShare(rule, cells, released, prepared)
    origins = {producer: (sequence, step) for producer, (sequence, step) in meta["origins"].items()}
    answers = {
        state: [(number, opened, step) for number, opened, step in entries]
        for state, entries in meta["answers"].items()
    }
    known_kinds = frozenset(meta["known"])
    return meta, StepRecord(meta["step"], meta["attempt"], origins, answers, kinds, known_kinds), shares
