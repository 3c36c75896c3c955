"""One party's part of a step: from what it was dealt to its new shares and its share of an answer, without I/O.

A step has two halves. `open` draws noise, masks shares and returns the message to the other machine; `close` takes the
other machine's message and returns the new shares. The old ones stay valid until the caller calls `install_shares`.
Every state is re-randomised in every step, whatever the step does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.ring import Bits, Numbers, SeedExpander
from panstream.algorithms.secret_shared.rules import Rule
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.errors import BudgetExhausted, TwoPartyError
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource

Kind = Literal["rows", "answers", "idle"]
Change = Mapping[str, Dealt]
"""The change of every state in a step: arrays whose sizes do not depend on the rows."""


@dataclass(slots=True)
class StateShare:
    """One machine's share of a state, and the public number of answers prepared from it.

    ``answers`` are its shares of the noised answers that the last step prepared, by number. They are committed with the
    cells and reconstructed afterwards, so that repeating the reconstruction always gives the same numbers.
    """

    rule: Rule
    cells: Bits
    released: int = 0
    answers: dict[int, Numbers] = field(default_factory=dict)

    def copy(self) -> StateShare:
        """Return a deep copy."""
        answers = {number: part.copy() for number, part in self.answers.items()}
        return StateShare(self.rule, self.cells.copy(), self.released, answers)

    def wipe(self) -> None:
        """Overwrite cells and answers."""
        wipe(self.cells)
        self.wipe_answers()

    def wipe_answers(self) -> None:
        """Overwrite and remove the answers."""
        for part in self.answers.values():
            wipe(part)
        self.answers.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """The public part of a step: states that start, states that are dropped, and those that are answered."""

    kind: Kind
    started: Mapping[str, Rule] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    answered: Sequence[str] = ()


@dataclass(slots=True)
class StepResult:
    """The shares of the next epoch, and the answers that the step prepared."""

    shares: dict[str, StateShare]
    answers: dict[str, Numbers]

    def wipe(self) -> None:
        """Overwrite the shares, if the step is not committed."""
        for share in self.shares.values():
            share.wipe()


@dataclass(slots=True)
class _PendingStep:
    """A step that waits for the message of the other machine."""

    task: StepTask
    shares: dict[str, StateShare]
    held: dict[str, Any]
    sent: dict[str, Bits]


class Party:
    """One of the two machines: its shares by name. The ``first`` gets a seed only, the second also what is dealt."""

    def __init__(self, *, first: bool) -> None:
        self.first = first
        self.shares: dict[str, StateShare] = {}
        self._open: _PendingStep | None = None

    def open(
        self, task: StepTask, expander: SeedExpander, dealt: Mapping[str, Dealt] | None, rng: NoiseSource
    ) -> list[Bits]:
        """Begin a step on copies of the shares and return the message to the other machine.

        Raises:
            BudgetExhausted: An answered state has no release left.
        """
        shares = {name: share.copy() for name, share in self.shares.items() if name not in task.dropped}
        shares |= {name: StateShare(rule, rule.start(rng)) for name, rule in task.started.items()}
        names = sorted(shares) if task.kind == "rows" else sorted(task.answered)
        step = _PendingStep(task, shares, {}, {})
        for name in names:
            share = shares[name]
            dealt_share = None if dealt is None else dealt[name]
            if task.kind == "rows":
                step.held[name] = share.rule.begin_update(expander, dealt_share)
                step.sent[name] = share.rule.outgoing_message(share.cells, step.held[name])
            else:
                if share.released >= share.rule.releases:
                    raise BudgetExhausted(f"no declared release is left (releases={share.rule.releases})")
                step.held[name] = share.rule.hold_answer(expander, dealt_share, share.released, rng)
                step.sent[name] = share.rule.send_answer(share.cells, step.held[name])
        self._open = step
        return list(step.sent.values())

    def close(self, received: Bits, common: SeedExpander) -> StepResult:
        """End the step and return the new shares; the current ones are not replaced yet.

        Args:
            received: The message of the other machine.
            common: Uniform numbers that both machines drew together, for the re-randomisation.
        """
        step = self._open
        if step is None or received.nbytes != sum(sent.nbytes for sent in step.sent.values()):
            raise TwoPartyError("the other machine sent something that does not belong to this step")
        self._open = None
        answers: dict[str, Numbers] = {}
        pos = 0
        for name, sent in step.sent.items():
            share = step.shares[name]
            part = received[pos : pos + sent.nbytes]
            pos += sent.nbytes
            if step.task.kind == "rows":
                share.rule.finish_update(share.cells, sent, part, step.held[name])
            else:
                answer = share.rule.answer(share.cells, sent, part, step.held[name], first=self.first)
                share.released += 1
                share.answers[share.released] = answers[name] = answer
        for name in sorted(step.shares):
            step.shares[name].rule.rerandomize(step.shares[name].cells, common, first=self.first)
        for name, answer in answers.items():
            ring = step.shares[name].rule.ring
            (ring.add if self.first else ring.subtract)(answer, common.words(len(answer), ring))
        return StepResult(step.shares, answers)

    def abandon(self) -> None:
        """Abort a step that will not be closed, and overwrite its shares."""
        step = self._open
        self._open = None
        if step is not None:
            for share in step.shares.values():
                share.wipe()

    def install_shares(self, outcome: StepResult) -> None:
        """Replace the current shares by those of a step, and overwrite the old ones."""
        previous_shares = self.shares
        self.shares = outcome.shares
        for share in previous_shares.values():
            share.wipe()


def deal(
    task: StepTask, rules: Mapping[str, Rule], change: Change, first: SeedExpander, second: SeedExpander
) -> dict[str, Dealt]:
    """Do the dealer's part of a step; return what the second machine gets in addition to its seed.

    ``rules`` are those of all states of the step.
    """
    if task.kind == "rows":
        return {name: rules[name].deal(change[name], first, second) for name in sorted(rules)}
    return {name: rules[name].deal_answer(first, second) for name in sorted(task.answered)}


def open_answers(rules: Mapping[str, Rule], parts: Sequence[Mapping[str, Numbers]]) -> dict[str, list[int]]:
    """Reconstruct the answers from both machines' shares."""
    opened = {}
    for name, number in parts[0].items():
        total: NDArray[np.uint64] = number.copy()
        rules[name].ring.add(total, parts[1][name])
        opened[name] = rules[name].ring.centred(total)
    return opened
