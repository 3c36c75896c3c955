"""One round of a step on a participant: reading dealt shares, the exchange, and reconstructing committed answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import Party, StateShare, StepResult, StepTask
from panstream.algorithms.secret_shared.ring import Keystream
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.distributed.two_party.messages import unpack
from panstream.errors import TwoPartyError
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource

SEED_BYTES = 32
_SEND_INTERVAL = 0.005  # seconds

Peer = Callable[[bytearray], bytearray]
"""Sends a message to the other machine and returns its answer."""


@dataclass(slots=True)
class StepInProgress:
    """A step that is not committed: its number and attempt, the shares so far, and the current round."""

    step: int
    attempt: int
    party: Party
    kinds: dict[str, str]
    round: int = 0
    rng: NoiseSource = field(default_factory=NoiseSource)  # of the round; its end wipes what was dealt and drawn
    sent: NDArray[np.uint8] | None = None  # this machine's masked shares of the round, once it is open

    def held_kinds(self) -> dict[str, str]:
        """Return the kind of every state that has shares."""
        return {name: self.kinds[name] for name in self.party.shares}

    def open_idle(self) -> None:
        """Open a round without rows or answers, which only re-randomizes the shares."""
        unused = Keystream(np.zeros(SEED_BYTES, np.uint8), self.rng.scratch)
        self.party.open(StepTask(kind="idle"), unused, {}, self.rng)
        self.sent = np.empty(0, np.uint8)

    def end_round(self, after: StepResult) -> None:
        """Replace the shares by those after the round, and wipe the round's randomness."""
        old_shares = self.party.shares
        self.party.shares = after.shares
        self._wipe_intermediate(old_shares)
        self.round += 1
        self.sent = None
        self.rng.close()

    def abandon(self) -> None:
        """Wipe everything that the step has drawn, received and computed."""
        self.rng.close()
        self.party.abandon()
        if self.sent is not None:
            wipe(self.sent)
        self._wipe_intermediate(self.party.shares)

    def _wipe_intermediate(self, shares: Mapping[str, StateShare]) -> None:
        # Before the first round ends, the shares are the committed ones, which belong to the participant.
        for share in shares.values() if self.round else ():
            share.wipe()


def wait_for_send_slot() -> None:
    """Wait for the next multiple of 5 ms, so that a message's time does not depend on how long drawing noise took."""
    now = time.monotonic()
    time.sleep(_SEND_INTERVAL - now % _SEND_INTERVAL)


def read_dealt_shares(task: StepTask, work: StepInProgress, body: NDArray[np.uint8]) -> dict[str, Dealt]:
    """Copy the dealt shares of every state into the round's scratch memory, which is wiped with the round.

    Raises:
        TwoPartyError: If the body is not as long as the rules of the states say.
    """
    shares = work.party.shares.items()
    rules = {**task.started, **{name: share.rule for name, share in shares if name not in task.dropped}}
    names = sorted(rules) if task.kind == "rows" else sorted(task.answered)
    sizes = [rules[name].dealt_size(answers=task.kind == "answers") for name in names]
    parts = _cut(body, sizes, "what was dealt does not fit the states that this machine holds")
    dealt: dict[str, Dealt] = {}
    for name, message in zip(names, parts, strict=True):
        part = work.rng.scratch.array(message.size)
        part[:] = message
        dealt[name] = rules[name].dealt_answer(part) if task.kind == "answers" else rules[name].dealt(part)
    return dealt


def _cut(body: NDArray[np.uint8], sizes: Sequence[int], refused: str) -> list[NDArray[np.uint8]]:
    """Split the body into parts of the given sizes; raise TwoPartyError(``refused``) unless they fill it exactly."""
    ends = [0, *accumulate(sizes)]
    if ends[-1] != body.size:
        raise TwoPartyError(refused)
    return [body[start:stop] for start, stop in pairwise(ends)]


@contextlib.contextmanager
def exchange(peer: Peer, message: bytearray) -> Iterator[tuple[dict[str, Any], NDArray[np.uint8]]]:
    """Send a message to the other machine and yield its answer; both are wiped when the block ends."""
    try:
        reply = peer(message)
    finally:
        wipe(message)
    try:
        header, body = unpack(reply)
        if "refused" in header:
            raise TwoPartyError(f"the other machine refused: {header['refused']}")
        yield header, body
    finally:
        wipe(reply)


def prepared_answers(shares: Mapping[str, StateShare]) -> list[tuple[str, int]]:
    """Return state and number of every prepared answer that is not reconstructed, in the order of messages."""
    return [(name, number) for name in sorted(shares) for number in sorted(shares[name].answers)]


def reconstruct(shares: Mapping[str, StateShare], body: NDArray[np.uint8]) -> dict[tuple[str, int], list[int]]:
    """Return the values of every prepared answer, by adding this machine's shares and the other's."""
    answers = prepared_answers(shares)
    local_parts = [shares[name].answers[number] for name, number in answers]
    refused = "the other machine sent something that does not belong to this step"
    other_parts = _cut(body, [part.nbytes for part in local_parts], refused)
    opened = {}
    for (name, number), local_part, data in zip(answers, local_parts, other_parts, strict=True):
        ring = shares[name].rule.ring
        total = ring.from_bytes(data)
        ring.add(total, local_part)
        opened[name, number] = ring.centred(total)
    return opened
