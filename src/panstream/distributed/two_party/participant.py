"""One participant of the two-party commit, with its shares in a store of its own.

A step may have several rounds (rows, then answers, then more rows). In each, the dealer sends to the second machine,
b, and then to the first, a, which exchanges masked shares with b. The last round is a two-phase commit:

1. Prepare: b writes its new shares next to the old ones. It is in doubt.
2. Commit point: a replaces its own shares on disk.
3. Notification: b receives a's step and attempt, and drops one of its two sets.

After a crash at any point, a's step and attempt say which set of b is valid. An intrusion into b while it is in doubt
sees two sets of shares, and counts for both epochs.

A round with answers reconstructs none. It leaves each machine with a share of every noised answer, as part of its
share of the state. Only after the commit point does a ask for b's shares of them. A step that is not committed has
therefore shown no answer, and one that is committed shows the same values however often they are asked for: a retry
can neither draw an answer again nor use its noise with other rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import Party, StateShare, StepTask
from panstream.algorithms.secret_shared.ring import Keystream
from panstream.distributed.two_party._rounds import (
    SEED_BYTES,
    Peer,
    StepInProgress,
    exchange,
    prepared_answers,
    read_dealt_shares,
    reconstruct,
    wait_for_send_slot,
)
from panstream.distributed.two_party._step_record import StepRecord, decode_step, encode_step
from panstream.distributed.two_party.key_agreement import KeyAgreement
from panstream.distributed.two_party.messages import pack, task_from_json, unpack
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import PanstreamError, StoreDamaged, TwoPartyError
from panstream.primitives.memory.scratch import clears_registers, wipe, wipe_bytes
from panstream.primitives.memory.secret_memory import to_secret_array
from panstream.primitives.noise.entropy import random_id


class Participant:
    """One of the two machines of a stream.

    Args:
        directory: Where its shares are stored.
        first: Whether it is machine a, which drives the exchange and holds the commit point.
        stream: The stream's name; messages of other streams are refused.
        peer: Sends a message to machine b; needed by a only.
        operator_key: Part of the key of the store.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        first: bool,
        stream: str,
        peer: Peer | None = None,
        operator_key: bytes | None = None,
    ) -> None:
        self.first = first
        self.stream = stream
        self._peer = peer
        self._party = Party(first=first)
        self._record = StepRecord()  # of the last step that is valid
        self._in_doubt: tuple[StepRecord, dict[str, StateShare]] | None = None  # prepared on b, and not resolved
        self._work: StepInProgress | None = None
        self.reserved = False  # whether a dealer has begun a step
        self._broken = False
        self._id = random_id(16).hex()
        self._store = SnapshotStore(directory, operator_key=operator_key)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the store, and wipe the shares in memory."""
        self._broken = True
        self._abandon()
        self._store.close()
        for share in self._party.shares.values():
            share.wipe()

    @property
    def step(self) -> int:
        """The last valid step."""
        return self._record.step

    @property
    def under_way(self) -> bool:
        """Whether a step has begun that is not committed here."""
        return self._work is not None

    @clears_registers
    def answer(self, data: bytearray) -> bytearray:
        """Process a message and return the answer, which may be a refusal; the caller wipes both."""
        try:
            header, body = unpack(data)
            verb = getattr(self, f"_do_{header.get('verb')}", None)
            if verb is None:
                raise TwoPartyError("a message asks for something that this release does not know")
            if self._broken:
                raise TwoPartyError("this machine gave its state up: start it again")
            if header.get("stream") != self.stream:
                raise TwoPartyError(f"this machine belongs to stream {self.stream!r}, not to {header.get('stream')!r}")
            response: bytearray = verb(header, body)
            return response
        except PanstreamError as error:
            return pack({"refused": str(error)})
        except (KeyError, TypeError, ValueError):
            return pack({"refused": "a message lacks something: is the other side of the same release?"})

    # Messages of the dealer.

    def _do_status(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Report step, attempt, states and answers; only the answers, which are public, depend on rows."""
        self._open_answers()
        record = self._record
        self.reserved = bool(header.get("begins"))
        return pack(
            {
                "id": self._id,
                "first": self.first,
                "step": record.step,
                "attempt": record.attempt,
                "tried": max(record.attempt, *self._attempts()),
                "origins": {producer: sequence for producer, (sequence, _) in record.origins.items()},
                "answers": self._record.answers_since(0),
                "states": {
                    name: [record.kinds[name], share.rule.parameters()] for name, share in self._party.shares.items()
                },
                "known": sorted(record.committed_states & self._party.shares.keys()),
            }
        )

    def _attempts(self) -> list[int]:
        """Return the numbers of the attempts that are in doubt or in progress here, 0 for none."""
        pending = 0 if self._in_doubt is None else self._in_doubt[0].attempt
        return [pending, 0 if self._work is None else self._work.attempt]

    def _do_round(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Run one round of a step; on the first machine, complete it with the other."""
        task = task_from_json(header["task"])
        number = int(header["round"])
        if number == 0 and self._in_doubt is not None:  # the notification was lost; the dealer repeats what a has
            self._resolve_in_doubt(*map(int, header["after"]))
        work = self._begun(header) if number == 0 else self._check_continues(header)
        with self._abort_on_error():
            rng = work.rng
            dealt = None if self.first else read_dealt_shares(task, work, body[SEED_BYTES:])
            fresh = {name: rule for name, rule in task.started.items() if name not in work.party.shares}
            task = StepTask(kind=task.kind, started=fresh, dropped=task.dropped, answered=task.answered)
            work.kinds |= {name: header["task"]["started"][name][0] for name in fresh}
            arrays = work.party.open(task, Keystream(body[:SEED_BYTES], rng.scratch), dealt, rng)
            work.sent = np.concatenate([np.empty(0, np.uint8), *arrays])
            if task.kind == "answers" or fresh:  # noise was drawn
                wait_for_send_slot()
            if not self.first:
                return pack({"ready": [work.step, work.attempt, work.round]})
            return self._exchange(header, work)

    def _do_commit(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Resolve a step in doubt by the first machine's step and attempt, and report this one's."""
        self._resolve_in_doubt(int(header["step"]), int(header["attempt"]))
        return pack({"step": self._record.step, "attempt": self._record.attempt})

    def _do_open(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Resolve a step in doubt, and return this machine's shares of the answers that it prepared.

        The first machine asks only after its commit point, so the answers are part of a committed step.
        """
        self._resolve_in_doubt(int(header["step"]), int(header["attempt"]))
        shares = self._party.shares
        return pack({}, [shares[name].answers[number] for name, number in prepared_answers(shares)])

    def idle(self) -> None:
        """Re-randomize all shares without the dealer: for the first machine, when no step came for a while."""
        self._notify_peer()
        header = {"step": self._record.step + 1, "attempt": self._record.attempt + 1, "round": 0, "last": True}
        work = self._begun(header)
        with self._abort_on_error():
            work.open_idle()
            self._exchange({**header, "origins": {}, "committed": 0, "idle": True}, work)

    # Between the machines.

    def _exchange(self, header: dict[str, Any], work: StepInProgress) -> bytearray:
        """Exchange masked shares with the second machine and end the round; commit the step after the last one."""
        assert self._peer is not None
        assert work.sent is not None
        agreement = KeyAgreement()
        last = bool(header["last"])
        about = {name: header.get(name) for name in ("step", "attempt", "round", "last", "idle")}
        message = pack({"verb": "exchange", "stream": self.stream, "public": agreement.public, **about}, [work.sent])
        with exchange(self._peer, message) as (reply, body):
            key = agreement.key(reply["public"], agreement.public + reply["public"], self._about(work))
            try:
                step_result = work.party.close(body, Keystream(key, work.rng.scratch))
            finally:
                wipe(key)
                wipe(work.sent)
        work.end_round(step_result)
        prepared = {name: step_result.shares[name].released for name in step_result.answers}
        opened: dict[str, list[Any]] = {}
        if last:
            self._commit_locally(header, work)
            opened = self._record.answers_since(work.step)
        return pack({"step": work.step, "prepared": prepared, "opened": opened})

    def _do_exchange(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Return this machine's masked shares; after the last round, only once the new shares are on disk.

        That is the prepare phase: from here until it is resolved the step is in doubt, and the store has both sets.
        """
        with self._abort_on_error():
            if header.get("idle"):
                self._begun(header).open_idle()
            work = self._check_continues(header)
            if work.sent is None:
                raise TwoPartyError("the front end did not announce this round to this machine")
            agreement = KeyAgreement()
            key = agreement.key(header["public"], header["public"] + agreement.public, self._about(work))
            try:
                step_result = work.party.close(body, Keystream(key, work.rng.scratch))
                message = pack({"public": agreement.public}, [work.sent])
            finally:
                wipe(key)
                wipe(work.sent)
            work.end_round(step_result)
            if header["last"]:
                record = StepRecord(step=work.step, attempt=work.attempt, kinds=work.held_kinds())
                self._in_doubt = record, work.party.shares
                self._commit()  # both sets are on disk before a can reach its commit point
                self._work = None
            return message

    def _commit_locally(self, header: dict[str, Any], work: StepInProgress) -> None:
        """Replace this machine's shares on disk, which is the commit point, and notify the other machine.

        Only then are the prepared answers reconstructed.
        """
        origins = {str(name): int(sequence) for name, sequence in dict(header["origins"]).items()}
        committed = int(header["committed"])
        self._record = self._record.after(work.step, work.attempt, work.held_kinds(), origins, committed=committed)
        old_shares = self._party.shares
        self._party.shares = work.party.shares
        self._work = None
        self.reserved = False
        self._commit()  # the commit point: the step is valid on both machines, whether or not b knows
        for share in old_shares.values():
            share.wipe()
        if prepared_answers(self._party.shares):
            self._open_answers()
            return
        with contextlib.suppress(PanstreamError):  # the next step notifies it, if this fails
            self._notify_peer()

    def _notify_peer(self) -> None:
        """Tell the second machine which set of its shares is valid."""
        with self._ask_other("commit"):
            pass

    def _open_answers(self) -> None:
        """Reconstruct the answers that the last step prepared, unless that was done, with the second machine's shares.

        Both machines have their shares of them on disk until the next commit, which stores the values.
        """
        if not self.first or not prepared_answers(self._party.shares):
            return
        with self._ask_other("open") as (_, body):
            opened = reconstruct(self._party.shares, body)
        for (name, number), numbers in opened.items():
            self._record.answers.setdefault(name, []).append((number, numbers, self._record.step))
        for share in self._party.shares.values():
            share.wipe_answers()

    def _ask_other(self, verb: str) -> contextlib.AbstractContextManager[tuple[dict[str, Any], NDArray[np.uint8]]]:
        """Send the second machine a message with this one's step and attempt, by which it resolves a step in doubt."""
        assert self._peer is not None
        position = {"step": self._record.step, "attempt": self._record.attempt}
        return exchange(self._peer, pack({"verb": verb, "stream": self.stream, **position}))

    def _resolve_in_doubt(self, step: int, attempt: int) -> None:
        if self._in_doubt is not None:
            record, shares = self._in_doubt
            self._in_doubt = None
            if (record.step, record.attempt) == (step, attempt):
                shares, self._party.shares, self._record = self._party.shares, shares, record
            self._commit()
            for share in shares.values():
                share.wipe()
        if (self._record.step, self._record.attempt) != (step, attempt):
            raise TwoPartyError(
                f"the machines' states do not match: this one is at step {self._record.step}, the other at "
                f"step {step}; one of their directories is missing, or was rolled back"
            )

    # Steps in progress.

    def _begun(self, header: dict[str, Any]) -> StepInProgress:
        step = int(header["step"])
        attempt = int(header["attempt"])
        if self._in_doubt is not None:
            raise TwoPartyError("a step is pending here: ask the first machine which shares count")
        if step != self._record.step + 1:
            raise TwoPartyError(f"step {step} does not follow this machine's step {self._record.step}")
        if attempt <= max(self._record.attempt, *self._attempts()):
            raise TwoPartyError(f"try {attempt} of step {step} is not newer than what this machine has")
        self._abandon()
        self._open_answers()
        party = Party(first=self.first)
        party.shares = {
            name: StateShare(share.rule, share.cells, share.released) for name, share in self._party.shares.items()
        }
        self._work = StepInProgress(step, attempt, party, dict(self._record.kinds))
        return self._work

    def _check_continues(self, header: dict[str, Any]) -> StepInProgress:
        work = self._work
        position = (int(header["step"]), int(header["attempt"]), int(header["round"]))
        if work is None or (work.step, work.attempt, work.round) != position:
            raise TwoPartyError(f"round {position[2]} of step {position[0]}, try {position[1]}, is not under way here")
        return work

    def _abandon(self) -> None:
        work = self._work
        self._work = None
        if work is not None:
            work.abandon()

    @contextlib.contextmanager
    def _abort_on_error(self) -> Iterator[None]:
        """Abandon the step in progress after an error; the committed shares are unchanged."""
        try:
            yield
        except BaseException:
            if self._work is not None:
                self._abandon()
            raise

    def _about(self, work: StepInProgress) -> bytes:
        return f"{self.stream}\0{work.step}\0{work.attempt}\0{work.round}".encode()

    # The disk.

    def _commit(self) -> None:
        """Write the valid shares, and next to them those in doubt; if that fails, refuse everything (fail-stop)."""
        self._move_to_secret_memory()
        about = {"first": self.first, "id": self._id, "stream": self.stream}
        parts = encode_step("now", self._record, self._party.shares, about)
        if self._in_doubt is not None:
            parts |= encode_step("next", *self._in_doubt, {})
        try:
            self._store.commit(parts)
        except BaseException:
            self._broken = True
            raise

    def _move_to_secret_memory(self) -> None:
        """Move the shares that stay in memory between steps to secret memory, where the process has some."""
        pending = {} if self._in_doubt is None else self._in_doubt[1]
        for share in (*self._party.shares.values(), *pending.values()):
            share.cells = to_secret_array(share.cells)
            share.answers = {number: to_secret_array(part) for number, part in share.answers.items()}

    def _load(self) -> None:
        parts = self._store.load()
        if parts is None:
            self._commit()
            return
        try:
            meta, self._record, self._party.shares = decode_step("now", parts)
            self._id = meta["id"]
            if meta["first"] is not self.first or meta["stream"] != self.stream:
                raise TwoPartyError("the directory belongs to the other machine, or to another stream")
            if "next" in parts:
                _, record, shares = decode_step("next", parts)
                self._in_doubt = record, shares
        except (KeyError, ValueError, TypeError):
            raise StoreDamaged("the store holds something other than a machine's shares") from None
        finally:
            self._move_to_secret_memory()
            for part in parts.values():
                wipe_bytes(part)
