"""A process that runs steps and reports their secrets, and a scan of its memory for copies that remain.

Hooks copy every secret, masked with a one-time pad that came from here, so that the copies are not what the scan finds.
The masked secrets come back by a shared file, so that nothing runs between the step and the scan that could overwrite
what was left; they are unmasked, and looked for in pieces of eight bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from panstream.testing.memory import ScanReport, make_needles
from tests.scanned import Scanned

PAD_BYTES = 1 << 22

CHILD = """
from panstream.primitives.fast_import import import_without_gc
import_without_gc()
import numpy as np
from panstream.primitives.noise import Coin, DiscreteGaussian, DiscreteLaplace, SelectionRate, NoiseSource, source

pad = np.empty(int(line()), np.uint8)
fill(pad)
masked = np.memmap(line().decode(), np.uint8, "r+")
notes = np.memmap(line().decode(), np.int64, "r+")
taken = filled = 0

def capture(kind, array):
    global taken, filled
    end = filled + array.nbytes
    np.bitwise_xor(array.view(np.uint8), pad[filled:end], out=masked[filled:end])
    notes[2 * taken : 2 * taken + 2] = kind, array.nbytes
    taken += 1
    filled = end

ENTROPY, STREAM, COINS, UNIFORM, KEY = range(1, 6)
draw, filled_by = source.system_entropy, NoiseSource._fill

def entropy(buffer):
    draw(buffer)
    capture(ENTROPY if NoiseSource._fill is stream else KEY, buffer)

def stream(self, buffer):
    filled_by(self, buffer)
    if self._cipher is not None:
        capture(STREAM, buffer)

half = Coin.at_most(0.5)
noise = DiscreteLaplace.at_most(0.01)
normal = DiscreteGaussian.at_least(100.0)
weak = SelectionRate.at_most(0.001)

def large():
    with NoiseSource() as step:
        capture(COINS, step.bernoulli(half, 100_000))
        capture(UNIFORM, step.uniform_below(1 << 62, 2000))
        step.add_discrete_laplace(np.zeros(130, np.int64), noise)
        step.add_discrete_gaussian(np.zeros(1000, np.int64), normal)
        step.add_discrete_gaussian(np.zeros(20_000, np.int32), normal)  # from a table
        step.permute_and_flip(np.arange(1000), weak)
        step.exponential(np.arange(1000), weak)
        step.redraw(half, np.zeros(2000, np.uint64), np.full(2000, (1 << 64) - 1, np.uint64))

def unwatched():
    with NoiseSource() as step:
        step.bernoulli(half, 100_000)

def small():
    for _ in range(300):
        with NoiseSource() as step:
            step.bernoulli(half, 10)
    for _ in range(30):
        with NoiseSource() as step:
            capture(COINS, step.bernoulli(half, 128))
            capture(UNIFORM, step.uniform_below(1 << 62, 2))
    for _ in range(30):
        with NoiseSource() as step:
            step.add_discrete_laplace(np.zeros(1, np.int64), noise)
            step.add_discrete_gaussian(np.zeros(1, np.int64), normal)

def failing():
    try:
        with NoiseSource() as step:
            capture(COINS, step.bernoulli(half, 5000))
            raise RuntimeError("a step that ends early")
    except RuntimeError:
        pass

def monitored():
    from panstream.algorithms.density.optbern import OptBern
    monitor = OptBern(universe=5000, epsilon=1.0).start()
    for first in range(0, 4000, 500):
        monitor.update(list(range(first, first + 500)))
    monitor.release()
    return monitor

kept = []
"""

# Stands in for a copy whose last bytes stay in registers, and for the dynamic linker that stores them on the stack.
PLANTED = """
import sys
sys.path.insert(0, {root!r})
from tests.primitives.noise.processor import load_registers, size, store_registers, KIND
load, store = load_registers(), store_registers()

