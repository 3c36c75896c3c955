from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.hashing import _strings, derive, hash_strings
from panstream.primitives.kernels.hashing import siphash as kernels
from panstream.primitives.memory.scratch import Scratch

MASK = (1 << 64) - 1
PUBLISHED_KEY = int.from_bytes(bytes(range(16)), "little")
# SHA-256 of the published tables: 64 results of 8 little-endian bytes, for the messages 00, 01, ..., n - 1.
PUBLISHED_2_4 = "0226a91002af9775a791b3ec5a48e643f8848d2d5774dea9be3438d5786bb58e"  # authors' vectors.h
PUBLISHED_1_3 = "6046331106143204acf164927e50cddf85f92b0df8fc440ff2e2bffe69db4dfb"  # Rust's core library


def rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & MASK


def sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & MASK
    v1 = rotate(v1, 13) ^ v0
    v0 = rotate(v0, 32)
    v2 = (v2 + v3) & MASK
    v3 = rotate(v3, 16) ^ v2
    v0 = (v0 + v3) & MASK
    v3 = rotate(v3, 21) ^ v0
    v2 = (v2 + v1) & MASK
    v1 = rotate(v1, 17) ^ v2
    return v0, v1, rotate(v2, 32), v3


def reference(message: bytes, key: int, per_word: int = 1, at_end: int = 3) -> int:
    k0 = key & MASK
    k1 = key >> 64
    state = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        state = (*state[:3], state[3] ^ word)
        for _ in range(per_word):
            state = sip_round(*state)
        state = (state[0] ^ word, *state[1:])
    state = (state[0], state[1], state[2] ^ 0xFF, state[3])
    for _ in range(at_end):
        state = sip_round(*state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def lay_out(messages: list[bytes], dtype: Any = np.int32, skip: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    offsets = np.cumsum([skip, *(len(message) for message in messages)]).astype(dtype)
    return offsets, np.frombuffer(bytes(range(skip)) + b"".join(messages), np.uint8)


def kernel(messages: list[bytes], key: int) -> list[int]:
    offsets, data = lay_out(messages)
    out = np.empty(len(messages), np.uint64)
    state = np.empty((4, kernels.LANES), np.uint64)
    kernels.hash_all(offsets, data, np.uint64(key & MASK), np.uint64(key >> 64), state, out)
    return [int(word) for word in out]


def hashed(messages: list[bytes], key: int, dtype: Any = np.int32, skip: int = 0) -> list[int]:
    out = np.empty(len(messages), np.uint64)
    hash_strings(*lay_out(messages, dtype, skip), key, out, hash="siphash")
    return [int(word) for word in out]


def table_digest(results: list[int]) -> str:
    return hashlib.sha256(b"".join(result.to_bytes(8, "little") for result in results)).hexdigest()


def test_reference_reproduces_the_published_tables() -> None:
    messages = [bytes(range(length)) for length in range(64)]
    assert reference(bytes(range(15)), PUBLISHED_KEY, 2, 4) == 0xA129CA6149BE45E5  # the paper's appendix A
    assert table_digest([reference(message, PUBLISHED_KEY, 2, 4) for message in messages]) == PUBLISHED_2_4
    assert table_digest([reference(message, PUBLISHED_KEY, 1, 3) for message in messages]) == PUBLISHED_1_3


def test_kernel_reproduces_the_published_table() -> None:
    assert table_digest(kernel([bytes(range(length)) for length in range(64)], PUBLISHED_KEY)) == PUBLISHED_1_3


def python_hash_key(seed: int) -> int:
    """Return the SipHash key that CPython makes from PYTHONHASHSEED."""
    if seed == 0:
        return 0
    key = bytearray()
    for _ in range(16):
        seed = (seed * 214013 + 2531011) % (1 << 32)
        key.append((seed >> 16) & 0xFF)
    return int.from_bytes(key, "little")


@pytest.mark.parametrize("seed", [0, 1, 4294967295])
def test_kernel_agrees_with_this_python(seed: int) -> None:
    assert sys.hash_info.algorithm == "siphash13"
    messages = [bytes((7 * i + length) % 256 for i in range(length)) for length in range(1, 100)]
    code = f"import json; print(json.dumps([hash(bytes.fromhex(m)) for m in {[m.hex() for m in messages]!r}]))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        check=True,
        text=True,
    )
    # Python turns -1 into -2; no message above hashes to either.
    assert [word & MASK for word in json.loads(ran.stdout)] == kernel(messages, python_hash_key(seed))


@pytest.mark.parametrize("length", range(65))
@pytest.mark.parametrize("count", [1, kernels.LANES, 2 * kernels.LANES + 3])
def test_equal_lengths_agree_with_the_reference(length: int, count: int) -> None:
    rng = np.random.default_rng(length)
    messages = [rng.bytes(length) for _ in range(count)]
    assert hashed(messages, 5) == [reference(message, derive(5, "strings")) for message in messages]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("skip", [0, 1, 13])
def test_mixed_lengths_agree_with_the_reference(dtype: Any, skip: int) -> None:
    rng = np.random.default_rng(1)
    messages = [rng.bytes(int(length)) for length in rng.geometric(1 / 20, 1000) - 1]
    messages[500:700] = [rng.bytes(16) for _ in range(200)]  # some blocks of equal lengths between mixed ones
    assert b"" in messages
    messages.append(rng.bytes(1000))  # its length counts modulo 256
    expected = [reference(message, derive(9, "strings")) for message in messages]
    assert hashed(messages, 9, dtype, skip) == expected


@pytest.mark.parametrize("words", range(4))
@pytest.mark.parametrize("behind", [0, 7])
def test_lengths_of_as_many_words_agree_with_the_reference(words: int, behind: int) -> None:
    rng = np.random.default_rng(words)
    lengths = [8 * words + int(tail) for tail in rng.integers(0, 8, 3 * kernels.LANES)]
    messages = [rng.bytes(length) for length in lengths]
    offsets, data = lay_out([*messages, bytes(behind)])
    out = np.empty(len(messages), np.uint64)
    hash_strings(offsets[:-1], data, 7, out, hash="siphash")
    assert out.tolist() == [reference(message, derive(7, "strings")) for message in messages]


@given(st.lists(st.binary(max_size=40), max_size=150), st.integers(0, (1 << 128) - 1), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_any_strings_agree_with_the_reference(messages: list[bytes], key: int, skip: int) -> None:
    assert hashed(messages, key, np.int64, skip) == [reference(m, derive(key, "strings")) for m in messages]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_slices_of_arrow_arrays_are_hashed_in_place(kind: Any) -> None:
    words = [f"user-{i}" for i in range(1000)]
    array = pa.array(words if kind != pa.binary() else [word.encode() for word in words], kind)[123:777]
    dtype = np.int64 if kind == pa.large_string() else np.int32
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, dtype)[array.offset : array.offset + len(array) + 1]
    out = np.empty(len(array), np.uint64)
    hash_strings(starts, np.frombuffer(data, np.uint8), 0, out, hash="siphash")
    assert out.tolist() == hashed([word.encode() for word in words[123:777]], 0)


def test_nothing_to_hash() -> None:
    out = np.empty(0, np.uint64)
    hash_strings(np.array([0]), np.empty(0, np.uint8), 0, out, hash="siphash")
    hash_strings(np.array([3]), np.zeros(9, np.uint8), 0, out, hash="siphash")
    assert hashed([b"", b""], 0) == [reference(b"", derive(0, "strings"))] * 2


def test_working_memory_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_out = []

    class Recording(Scratch):
        def array(self, size: int, dtype: Any = np.uint8) -> NDArray[Any]:
            handed_out.append(super().array(size, dtype))
            handed_out[-1][:] = 1
            return handed_out[-1]

    monkeypatch.setattr(_strings, "Scratch", Recording)
    hashed([b"sixteen bytes ok"] * 500, 0)
    assert handed_out
    assert not any(array.any() for array in handed_out)


@pytest.mark.parametrize(
    ("offsets", "row"),
    [([0, 3, 2, 5], 1), ([0, 3, 5, 11], 2), ([-1, 3, 5, 6], 0), ([0, 99, 5, 6], 0), ([11, 11, 11, 11], 0)],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_outside_the_data_are_refused(offsets: list[int], row: int, dtype: Any) -> None:
    out = np.full(3, 7, np.uint64)
    with pytest.raises(InvalidBatch, match="offsets must not decrease") as caught:
        hash_strings(np.array(offsets, dtype), np.zeros(10, np.uint8), 0, out, hash="siphash")
    assert caught.value.row == row
    assert out.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("offsets", "data", "out", "message"),
    [
        (np.zeros(4, np.uint32), np.zeros(9, np.uint8), np.empty(3, np.uint64), "offsets must be a contiguous"),
        (np.zeros(8, np.int32)[::2], np.zeros(9, np.uint8), np.empty(3, np.uint64), "offsets must be a contiguous"),
        ([0, 1, 2, 3], np.zeros(9, np.uint8), np.empty(3, np.uint64), "got list"),
        (np.zeros(0, np.int32), np.zeros(9, np.uint8), np.empty(0, np.uint64), "offsets must have one element more"),
        (np.zeros(4, np.int32), np.zeros(9, np.int8), np.empty(3, np.uint64), "data must be a contiguous"),
        (np.zeros(4, np.int32), np.zeros(9, np.uint8), np.empty(4, np.uint64), "out must be a writeable array of 3"),
        (np.zeros(4, np.int32), np.zeros(9, np.uint8), np.empty(3, np.int64), "out must be a contiguous"),
    ],
)
def test_unfit_arrays_are_refused(offsets: Any, data: Any, out: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        hash_strings(offsets, data, 0, out, hash="siphash")


def test_a_read_only_result_is_refused() -> None:
    out = np.empty(1, np.uint64)
    out.flags.writeable = False
    with pytest.raises(InvalidParameter, match="out must be a writeable"):
        hash_strings(np.zeros(2, np.int32), np.zeros(1, np.uint8), 0, out, hash="siphash")
