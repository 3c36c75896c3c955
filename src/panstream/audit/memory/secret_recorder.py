"""What a process of the machines' drill tells of itself: every secret, as it is handled, through a pipe.

Seeds, masks and shares are drawn inside the processes, so only they can say what to look for afterwards. A few bytes of
each are written straight from where they lie, and no copy of them stays behind.
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
from panstream.distributed.two_party.key_agreement import Agreement
from panstream.distributed.two_party.messages import pack
from panstream.primitives import mutual_tls as channel
from panstream.primitives.memory.scratch import wipe, wipe_bytes

TAP: Final = "PANSTREAM_DRILL_TAP"  # descriptor to tell, descriptor to be told, file of TLS secrets
HEADER: Final = struct.Struct("<12sIH")  # what it is, the step, how many bytes follow
HELD: Final = "held"
_PIECE, _NOISE = 16, 64
_PIECES = 4
_PATIENCE = 600.0  # seconds that a step may be held for a scan


class _Tap:
    """Tells pieces of arrays, and holds a step when it is told to: while a byte waits, the next exchange does."""

    def __init__(self, out: int, told: int) -> None:
        self._out, self._told = out, told

    def tell(self, kind: str, array: NDArray[Any], *, step: int = 0, piece: int = _PIECE) -> None:
        """Tell a few pieces, spread over the array."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        last = flat.size - piece
        for at in sorted({last * part // (_PIECES - 1) for part in range(_PIECES)}) if last >= 0 else ():
            os.writev(self._out, [HEADER.pack(kind.encode(), step, piece), flat[at : at + piece].data])

    @property
    def waits(self) -> bool:
        """Return whether a byte waits."""
        return bool(select.select([self._told], [], [], 0.0)[0])

    def hold(self) -> None:
        """Stand still until a second byte comes, if one waits."""
        if self.waits:
            os.read(self._told, 1)
            os.writev(self._out, [HEADER.pack(HELD.encode(), 0, 0)])
            os.read(self._told, 1)


def install() -> None:
    """Have this process tell what it handles, if its environment says so."""
    given = os.environ.pop(TAP, None)
    if given is None:
        return
    out, told, secrets = given.split(",", 2)
    tap = _Tap(int(out), int(told))
    https._TIMEOUT = channel._TIMEOUT = _PATIENCE
    _tap_keys(tap, secrets)
    _tap_messages(tap)
    _tap_shares(tap)


def _tap_keys(tap: _Tap, secrets: str) -> None:
    load = channel._load

    def loaded(context: Any, identity: Any) -> None:
        load(context, identity)
        context.keylog_filename = secrets

    _replace(channel, _load=loaded)
    begin, bits, agree, key = Keystream.__init__, Keystream.bits, Agreement.__init__, Agreement.key

    def begun(self: Keystream, given: Any, scratch: Any) -> None:
        tap.tell("key", given)
        begin(self, given, scratch)

    def drawn(self: Keystream, size: int) -> Any:
        found = bits(self, size)
        tap.tell("keystream", found)
        return found

    def agreed(self: Agreement) -> None:
        agree(self)
        _tell_bytes(tap, "X25519", self._private.private_bytes_raw())

    def common(self: Agreement, other: str, both: str, about: bytes) -> Any:
        tap.hold()
        secret = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
        _tell_bytes(tap, "X25519", secret)
        return key(self, other, both, about)

    _replace(Keystream, __init__=begun, bits=drawn)
    _replace(Agreement, __init__=agreed, key=common)


def _tell_bytes(tap: _Tap, kind: str, data: bytes) -> None:
    tap.tell(kind, np.frombuffer(data, np.uint8))
    wipe_bytes(data)


def _tap_messages(tap: _Tap) -> None:
    def packed(header: Any, arrays: Any = ()) -> bytearray:
        for array in arrays:
            tap.tell("message", array)
        return pack(header, arrays)

    for module in (backend, machine):
        _replace(module, pack=packed)


def _tap_shares(tap: _Tap) -> None:
    commit, idle, draw = machine.Machine._commit, machine.Machine.idle, rules.draw_noise

    def committed(self: machine.Machine) -> None:
        kept = [(self._held.step, self._party.shares)]
        kept += [] if self._pending is None else [(self._pending[0].step, self._pending[1])]
        for step, shares in kept:
            for share in shares.values():
                tap.tell("share", share.cells, step=step)
                for part in share.answers.values():
                    tap.tell("share", part, step=step)
        commit(self)

    def idled(self: machine.Machine) -> None:
        if not tap.waits:
            idle(self)

    def noise(count: int, law: Any, source: Any) -> Any:
        found = draw(count, law, source)
        tap.tell("noise", found, piece=_NOISE)
        wrapped = found % COUNTS.modulus
        tap.tell("noise", wrapped, piece=_NOISE)
        wipe(wrapped)
        return found

    _replace(machine.Machine, _commit=committed, idle=idled)
    for module in (rules, sums):
        _replace(module, draw_noise=noise)


def _replace(owner: Any, **functions: Callable[..., Any]) -> None:
    for name, function in functions.items():
        setattr(owner, name, function)