def planted():
    words = np.empty(size(KIND) // 8 + 64, np.uint64)
    with NoiseSource() as step:
        step.fill_words(words)
        load(words.ctypes.data)
        source.wipe(words)
    store()
"""

RUN = """
steps = [{steps}]
if {warm}:  # compile and import before anything is captured
    for step in steps:
        step()
taken = filled = 0; masked[:] = 0; notes[:] = 0
{leak}
source.system_entropy = entropy
for step in steps:
    NoiseSource._fill = filled_by if step is unwatched else stream
    kept.append(step())
answer()
line()
"""

STEPS = ("large", "small", "failing", "monitored", "unwatched")
KINDS = {1: "entropy", 2: "stream", 3: "coins", 4: "uniform", 5: "key"}
Secrets = list[tuple[str, bytes]]


def key_schedule(key: bytes) -> list[bytes]:
    """Return the fifteen round keys of AES-256 (FIPS 197, section 5.2)."""
    sbox = substitution_box()
    words = [key[i : i + 4] for i in range(0, 32, 4)]
    constant = 1
    for i in range(8, 60):
        word = words[-1]
        if i % 8 == 0:
            word = bytes(sbox[byte] for byte in word[1:] + word[:1])
            word = bytes([word[0] ^ constant]) + word[1:]
            constant <<= 1
        elif i % 8 == 4:
            word = bytes(sbox[byte] for byte in word)
        words.append(bytes(a ^ b for a, b in zip(word, words[i - 8], strict=True)))
    return [b"".join(words[i : i + 4]) for i in range(0, 60, 4)]


def substitution_box() -> list[int]:
    """Return the S-box: the inverse in GF(256), then an affine map (FIPS 197, section 5.1.1)."""
    powers = [1]
    while len(powers) < 255:
        power = powers[-1] ^ powers[-1] << 1  # times the generator 3
        powers.append(power ^ 0x11B if power & 0x100 else power)
    inverse = {powers[i]: powers[-i % 255] for i in range(255)} | {0: 0}
    box = []
    for byte in range(256):
        value = inverse[byte]
        turned = value
        for _ in range(4):
            turned = (turned << 1 | turned >> 7) & 0xFF
            value ^= turned
        box.append(value ^ 0x63)
    return box


class Child:
    """A fresh interpreter that takes steps and tells their secrets, masked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: Scanned | None = None

    def run(
        self,
        *steps: str,
        leak: str = "",
        environment: Mapping[str, str] | None = None,
        warm: bool = True,
    ) -> Secrets:
        """Take the steps, one after another; what the last one leaves is what nothing has overwritten."""
        planted = PLANTED.format(root=str(Path(__file__).parents[3])) if "planted" in steps else ""
        program = CHILD + planted + RUN.format(steps=", ".join(steps), leak=leak, warm=warm)
        self.process = Scanned(program, environment)
        pad = b"".join(make_needles(PAD_BYTES // 512, "bytes", 512))
        masked = self.directory / "masked"
        notes = self.directory / "notes"
        masked.write_bytes(bytes(PAD_BYTES))
        notes.write_bytes(bytes(1 << 16))
        self.process.send(f"{len(pad)}\n".encode() + pad + f"{masked}\n{notes}\n".encode())
        self.process.wait_ready()
        plain: NDArray[np.uint8] = np.fromfile(masked, np.uint8) ^ np.frombuffer(pad, np.uint8)
        secrets: Secrets = []
        at = 0
        for kind, size in np.fromfile(notes, np.int64).reshape(-1, 2):
            if kind:
                secrets.append((KINDS[kind], plain[at : at + size].tobytes()))
                at += size
        return secrets

    def scan(self, needles: set[bytes]) -> ScanReport:
        assert self.process
        return self.process.scan(sorted(needles), decoys=make_needles(1000, "bytes", 8), encodings=["raw"])

    def close(self) -> None:
        if self.process:
            self.process.close()


def pieces(secret: bytes, size: int = 8, step: int = 1) -> set[bytes]:
    return {secret[i : i + size] for i in range(0, len(secret) - size + 1, step)}


def round_keys(key: bytes) -> set[bytes]:
    """Return the derived round keys by halves, also in the byte order of code that reads the key as integers."""
    schedule = b"".join(key_schedule(key))[32:]
    swapped = np.frombuffer(schedule, ">u4").astype("<u4").tobytes()
    return pieces(schedule, step=8) | pieces(swapped, step=8)


def keystreams(secrets: Secrets) -> dict[bytes, bytes]:
    """Return the keystream of every key that was captured, after checking that the captured draws are that keystream.

    It goes on to the end of the block after the last draw, which the cipher may have computed ahead.
    """
    streams: dict[bytes, bytes] = {}
    key = b""
    for kind, secret in secrets:
        if kind == "entropy":
            key = secret
        elif kind == "stream":
            streams[key] = streams.get(key, b"") + secret
    for key, drawn in streams.items():
        streams[key] = keystream(key, len(drawn) // 16 * 16 + 32)
        assert streams[key].startswith(drawn)
    return streams


def keystream(key: bytes, size: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def shifted(stream: bytes) -> set[bytes]:
    """Return the stream's words as the Laplace sampler uses them: their upper 52 bits."""
    words = np.frombuffer(stream[: len(stream) // 8 * 8], "<u8") >> np.uint64(12)
    return {word.tobytes() for word in words}


def needles_by_kind(secrets: Secrets) -> dict[str, set[bytes]]:
    needles: dict[str, set[bytes]] = {kind: set() for kind in (*KINDS.values(), "round keys")}
    for kind, secret in secrets:
        size, step = {"entropy": (8, 1), "stream": (8, 8), "coins": (64, 64), "uniform": (8, 8), "key": (8, 1)}[kind]
        needles[kind] |= pieces(secret, size, step)
        if kind == "stream":
            needles[kind] |= shifted(secret)
    unwatched = {
        secret: keystream(secret, 110_000) for kind, secret in secrets if kind == "key"
    }  # coins, and what ties need
    for stream in unwatched.values():
        needles["stream"] |= shifted(stream)
    for key, stream in (keystreams(secrets) | unwatched).items():
        needles["round keys"] |= round_keys(key)
        needles["stream"] |= pieces(stream, step=8)
    return needles
