"""The dealer: an engine's state backend that splits updates into shares for two machines, and stores no rows.

Everything between two commits of the engine is one step of both machines, in rounds. They commit first, then they
reconstruct the step's answers, and the engine commits afterwards. If it ends before the machines have committed, no
answer of the step was reconstructed, and the step is repeated from the start. If it ends later, the machines are one
step ahead: batches of that step that are sent again are left out, and its answers, which the machines store until the
engine has committed them, are returned and not drawn again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import Kind, StepTask, deal
from panstream.algorithms.secret_shared.ring import Keystream
from panstream.algorithms.secret_shared.rules import Rule, rule_from_parameters
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.distributed.two_party.messages import pack, task_to_json, unpack
from panstream.engine.runtime.state_backend import PendingAnswer, RemoteStateRecord, Slot, StateHandle, state_name
from panstream.errors import NotSupported, StoreError, TwoPartyError
from panstream.primitives import codec
from panstream.primitives.memory.scratch import Scratch, clears_registers, wipe
from panstream.primitives.noise import NoiseSource
from panstream.primitives.noise.entropy import system_entropy
from panstream.privacy.claim import Refresh

Line = Callable[[bool, bytearray], bytearray]
"""Sends a message to the first (True) or the second machine and returns the answer; valid for one step."""


class TwoPartyTransport(Protocol):
    """How the dealer reaches the machines."""

    def line(self) -> contextlib.AbstractContextManager[Line]:
        """Open connections to both machines."""


class TwoPartyBackend:
    """State backend of an engine whose states are shares on two machines.

    Args:
        transport: Reaches the machines.
        stream: The stream that both machines must belong to.
        statistics: The statistic of every query.
    """

    def __init__(self, transport: TwoPartyTransport, stream: str, statistics: Mapping[str, Any]) -> None:
        self._transport = transport
        self._stream = stream
        self._statistics = statistics
        self._rules: dict[str, Rule] = {}
        self._kinds: dict[str, str] = {}
        self._changes: dict[str, tuple[SharedStatistic, Dealt]] = {}
        self._started: dict[str, Rule] = {}
        self._announced: set[str] = set()  # of those, the ones that the machines have started in this step
        self._dropped: list[str] = []
        self._origins: dict[str, int] = {}
        self._skipping = False  # whether the machines have the current batch already
        self._line: Line | None = None
        self._lines = contextlib.ExitStack()
        self._round = 0
        self.step = 0
        self.committed = 0
        self._min_step = 0  # that the engine's checkpoint has: the machines must have reached it
        self._attempt = 0
        self._ahead: dict[str, int] = {}  # by producer: its last batch that the machines have and the engine has not
        self._answers: dict[str, dict[int, list[int]]] = {}  # by state and number: opened, not committed by the engine
        self._states: dict[str, _SharedState] = {}
        self._position = (0, 0)  # step and attempt of the machines' last commit
        self._stored: set[str] = set()
        self._committed_states: set[str] = set()  # states that a dealer has committed
        self._unclaimed: set[str] = set()  # states on the machines that the engine has not asked for
        self._join()

    def _join(self) -> None:
        """Ask both machines for their status, after the second has resolved a step that is in doubt."""
        with self._transport.line() as line:
            first = self._catch_up(line)
        self._ahead = {producer: int(sequence) for producer, sequence in first["origins"].items()}
        self._note_answers(first["answers"])
        for name, (kind, parameters) in first["states"].items():
            self._rules[name] = rule_from_parameters(kind, parameters)
            self._kinds[name] = kind
        self._stored = set(self._rules)
        self._unclaimed = set(self._rules)
        self._committed_states = set(first["known"])

    def _note_answers(self, opened: Mapping[str, Any]) -> None:
        for name, entries in opened.items():
            cached = self._answers.setdefault(name, {})
            cached |= {int(number): list(numbers) for number, numbers in entries}

    def _catch_up(self, line: Line, *, begins: bool = False) -> dict[str, Any]:
        """Catch up with steps in which the machines re-randomized their shares; return the first machine's status.

        If ``begins``, the first machine starts no such step until the dealer's step is over.
        """
        first, second = (self._ask(line, which, {"verb": "status", "begins": begins}) for which in (True, False))
        if first["id"] == second["id"] or not first["first"] or second["first"]:
            raise TwoPartyError("machines must name the first machine (--as a), then the second (--as b)")
        if first["step"] < self.step:
            raise StoreError(f"the machines are at step {first['step']} but had come to step {self.step}")
        self._attempt = max(first["tried"], second["tried"])
        self._position = first["step"], first["attempt"]
        # The second machine may be in doubt after a crash: what the first has committed decides for it.
        self._ask(line, False, {"verb": "commit", "step": first["step"], "attempt": first["attempt"]})
        self.step = first["step"]
        return first

    # Interface of a state backend, called by the engine.

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Return a new state; the machines start it with the next step.

        Raises:
            StoreError: If the machines hold shares of it that belong to another run, or to a lost checkpoint.
        """
        if not isinstance(algorithm, SharedStatistic):
            raise NotSupported(f"{type(algorithm).__name__} cannot be secret-shared between two machines")
        name = state_name(query, slot)
        if name in self._committed_states:
            raise StoreError(
                f"the machines hold shares of {query!r} that the front end had committed, and does not know: its own "
                "directory is missing, or was rolled back"
            )
        if name not in self._stored:
            self._started[name] = algorithm.rule
        elif self._rules[name] != algorithm.rule:
            raise StoreError(f"the machines hold shares of another {query!r}: their directories belong to another run")
        return self._add_state(name, algorithm, 0)

    def resume(self, query: str, slot: Slot, algorithm: Any, producer: str) -> tuple[_SharedState, int]:
        """Return a state as the machines have it, and a producer's last batch: for callers without a checkpoint."""
        name = state_name(query, slot)
        self.start(query, slot, algorithm)
        released = max(self._answers.get(name, {}), default=0)
        return self._add_state(name, algorithm, released), self._ahead.get(producer, -1)

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Return the state of a checkpoint's record; its shares are on the machines.

        Raises:
            StoreError: If the machines do not have it, or have not reached the checkpoint's step.
        """
        header, _ = codec.read_header(data, checked=False)
        statistic = self._statistics.get(query)
        record = RemoteStateRecord.from_bytes(data)
        self._min_step = max(self._min_step, record.step)
        if self.step < self._min_step:
            raise StoreError(
                f"the machines are at step {self.step} but had come to step {self._min_step}: their directories are "
                "missing, or were rolled back"
            )
        name = state_name(query, slot)
        if name not in self._stored:
            raise StoreError(f"the machines hold no shares of {query!r}: their directories are missing, or others")
        expected_header = {} if statistic is None else codec.read_header(RemoteStateRecord(0, 0).to_bytes(statistic))[0]
        same = header["parameters"] == expected_header.get("parameters")
        return self._add_state(name, statistic if same else None, record.released)

    def _add_state(self, name: str, statistic: Any, released: int) -> _SharedState:
        self._unclaimed.discard(name)
        if statistic is not None:
            self._rules[name] = statistic.rule
            self._kinds[name] = statistic.kind
            self._changes[name] = statistic, statistic.empty_buffer()
        self._states[name] = _SharedState(self, name, statistic, released)
        return self._states[name]

    def begin(self, producer: str | None, sequence: int) -> None:
        """Begin a batch; its rows are ignored if the machines have it already."""
        self._skipping = producer is not None and self._ahead.get(producer, -1) >= sequence
        if producer is not None:
            self._origins[producer] = sequence
            if self._ahead.get(producer, -1) <= sequence:
                self._ahead.pop(producer, None)

    def end_batch(self) -> None:
        """End the batch: rows are counted again."""
        self._skipping = False

    def flush(self) -> None:
        """Commit the step on both machines, with rows or without, and fetch the answers that it released."""
        try:
            reply = self._run_step("rows", last=True)
        finally:
            self._disconnect()
        # Both machines have committed. If this process ends before the engine commits, `_join` finds them ahead.
        self._note_answers(reply["opened"])
        self.step += 1
        self._position = self.step, self._attempt
        self._stored = self._stored.union(self._started).difference(self._dropped)
        self._origins.clear()
        self._started.clear()
        self._dropped.clear()

    def drop(self, closed_slots: Collection[tuple[str, Slot]]) -> None:
        """Note that the engine has committed; the machines drop states that are over with the next step.

        They also drop states of the engine's queries that it did not restore: those of windows that began in a step
        which an earlier dealer did not commit. These stay while batches of that step may be sent again. Answers that
        an earlier dealer did not fetch stay as well, until this one has committed them.
        """
        for name, state in self._states.items():
            numbers = self._answers.pop(name, {})
            self._answers[name] = {number: opened for number, opened in numbers.items() if number > state.released}
        if not any(self._answers[name] for name in self._states):
            self.committed = self.step
        over = {state_name(query, slot) for query, slot in closed_slots}
        if not self._ahead:
            over |= {name for name in self._unclaimed if name.split("/", 2)[2] in self._statistics}
        for name in sorted(over & self._rules.keys()):
            self._dropped.append(name)
            self._unclaimed.discard(name)
            _wipe_all([self._changes.pop(name, (None, ()))[1]])
            self._states.pop(name, None)
            self._answers.pop(name, None)
            del self._rules[name], self._kinds[name]

    # Called by the states.

    def add_batch(self, name: str, batch: Any) -> None:
        """Add a checked batch to the step's change of a state."""
        if not self._skipping:
            statistic, change = self._changes[name]
            with Scratch() as scratch:
                statistic.accumulate(change, batch, scratch)

    def prepare_answer(self, name: str, number: int) -> None:
        """Prepare the ``number``-th answer of a state in this step, unless an earlier step has committed it."""
        cached = self._answers.get(name, {})
        if number in cached:
            return
        if cached and max(cached) > number:
            raise StoreError("the machines have given more answers than the front end knows of")
        self._run_step("rows")  # the answer is about all rows that were applied before
        prepared = self._run_step("answers", answered=[name])["prepared"][name]
        if prepared != number:
            raise StoreError(f"the machines gave answer {prepared} where answer {number} was asked for")

    def opened(self, name: str) -> dict[int, list[int]]:
        """Return by number the answers of a state that are reconstructed and that the engine has not committed."""
        return self._answers.get(name, {})

    @clears_registers
    def _run_step(self, kind: Kind, *, last: bool = False, answered: Collection[str] = ()) -> dict[str, Any]:
        """Run one round of the step with both machines; the rows' changes are wiped, however it ends."""
        try:
            if self._line is None:
                line = self._lines.enter_context(self._transport.line())
                self._catch_up(line, begins=True)
                self._line = line
                self._attempt += 1
                self._round = 0
                self._announced.clear()
            task = StepTask(
                kind=kind,
                started={name: rule for name, rule in self._started.items() if name not in self._announced},
                dropped=self._dropped if self._round == 0 else [],
                answered=sorted(answered),
            )
            reply = self._deal(task, self._line, last=last)
        except BaseException:
            self._disconnect()
            raise
        finally:
            if kind == "rows":
                _wipe_all(change for _, change in self._changes.values())
        self._round += 1
        self._announced |= task.started.keys()
        return reply

    def _deal(self, task: StepTask, line: Line, *, last: bool) -> dict[str, Any]:
        """Deal the shares of a round to both machines; return the first one's answer.

        The first machine is sent a seed from which it expands its shares; the second is sent a seed and the
        differences. Either message by itself is uniformly random. The second goes first, since the first machine's
        answer completes the round with it.
        """
        about = {
            "verb": "round",
            "step": self.step + 1,
            "attempt": self._attempt,
            "round": self._round,
            "last": last,
            "after": self._position,
            "origins": {**self._ahead, **self._origins} if last else {},
            "committed": self.committed,
            "task": task_to_json(task, self._kinds),
        }
        seeds = np.empty((2, 32), np.uint8)
        dense = dict[str, Dealt]()
        dealt = dict[str, Dealt]()
        system_entropy(seeds.reshape(-1))
        try:
            with NoiseSource() as rng:
                if task.kind == "rows":
                    dense = {
                        name: rule.empty_update() for name, rule in self._rules.items() if name not in self._changes
                    }
                    dense |= {
                        name: statistic.to_dense_update(change, rng, fresh=name in task.started)
                        for name, (statistic, change) in self._changes.items()
                    }
                dealt = deal(task, self._rules, dense, *(Keystream(seed, rng.scratch) for seed in seeds))
                arrays = [array for name in sorted(dealt) for array in dealt[name]]
                self._ask(line, False, about, [seeds[1], *arrays])
                return self._ask(line, True, about, [seeds[0]])
        finally:
            _wipe_all([(seeds,), *dense.values(), *dealt.values()])

    def _disconnect(self) -> None:
        self._line = None
        self._lines.close()

    def _ask(
        self, line: Line, first: bool, header: dict[str, Any], arrays: Collection[NDArray[Any]] = ()
    ) -> dict[str, Any]:
        message = pack({"stream": self._stream, **header}, [*arrays])
        try:
            reply, _ = unpack(line(first, message))  # all of it is public
        finally:
            wipe(message)
        if "refused" in reply:
            raise TwoPartyError(f"machine {'a' if first else 'b'} refused: {reply['refused']}")
        return reply


@dataclass(slots=True, eq=False)
class _SharedState:
    """A state whose shares are on the machines."""

    backend: TwoPartyBackend
    name: str
    algorithm: Any
    released: int

    def apply(self, batch: Any) -> None:
        """Apply a checked batch, and wipe it."""
        try:
            self.backend.add_batch(self.name, batch)
        finally:
            batch.wipe()

    def release(self) -> PendingAnswer:
        """Prepare an answer; its values are known once the step is committed."""
        number = self.released + 1
        self.backend.prepare_answer(self.name, number)
        self.released = number
        return PendingAnswer(self.algorithm, number, lambda: self.backend.opened(self.name)[number])

    def tick(self) -> PendingAnswer:
        """Close the slot, and prepare its answer."""
        return self.release()

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Do nothing: every step re-randomizes the shares, and the engine ends one after a refresh."""
        return Refresh(covered=True)

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Return the record that the engine stores: the number of answers, and the step."""
        return RemoteStateRecord(self.released, self.backend.step).to_bytes(self.algorithm, checked=checksum)


def _wipe_all(changes: Iterable[Dealt]) -> None:
    for array in (column for change in changes for column in change):
        wipe(array)
