"""A history of a stream on two machines: front end and machines end one by one, and messages are lost both ways."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from panstream.distributed.two_party._rounds import StepInProgress, prepared_answers, reconstruct
from panstream.distributed.two_party.backend import Line, TwoPartyBackend
from panstream.distributed.two_party.messages import pack, unpack
from panstream.distributed.two_party.participant import Participant
from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.errors import PanstreamError, StoreError, TwoPartyError
from tests.simulated.disk import SimulatedDisk, Stopped
from tests.simulated.history import History, on


class TwoMachines(History):
    """Front end, first and second machine, each with a disk of its own."""

    def __init__(self, seed: int, root: Path, **options: Any) -> None:
        super().__init__(seed, root, **options)
        self.disks = {first: SimulatedDisk(root, self.random.randrange) for first in (True, False)}
        self.machines: dict[bool, Participant] = {}
        self.lose_in: int | None = None
        self.failed = False
        self.seen_at_first: dict[tuple[str, int], list[int]] = {}  # by state and number, what machine a opened

    def settings(self) -> Config:
        names = {"asked": {"releases": 40}, "ticks": {"every": 10, "horizon": 500}}
        stream = {"name": "s", "columns": {"user": "int"}, "user": "user", "machines": ["https://a", "https://b"]}
        query = [
            {"name": name, "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0, **more} for name, more in names.items()
        ]
        files = {"certificate": "f.pem", "key": "f.key", "authority": "authority.pem"}
        store = {"directory": str(self.root / "state")}
        machines = {"names": ["a", "b"], **files}
        return read_config({"stream": stream, "query": query, "two_party": machines, "store": store})

    def opened(self) -> Engine:
        config = self.config
        statistics = {plan.config.name: plan.algorithm for plan in plan_all(config, zero_noise=self.exact)}
        backend = TwoPartyBackend(self, "s", statistics)
        return Engine(config, backend=backend, **{**self.options(), "rng": None})  # the machines draw

    # The network.

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        yield self.ask

    def ask(self, first: bool, message: bytearray) -> bytearray:
        """Carry a message and its answer, unless one of them is lost or the machine ends meanwhile."""
        self._carry()
        try:
            found = self._machine(first).answer(message)
        except Stopped:
            self.happened.append(f"{'a' if first else 'b'}: {self.disks[first].ending}")
            self._stop(first)
            raise TwoPartyError("it cannot be reached") from None
        if first:
            self._watch(unpack(found)[0])
        self._carry()
        return found

    def _watch(self, reply: dict[str, Any]) -> None:
        """Compare what machine a opened with what it opened before, be it in a step that was never decided."""
        for known in (reply.get("opened", {}), reply.get("answers", {})):
            for name, entries in known.items():
                for number, numbers in entries:
                    if self.seen_at_first.setdefault((name, number), numbers) != numbers:
                        self.wrong(f"machine a opened answer {number} of {name} twice, with other numbers")

    def _carry(self) -> None:
        if self.lose_in is not None:
            self.lose_in -= 1
            if self.lose_in < 0:
                self.lose_in = None
                self.failed = True
                self.happened.append("lost")
                raise TwoPartyError("it cannot be reached")

    def _machine(self, first: bool) -> Participant:
        if first not in self.machines:
            with on(self.disks[first]):
                made = Participant(
                    self.root / ("a" if first else "b"),
                    first=first,
                    stream="s",
                    peer=(lambda data: self.ask(False, data)) if first else None,
                )
            self.machines[first] = made
        return self.machines[first]

    def _stop(self, first: bool) -> None:
        self.failed = True
        machine = self.machines.pop(first, None)
        self.disks[first].stopped = True
        if machine is not None:
            with contextlib.suppress(Stopped):
                machine.close()
        if self.disks[first].ending == "refuse":
            self.disks[first].ending = "kill"
        self.disks[first].restart()

    # What happens.

    def run(self) -> list[str]:
        with mock.patch("panstream.distributed.two_party.participant.wait_for_send_slot"):  # time is simulated
            try:
                return super().run()
            finally:
                for first in list(self.machines):
                    self._stop(first)

    def _event(self) -> None:
        self.failed = False
        for first, disk in self.disks.items():
            if first in self.machines and (self.machines[first]._broken or disk.refused):
                disk.refused = False
                self._stop(first)
            if self.random.random() < 0.25:
                disk.ending = self.random.choice(("kill", "power", "power", "refuse"))
                disk.fail_in = self.random.randrange(30)
        if self.random.random() < 0.25:
            self.lose_in = self.random.randrange(20)
        if self.random.random() < 0.1 and True in self.machines:
            with contextlib.suppress(PanstreamError):
                self._idle()
        super()._event()

    def _idle(self) -> None:
        """The first machine blinds the shares by itself."""
        self.happened.append("idle")
        try:
            self.machines[True].idle()
        except Stopped:
            self._stop(True)

    def excused(self) -> bool:
        return super().excused() or self.failed or any(disk.refused for disk in self.disks.values())

    def _check_end(self) -> None:
        for first, disk in self.disks.items():
            disk.fail_in = None
            self._stop(first)
        self.lose_in = None
        super()._check_end()

    def counted(self, found: int, least: int, most: int) -> bool:
        """A batch may be with the machines and not acknowledged; an answer may have been drawn before others came."""
        return found <= most

    def _roll_back(self) -> None:
        """Somebody puts a machine's backup back: noticed, whatever was done since, before anything counts on it."""
        first = self.random.random() < 0.5
        for disk in self.disks.values():
            disk.fail_in = None
        self.lose_in = self.disk.fail_in = None
        self._take_step()
        before = self.disks[first].image()
        self._take_step()
        self.let_go()
        self._stop(first)
        current = self.disks[first].image()
        self.disks[first].put_back(before)
        try:
            self._running()
            self._take_step()
        except (StoreError, TwoPartyError):
            self.happened.append("noticed")
        else:
            self.wrong("a machine that was rolled back was taken for good")
        self.let_go()
        for each in self.disks:
            self._stop(each)
        self.disks[first].put_back(current)

    def _take_step(self) -> None:
        self._running().advance()
        self._running().commit()


@contextlib.contextmanager
def open_before_commit() -> Iterator[None]:
    """Plant a mistake: machine a opens an answer in the round that prepares it, before the step is decided."""
    exchange = Participant._exchange
    do_exchange = Participant._do_exchange
    shown = [np.empty(0, np.uint8)]

    def show(self: Participant, header: dict[str, Any], body: Any) -> bytearray:
        reply = do_exchange(self, header, body)
        shares = {} if self._work is None else self._work.party.shares
        parts = [shares[name].answers[number] for name, number in prepared_answers(shares)]
        shown[0] = np.concatenate([np.empty(0, np.uint8), *(part.reshape(-1).view(np.uint8) for part in parts)])
        return reply

    def hasty(self: Participant, header: dict[str, Any], work: StepInProgress) -> bytearray:
        reply, _ = unpack(exchange(self, header, work))
        if reply["prepared"]:
            opened = reconstruct(work.party.shares, shown[0])
            reply["opened"] = {name: [[number, numbers]] for (name, number), numbers in opened.items()}
        return pack(reply)

    with mock.patch.object(Participant, "_exchange", hasty), mock.patch.object(Participant, "_do_exchange", show):
        yield
