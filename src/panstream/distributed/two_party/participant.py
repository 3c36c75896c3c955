"""One of the two machines: its shares in a store of its own, and steps that both machines take or neither.

A step may have several rounds (rows, then answers, then more rows). In each, the front end tells the second machine
first, then the first, which exchanges with the second. With the last round the second machine writes its new shares
beside the old ones; then the first replaces its own on disk, and **that decides**: the second is told, and gives one of
the two up. Whatever dies in between, the first machine's step and try say which shares count.

A round with answers opens nothing. It leaves each machine with a share of every noised answer, which is part of its
share of the state. Only when the step is decided does the first machine ask for the second's shares of them, and adds
its own. A step that is not decided has therefore shown no answer, and one that is decided shows the same numbers
however often they are asked for: a retry can neither draw an answer again nor use its noise with other rows.

A look at the second machine while it has both shares counts for both epochs.
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
    """A machine of a stream. ``first`` is the one that decides, and it calls the other by ``peer``."""

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
        self._held = StepRecord()
        self._pending: tuple[StepRecord, dict[str, StateShare]] | None = None
        self._work: StepInProgress | None = None
        self.reserved = False  # whether a front end has begun a step
        self._broken = False
        self._id = random_id(16).hex()
        self._store = SnapshotStore(directory, operator_key=operator_key)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the directory and of the shares in memory."""
        self._broken = True
        self._abandon()
        self._store.close()
        for share in self._party.shares.values():
            share.wipe()

    @property
    def step(self) -> int:
        """Return the last step that counts."""
        return self._held.step

    @property
    def under_way(self) -> bool:
        """Return whether a step has begun that is not decided."""
        return self._work is not None

    @clears_registers
    def answer(self, data: bytearray) -> bytearray:
        """Do what a message says, and return the answer; a refusal is an answer, too. Both are the caller's to
        overwrite.
        """
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

    # What the front end asks.

    def _do_status(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Say how far this machine came; nothing of it depends on what rows hold."""
        self._open_answers()
        held = self._held
        self.reserved = bool(header.get("begins"))
        return pack(
            {
                "id": self._id,
                "first": self.first,
                "step": held.step,
                "attempt": held.attempt,
                "tried": max(held.attempt, *self._attempts()),
                "origins": {producer: sequence for producer, (sequence, _) in held.origins.items()},
                "answers": self._held.answers_since(0),
                "states": {
                    name: [held.kinds[name], share.rule.parameters()] for name, share in self._party.shares.items()
                },
                "known": sorted(held.known & self._party.shares.keys()),
            }
        )

    def _attempts(self) -> list[int]:
        """Return the numbers of tries that are under way or pending here."""
        pending = 0 if self._pending is None else self._pending[0].attempt
        return [pending, 0 if self._work is None else self._work.attempt]

    def _do_round(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Take one round of a step; the first machine ends it, with the other."""
        task = task_from_json(header["task"])
        number = int(header["round"])
        if number == 0 and self._pending is not None:
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
            if task.kind == "answers" or fresh:
                wait_for_send_slot()
            if not self.first:
                return pack({"ready": [work.step, work.attempt, work.round]})
            return self._exchange(header, work)

    def _do_commit(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Hear where the first machine is, and give up one of two shares."""
        self._resolve_in_doubt(int(header["step"]), int(header["attempt"]))
        return pack({"step": self._held.step, "attempt": self._held.attempt})

    def _do_open(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Settle, and give the first machine this one's shares of the answers that the step prepared."""
        self._resolve_in_doubt(int(header["step"]), int(header["attempt"]))
        shares = self._party.shares
        return pack({}, [shares[name].answers[number] for name, number in prepared_answers(shares)])

    def idle(self) -> None:
        """Blind all shares anew, without the front end: for the first machine, when no step came for a while."""
        self._notify_peer()
        header = {"step": self._held.step + 1, "attempt": self._held.attempt + 1, "round": 0, "last": True}
        work = self._begun(header)
        with self._abort_on_error():
            work.open_idle()
            self._exchange({**header, "origins": {}, "committed": 0, "idle": True}, work)

    # Between the machines.

    def _exchange(self, header: dict[str, Any], work: StepInProgress) -> bytearray:
        """Exchange masked shares with the second machine, and end the round; after the last, decide."""
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
            opened = self._held.answers_since(work.step)
        return pack({"step": work.step, "prepared": prepared, "opened": opened})

    def _do_exchange(self, header: dict[str, Any], body: NDArray[np.uint8]) -> bytearray:
        """Answer the first machine with this one's masked shares, once the new shares are on disk if they are the
        last.
        """
        with self._abort_on_error():
            if header.get("idle"):
                self._begun(header).open_idle()
            work = self._check_continues(header)
            if work.sent is None:
                raise TwoPartyError("the front end did not tell this machine of the round")
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
                held = StepRecord(step=work.step, attempt=work.attempt, kinds=work.held_kinds())
                self._pending = held, work.party.shares
                self._commit()
                self._work = None
            return message

    def _commit_locally(self, header: dict[str, Any], work: StepInProgress) -> None:
        """Replace this machine's shares on disk, and tell the other: from here on the step is taken.

        Then, and not before, the answers that it prepared are opened.
        """
        origins = {str(name): int(sequence) for name, sequence in dict(header["origins"]).items()}
        committed = int(header["committed"])
        self._held = self._held.after(work.step, work.attempt, work.held_kinds(), origins, committed=committed)
        old_shares = self._party.shares
        self._party.shares = work.party.shares
        self._work = None
        self.reserved = False
        self._commit()
        for share in old_shares.values():
            share.wipe()
        if prepared_answers(self._party.shares):
            self._open_answers()
            return
        with contextlib.suppress(PanstreamError):  # it hears of it with the next step, if not now
            self._notify_peer()

    def _notify_peer(self) -> None:
        """Let the second machine know which of its shares count."""
        with self._ask_other("commit"):
            pass

    def _open_answers(self) -> None:
        """Open the answers that the last step prepared, if the second machine's shares of them are not known yet.

        Both machines have theirs on disk from the step's commit to the next one, which holds what was opened.
        """
        if not self.first or not prepared_answers(self._party.shares):
            return
        with self._ask_other("open") as (_, body):
            opened = reconstruct(self._party.shares, body)
        for (name, number), numbers in opened.items():
            self._held.answers.setdefault(name, []).append((number, numbers, self._held.step))
        for share in self._party.shares.values():
            share.wipe_answers()

    def _ask_other(self, verb: str) -> contextlib.AbstractContextManager[tuple[dict[str, Any], NDArray[np.uint8]]]:
        """Tell the second machine which of its shares count, and ask it for something."""
        assert self._peer is not None
        position = {"step": self._held.step, "attempt": self._held.attempt}
        return exchange(self._peer, pack({"verb": verb, "stream": self.stream, **position}))

    def _resolve_in_doubt(self, step: int, attempt: int) -> None:
        if self._pending is not None:
            (held, shares), self._pending = self._pending, None
            if (held.step, held.attempt) == (step, attempt):
                shares, self._party.shares, self._held = self._party.shares, shares, held
            self._commit()
            for share in shares.values():
                share.wipe()
        if (self._held.step, self._held.attempt) != (step, attempt):
            raise TwoPartyError(
                f"the machines do not fit: this one is at step {self._held.step}, the other at step {step}; one of "
                "their directories is missing, or was rolled back"
            )

    # Steps under way.

    def _begun(self, header: dict[str, Any]) -> StepInProgress:
        step = int(header["step"])
        attempt = int(header["attempt"])
        if self._pending is not None:
            raise TwoPartyError("a step is pending here: ask the first machine which shares count")
        if step != self._held.step + 1:
            raise TwoPartyError(f"step {step} does not follow this machine's step {self._held.step}")
        if attempt <= max(self._held.attempt, *self._attempts()):
            raise TwoPartyError(f"try {attempt} of step {step} is not newer than what this machine has")
        self._abandon()
        self._open_answers()
        party = Party(first=self.first)
        party.shares = {
            name: StateShare(share.rule, share.cells, share.released) for name, share in self._party.shares.items()
        }
        self._work = StepInProgress(step, attempt, party, dict(self._held.kinds))
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
        """Forget the step under way if something goes wrong; the state is as it was."""
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
        """Write what counts, and what is pending beside it; give the state up if that fails."""
        self._keep_secret()
        about = {"first": self.first, "id": self._id, "stream": self.stream}
        parts = encode_step("now", self._held, self._party.shares, about)
        if self._pending is not None:
            parts |= encode_step("next", *self._pending, {})
        try:
            self._store.commit(parts)
        except BaseException:
            self._broken = True
            raise

    def _keep_secret(self) -> None:
        """Move the shares that stay between steps to secret memory, where the process has some."""
        pending = {} if self._pending is None else self._pending[1]
        for share in (*self._party.shares.values(), *pending.values()):
            share.cells = to_secret_array(share.cells)
            share.answers = {number: to_secret_array(part) for number, part in share.answers.items()}

    def _load(self) -> None:
        parts = self._store.load()
        if parts is None:
            self._commit()
            return
        try:
            meta, self._held, self._party.shares = decode_step("now", parts)
            self._id = meta["id"]
            if meta["first"] is not self.first or meta["stream"] != self.stream:
                raise TwoPartyError("the directory belongs to the other machine, or to another stream")
            if "next" in parts:
                _, held, shares = decode_step("next", parts)
                self._pending = held, shares
        except (KeyError, ValueError, TypeError):
            raise StoreDamaged("the store holds something other than a machine's shares") from None
        finally:
            self._keep_secret()
            for part in parts.values():
                wipe_bytes(part)
