from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import pytest

from panstream.errors import InvalidParameter
from panstream.primitives.hashing import check_key, derive, expand
from panstream.primitives.hashing.keys import key_words

KEYS = [0, 1, 255, 1 << 64, (1 << 128) - 1]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("label", ["", "strings", "größe"])
def test_derive_is_the_documented_digest(key: int, label: str) -> None:
    digest = hashlib.blake2b(digest_size=16, person=b"panstream.hash.1")
    digest.update(bytes((key >> (8 * i)) & 0xFF for i in range(16)))
    digest.update(label.encode("utf-8"))
    assert derive(key, label) == sum(byte << (8 * i) for i, byte in enumerate(digest.digest()))


def test_expand_is_the_documented_stream() -> None:
    stream = b""
    for number in range(3):
        digest = hashlib.blake2b(digest_size=64, person=b"panstream.hash.1")
        digest.update((77).to_bytes(16, "little") + number.to_bytes(8, "little") + b"use")
        stream += digest.digest()
    words = expand(77, "use", 21)
    assert b"".join(word.to_bytes(8, "little") for word in words) == stream[: 21 * 8]
    assert expand(77, "use", 0) == ()
    assert expand(77, "use", 9) == words[:9]


def test_subkeys_differ_by_key_and_by_label() -> None:
    labels = ["strings", "integers", "shuffle", "permutation", "polynomial"]
    assert len({derive(key, label) for key in range(200) for label in labels}) == 1000


def test_key_words_are_the_halves_of_the_subkey() -> None:
    low, high = key_words(3, "strings")
    assert int(low) + (int(high) << 64) == derive(3, "strings")


@pytest.mark.parametrize("key", [-1, 1 << 128, 1.0, "0", None, True])
def test_other_keys_are_refused(key: Any) -> None:
    derive(1, "x")  # so that a cached answer for an equal key would show
    for call in (lambda: check_key(key), lambda: derive(key, "x"), lambda: expand(key, "x", 1)):
        with pytest.raises(InvalidParameter, match="key must be an integer in 0") as caught:
            call()
        assert "got" not in str(caught.value)


def test_importing_the_package_does_not_load_the_compiler() -> None:
    code = "import sys, panstream.primitives.hashing; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
