"""Snappy: the same bytes and the same verdict as a decoder that goes byte by byte, and nothing beside the target."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.primitives.kernels.sources.snappy import unpack_snappy

GUARD = 64
TEXTS = {
    "ids": np.random.default_rng(1).integers(0, 3_000_000, 5_000).tobytes(),
    "strings": b"".join(b"\x0b\0\0\0user-%06d" % (n * n % 9_973) for n in range(5_000)),
    "noise": np.random.default_rng(2).bytes(70_000),
    "one letter": b"a" * 70_000,
    "two letters": b"ab" * 400,
    "empty": b"",
    "short": b"abc",
}


def unpacked(packed: bytes, size: int) -> bytes | None:
    """Return what is decompressed between two guards, which must stay as they are."""
    room = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    given_ = np.frombuffer(packed, np.uint8).copy()
    good = unpack_snappy(given_, room[GUARD : GUARD + size])
    assert (room[:GUARD] == 0xA5).all()
    assert (room[GUARD + size :] == 0xA5).all()
    assert given_.tobytes() == packed
    return room[GUARD : GUARD + size].tobytes() if good else None


def plainly(packed: bytes, size: int) -> bytes | None:
    """Decompress byte by byte, as the format is described; None for damage."""
    told = at = 0
    while True:
        if at >= min(len(packed), 5):
            return None
        told |= (packed[at] & 127) << 7 * at
        at += 1
        if packed[at - 1] < 128:
            break
    out = bytearray()
    while at < len(packed):
        tag, at = packed[at], at + 1
        kind, upper = tag & 3, tag >> 2
        wide = max(upper - 59, 0) if kind == 0 else (1, 2, 4)[kind - 1]
        if at + wide > len(packed):
            return None
        number, at = int.from_bytes(packed[at : at + wide], "little"), at + wide
        if kind == 0:
            length = number + 1 if wide else upper + 1
            if at + length > len(packed):
                return None
            out += packed[at : at + length]
            at += length
        else:
            length, offset = (4 + upper % 8, tag >> 5 << 8 | number) if kind == 1 else (upper + 1, number)
            if not 0 < offset <= len(out):
                return None
            for _ in range(length):
                out.append(out[-offset])
        if len(out) > size:
            return None
    return bytes(out) if len(out) == size == told else None


def varint(number: int) -> bytes:
    found = b""
    while number >= 128:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def literal(text: bytes, wide: int = 0) -> bytes:
    if not wide:
        return bytes([len(text) - 1 << 2]) + text
    return bytes([59 + wide << 2]) + (len(text) - 1).to_bytes(wide, "little") + text


def copy(length: int, offset: int, kind: int) -> bytes:
    if kind == 1:
        return bytes([offset >> 8 << 5 | length - 4 << 2 | 1, offset & 255])
    return bytes([length - 1 << 2 | kind]) + offset.to_bytes(2 if kind == 2 else 4, "little")


@pytest.mark.parametrize("name", TEXTS)
def test_what_pyarrow_packed_comes_out_again(name: str) -> None:
    text = TEXTS[name]
    packed = pa.compress(text, "snappy", asbytes=True)
    assert unpacked(packed, len(text)) == text == plainly(packed, len(text))
    for size in {0, 1, len(text) - 1, len(text) + 1} - {len(text), -1}:
        assert unpacked(packed, size) is None


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, int]:
    """Return a sound stream of elements of all kinds, some of them long, and how many bytes it holds."""
    parts, size = [], 0
    for _ in range(draw(st.integers(1, 60))):
        kind = draw(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 4])) if size else 0
        if kind == 0:
            text = draw(st.binary(min_size=1, max_size=draw(st.sampled_from([3, 8, 60]))))
            parts.append(literal(text))
            size += len(text)
        elif kind == 4:
            text = bytes(range(256)) * draw(st.integers(1, 3))
            parts.append(literal(text, draw(st.integers(2, 4))))
            size += len(text)
        else:
            length = draw(st.integers(4, 11) if kind == 1 else st.integers(1, 64))
            offset = draw(st.integers(1, min(size, 2047 if kind == 1 else 65_535)))
            parts.append(copy(length, offset, kind))
            size += length
    return varint(size) + b"".join(parts), size


@settings(deadline=None, max_examples=300)
@given(streams(), st.booleans())
def test_every_kind_of_element(stream: tuple[bytes, int], long: bool) -> None:
    packed, size = stream
    if long:  # so that most elements are far from either end
        start = len(varint(size))
        packed, size = varint(size + 3_000) + packed[start:] + literal(b"x" * 3_000, 2), size + 3_000
    assert unpacked(packed, size) == plainly(packed, size) is not None


@pytest.mark.parametrize("name", ["ids", "strings", "two letters", "one letter"])
def test_damage_is_told_as_by_the_plain_decoder(name: str) -> None:
    text = TEXTS[name][:3_000]
    packed, draw = pa.compress(text, "snappy", asbytes=True), random.Random(5)
    verdicts = set()
    for number in range(400):
        damaged = bytearray(packed[: draw.randrange(len(packed))] if number % 4 == 0 else packed)
        for _ in range(draw.choice((1, 1, 3)) if damaged else 0):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 1, 255, draw.randrange(256)))
        found = unpacked(bytes(damaged), len(text))
        assert found == plainly(bytes(damaged), len(text)), number
        verdicts.add(found is None)
    assert True in verdicts
