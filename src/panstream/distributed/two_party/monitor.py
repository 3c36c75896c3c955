"""One statistic on two machines, from Python: for statistics without SQL, such as the density of a graph.

::

    identity = Identity(certificate=..., key=..., authority=...)
    transport = HttpsTwoPartyTransport(("https://a.example:8443", "https://b.example:8443"), ("a", "b"), identity)
    monitor = TwoPartyMonitor(SharedGraphDensity(vertices=500, epsilon=1.0, count=True), transport, stream="calls")
    monitor.update([(3, 8), (3, 9)], sequence=1)
    print(monitor.release())
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate
from panstream.distributed.two_party.backend import TwoPartyBackend, TwoPartyTransport
from panstream.engine.runtime.state_backend import state_name
from panstream.errors import BudgetExhausted, InvalidParameter, TwoPartyError

_NAME = "statistic"
_SLOT = (0, 0)
_PRODUCER = "monitor"


class TwoPartyMonitor:
    """A statistic whose state two machines hold as shares: every update and every release is a durable step of both.

    Privacy:
        That of the statistic's claim: any number of intrusions into one machine at a time. This process is the dealer:
        run it on neither machine, and start it hardened
        (``panstream.primitives.memory.process_hardening.ENVIRONMENT``), or data of earlier steps may stay in freed
        memory.

    A new monitor, in any process, continues where the last one stopped: the machines store the released ``answers``
    and ``sequence``, the number of the last update (-1 if none was numbered). After an error in a step, open a new
    monitor: the step may count or not.

    Args:
        statistic: The statistic, with its public parameters.
        transport: Reaches the machines.
        stream: The ``--stream`` of both machines.
    """

    def __init__(self, statistic: SharedStatistic, transport: TwoPartyTransport, *, stream: str) -> None:
        self.statistic = statistic
        self._backend = TwoPartyBackend(transport, stream, {_NAME: statistic})
        self._state, self.sequence = self._backend.resume(_NAME, _SLOT, statistic, _PRODUCER)
        self._failed = False
        with self._step():
            pass

    @property
    def answers(self) -> list[Estimate]:
        """All answers so far, in order, also those that earlier monitors released."""
        opened = self._backend.opened(state_name(_NAME, _SLOT))
        return [self.statistic.estimate(opened[number], number) for number in sorted(opened)]

    def update(self, *rows: Any, sequence: int | None = None, **options: Any) -> None:
        """Apply rows, given as to the statistic's ``batch``; both machines have them on disk when this returns.

        An update that failed may count or not. With increasing ``sequence`` numbers, a new monitor can send it again,
        and it counts once.

        Args:
            rows: The rows, as the statistic's `batch` takes them.
            options: Further input of `batch`.
            sequence: Number of the batch; by default one more than the last.
        """
        if sequence is not None and sequence < 0:
            raise InvalidParameter(f"sequence must be at least 0, got sequence={sequence}")
        batch = self.statistic.batch(*rows, **options)
        if sequence is not None and sequence <= self.sequence:
            batch.wipe()
            return
        with self._step():
            self._backend.begin(None if sequence is None else _PRODUCER, sequence or 0)
            self._state.apply(batch)
        self.sequence = self.sequence if sequence is None else sequence

    def release(self) -> Estimate:
        """Release an answer.

        If this fails, the answer may have been drawn: then it is the last of the ``answers`` of the next monitor.

        Raises:
            BudgetExhausted: If all declared releases were made.
        """
        self._check_usable()
        if self._state.released >= self.statistic.rule.releases:
            raise BudgetExhausted(f"no declared release is left (releases={self.statistic.rule.releases})")
        with self._step():
            answer = self._state.release()
        return answer.estimate()

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        """End a step of both machines after the block; if that fails, refuse all further steps."""
        self._check_usable()
        self._failed = True
        yield
        self._backend.flush()
        self._failed = False

    def _check_usable(self) -> None:
        if self._failed:
            raise TwoPartyError("a step of this monitor failed half-way: make the monitor again")
