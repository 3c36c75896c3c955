"""One hash per row, the same however the ids are laid out."""

import numpy as np
import pyarrow as pa

from panstream.primitives.hashing import hash_integers, hash_strings
from panstream.primitives.hashing.items import hash_items
from panstream.primitives.inputs import items


def hashed(data: object, key: int = 3) -> list[int]:
    batch = items(data)
    out = np.zeros(len(batch), np.uint64)
    hash_items(batch, key, out)
    return out.tolist()


def test_layouts_agree() -> None:
    words = ["ada", "", "grace", "ada", "sofía"]
    plain = hashed(words)
    assert plain[0] == plain[3]
    assert len(set(plain)) == 4
    for other in (
        pa.array(words),
        pa.array(words).dictionary_encode(),
        pa.chunked_array([words[:2], [], words[2:]]),
        np.array(words),
        [word.encode() for word in words],
    ):
        assert hashed(other) == plain


def test_integers_agree_with_the_mixer_and_keys_matter() -> None:
    numbers = np.array([5, -1, 5, 2**40])
    out = np.zeros(4, np.uint64)
    hash_integers(numbers, 3, out)
    assert hashed(numbers) == out.tolist() == hashed(pa.array(numbers).dictionary_encode())
    assert hashed(numbers, 4) != out.tolist()


def test_strings_agree_with_siphash() -> None:
    out = np.zeros(2, np.uint64)
    hash_strings(np.array([0, 1, 3]), np.frombuffer(b"abc", np.uint8), 3, out, hash="siphash")
    assert hashed(["a", "bc"]) == out.tolist()
