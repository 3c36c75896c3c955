"""Seal a payload with AES-256-GCM under a key that is used once, and wrap that key under an operator's key."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from panstream.errors import StoreDamaged, StoreError
from panstream.primitives.noise.entropy import system_entropy

KEY_BYTES = 32
MAX_BYTES = (1 << 36) - 32  # that AES-GCM may encrypt under one key and nonce: 2^39 - 256 bits (NIST SP 800-38D, 5.2)
_NONCE = 12
_TAG = 16


def seal(payload: bytes, key: NDArray[np.uint8], label: bytes) -> bytes:
    """Return nonce, ciphertext and tag; ``label`` is authenticated but not part of the result."""
    nonce = np.empty(_NONCE, np.uint8)
    encryptor = _encryptor(nonce, key, label)
    return b"".join([nonce.tobytes(), encryptor.update(payload), encryptor.finalize(), encryptor.tag])


def _encryptor(nonce: NDArray[np.uint8], key: NDArray[np.uint8], label: bytes) -> Any:
    """Draw a nonce in place, and return the cipher that uses it."""
    system_entropy(nonce)
    encryptor = Cipher(algorithms.AES(key.data), modes.GCM(nonce.tobytes())).encryptor()
    encryptor.authenticate_additional_data(label)
    return encryptor


class Sealer:
    """Seal named parts into a buffer that is reused between commits and only ever holds ciphertext."""

    def __init__(self) -> None:
        self._out = bytearray()

    def seal(self, parts: Mapping[str, bytes | memoryview], key: NDArray[np.uint8], label: bytes) -> memoryview:
        """Return nonce, ciphertext and tag, valid until the next call; `unpack` reverses the packing of the parts."""
        pieces = _pieces(parts)
        payload = sum(map(len, pieces))
        if payload > MAX_BYTES:
            raise StoreError(f"the state has more than the {MAX_BYTES:,} bytes that the store can hold")
        size = _NONCE + payload + _TAG
        if not size <= len(self._out) - _TAG <= 4 * size:
            self._out = bytearray(size + _TAG)  # update_into requires one block more than it writes
        encryptor = _encryptor(np.frombuffer(self._out, np.uint8, _NONCE), key, label)
        out = memoryview(self._out)
        pos = _NONCE
        for piece in pieces:
            pos += encryptor.update_into(piece, out[pos:])
        encryptor.finalize()
        out[pos:size] = encryptor.tag
        return out[:size]


def open_sealed(pieces: Iterable[memoryview], size: int, key: NDArray[np.uint8], label: bytes) -> memoryview:
    """Decrypt and authenticate ``size`` sealed bytes, given in pieces.

    Raises:
        StoreDamaged: The bytes were altered or cut short, or the key is another one.
    """
    payload = size - _NONCE - _TAG
    if payload < 0:
        raise StoreDamaged("the sealed file is cut short")
    out = memoryview(bytearray(payload + _TAG))  # update_into requires one block more than it writes
    done = 0
    tag = b""
    decryptor: Any = None
    for piece in pieces:
        if decryptor is None:
            decryptor = Cipher(algorithms.AES(key.data), modes.GCM(bytes(piece[:_NONCE]))).decryptor()
            decryptor.authenticate_additional_data(label)
            piece = piece[_NONCE:]
        body = piece[: payload - done]
        done += decryptor.update_into(body, out[done:])
        tag += bytes(piece[len(body) :])
    try:
        decryptor.finalize_with_tag(tag)
    except (InvalidTag, ValueError):  # altered, or shorter than it should be
        damaged = "the sealed file does not fit its key: it was altered, or the key is another's"
    else:
        return out[:payload]
    raise StoreDamaged(damaged)


def _pieces(parts: Mapping[str, bytes | memoryview]) -> list[bytes | memoryview]:
    pieces: list[bytes | memoryview] = [struct.pack("<I", len(parts))]
    for name, content in parts.items():
        label = name.encode()
        pieces += [struct.pack("<HQ", len(label), len(content)), label, content]
    return pieces


def unpack(payload: memoryview) -> dict[str, bytes]:
    """Return the named parts of a payload that `Sealer` packed."""
    (count,) = struct.unpack_from("<I", payload)
    pos = 4
    parts = {}
    for _ in range(count):
        name_length, length = struct.unpack_from("<HQ", payload, pos)
        pos += 10
        name = str(payload[pos : pos + name_length], "utf-8")
        pos += name_length
        parts[name] = bytes(payload[pos : pos + length])
        pos += length
    return parts
