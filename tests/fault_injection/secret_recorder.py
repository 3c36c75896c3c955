"""Inside a process of the two-machine drill: writes every secret to a pipe as it is handled.

Seeds, masks and shares are drawn inside the processes, so only they can say what to look for afterwards. A few bytes of
each are written straight from where they lie, and no copy of them stays behind. ``panstream.cli.scannable`` installs
this when it is started with ``--instrument``; nothing else does.
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from panstream.algorithms.secret_shared import running_sums as sums
from panstream.algorithms.secret_shared import share_rules as rules
from panstream.algorithms.secret_shared.ring import COUNTS, Keystream
from panstream.distributed.two_party import backend, https
from panstream.distributed.two_party import participant as machine
from panstream.distributed.two_party.key_agreement import KeyAgreement
from panstream.distributed.two_party.messages import pack
from panstream.primitives import mutual_tls as channel
from panstream.primitives.memory.scratch import wipe, wipe_bytes

HEADER: Final = struct.Struct("<12sIH")  # what it is, the step, how many bytes follow
HELD: Final = "held"
_PIECE_BYTES = 16
_NOISE_PIECE_BYTES = 64
_PIECES = 4
_STEP_TIMEOUT = 600.0  # seconds that a step may be held for a scan


class SecretRecorder:
    """Writes pieces of arrays, and holds a step on request: while a byte waits, the next exchange does."""

    def __init__(self, records: int, requests: int) -> None:
        self._records = records
        self._requests = requests

    def record(self, kind: str, array: NDArray[Any], *, step: int = 0, size: int = _PIECE_BYTES) -> None:
        """Write a few pieces, spread over the array."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        last = data.size - size
        for offset in sorted({last * part // (_PIECES - 1) for part in range(_PIECES)}) if last >= 0 else ():
            os.writev(self._records, [HEADER.pack(kind.encode(), step, size), data[offset : offset + size].data])

    def record_bytes(self, kind: str, data: bytes) -> None:
        """Write pieces of bytes, and overwrite them."""
        self.record(kind, np.frombuffer(data, np.uint8))
        wipe_bytes(data)

    @property
    def has_hold_request(self) -> bool:
        return bool(select.select([self._requests], [], [], 0.0)[0])

    def hold(self) -> None:
        """Wait for a second byte, if one waits."""
        if self.has_hold_request:
            os.read(self._requests, 1)
            os.writev(self._records, [HEADER.pack(HELD.encode(), 0, 0)])
            os.read(self._requests, 1)


def install(argument: str) -> None:
    """Have this process record what it handles.

    Args:
        argument: Descriptor to write records to, descriptor to read requests from, file for TLS secrets.
    """
    records, requests, tls_log = argument.split(",", 2)
    recorder = SecretRecorder(int(records), int(requests))
    https._TIMEOUT = channel._TIMEOUT = _STEP_TIMEOUT
    _record_keys(recorder, tls_log)
    _record_messages(recorder)
    _record_shares(recorder)


def _record_keys(recorder: SecretRecorder, tls_log: str) -> None:
    load = channel._load

    def load_logging(context: Any, identity: Any) -> None:
        load(context, identity)
        context.keylog_filename = tls_log

    _replace(channel, _load=load_logging)
    start_keystream = Keystream.__init__
    bits = Keystream.bits
    start_agreement = KeyAgreement.__init__
    key = KeyAgreement.key

    def recorded_start(self: Keystream, key_words: Any, scratch: Any) -> None:
        recorder.record("key", key_words)
        start_keystream(self, key_words, scratch)

    def recorded_bits(self: Keystream, size: int) -> Any:
        drawn = bits(self, size)
        recorder.record("keystream", drawn)
        return drawn

    def recorded_agreement(self: KeyAgreement) -> None:
        start_agreement(self)
        recorder.record_bytes("X25519", self._private.private_bytes_raw())

    def recorded_key(self: KeyAgreement, other: str, both: str, about: bytes) -> Any:
        recorder.hold()
        secret = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
        recorder.record_bytes("X25519", secret)
        return key(self, other, both, about)

    _replace(Keystream, __init__=recorded_start, bits=recorded_bits)
    _replace(KeyAgreement, __init__=recorded_agreement, key=recorded_key)


def _record_messages(recorder: SecretRecorder) -> None:
    def recorded_pack(header: Any, arrays: Any = ()) -> bytearray:
        for array in arrays:
            recorder.record("message", array)
        return pack(header, arrays)

    for module in (backend, machine):
        _replace(module, pack=recorded_pack)


def _record_shares(recorder: SecretRecorder) -> None:
    commit = machine.Participant._commit
    idle = machine.Participant.idle
    draw_noise = rules.draw_noise

    def recorded_commit(self: machine.Participant) -> None:
        steps = [(self._record.step, self._party.shares)]
        steps += [] if self._in_doubt is None else [(self._in_doubt[0].step, self._in_doubt[1])]
        for step, shares in steps:
            for share in shares.values():
                recorder.record("share", share.cells, step=step)
                for part in share.answers.values():
                    recorder.record("share", part, step=step)
        commit(self)

    def idle_unless_held(self: machine.Participant) -> None:
        if not recorder.has_hold_request:
            idle(self)

    def recorded_noise(count: int, law: Any, rng: Any) -> Any:
        noise = draw_noise(count, law, rng)
        recorder.record("noise", noise, size=_NOISE_PIECE_BYTES)
        wrapped = noise % COUNTS.modulus
        recorder.record("noise", wrapped, size=_NOISE_PIECE_BYTES)
        wipe(wrapped)
        return noise

    _replace(machine.Participant, _commit=recorded_commit, idle=idle_unless_held)
    for module in (rules, sums):
        _replace(module, draw_noise=recorded_noise)


def _replace(owner: Any, **functions: Callable[..., Any]) -> None:
    for name, function in functions.items():
        assert hasattr(owner, name), name  # what was renamed would not be recorded
        setattr(owner, name, function)
