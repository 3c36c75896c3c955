"""What an observer of machine a learns from one declared answer when the dealer crashes and restarts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from panstream.algorithms.secret_shared import share_rules as rules
from panstream.algorithms.secret_shared.presence import SharedDensity
from panstream.audit.claims.case import Trial
from panstream.distributed.two_party.backend import TwoPartyBackend
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.messages import unpack

STATISTIC = SharedDensity(universe=4, epsilon=1.0, count=True)
_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class _Observer(InProcessTwoPartyTransport):
    """Records what machine a draws and reconstructs: an observer of it knows the answers less its own noise."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "s")
        self.drawn: list[int] = []
        self.seen: list[int] = []

    def ask(self, first: bool, message: bytearray) -> bytearray:
        if not first:
            return super().ask(first, message)
        with mock.patch.object(rules, "draw_noise", self._draw):
            reply = super().ask(first, message)
        for entries in unpack(reply)[0].get("opened", {}).values():
            self.seen += [opened - self.drawn[-1] for _, (opened,) in entries]
        return reply

    def _draw(self, *arguments: Any) -> Any:
        noise = _DRAW(*arguments)
        self.drawn += noise.tolist()
        return noise


_DRAW = rules.draw_noise


def observe(comes: bool, restarts: int) -> list[int]:
    """Return what is seen of the answer at machine a: a user who comes, or does not, and one draw of machine b's noise.

    The front end dies ``restarts`` times after the answer's round and before the step's last round, and then not.
    """
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY) as folder,
        mock.patch("panstream.distributed.two_party.participant.wait_for_send_slot"),  # only to save time
    ):
        transport = _Observer(Path(folder))
        for _ in range(restarts):
            _answer(transport, comes)
        _answer(transport, comes).flush()
        transport.close()
    return transport.seen


def _answer(transport: InProcessTwoPartyTransport, comes: bool) -> TwoPartyBackend:
    backend = TwoPartyBackend(transport, "s", {"q": STATISTIC})
    state: Any = backend.start("q", (0, 0), STATISTIC)
    state.apply(STATISTIC.batch([0] if comes else []))
    state.release()
    return backend


def likelihood_trial(restarts: int) -> Trial:
    """Return the likelihood test of a user's presence: each number that is seen counts as it is 1 or more, or not."""

    def happens(comes: bool) -> bool:
        seen = observe(comes, restarts)
        return 2 * sum(number >= 1 for number in seen) > len(seen)

    return Trial(event="most of what machine a saw is 1 or more", happens=happens)
