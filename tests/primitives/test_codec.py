"""Bytes: round trips for any state, and nothing but InvalidBytes for anything else."""

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from panstream import Monitor
from panstream.algorithms.density import OptBern
from panstream.core.algorithm import Algorithm
from panstream.core.registry import find_algorithm, register
from panstream.errors import InvalidBytes, InvalidParameter
from panstream.primitives import codec
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.noise import SeededSource
from panstream.primitives.packed_bits import pack_bits, unpack_bits
from panstream.privacy import Claim


@dataclass(slots=True)
class State:
    bits: Any = noised()
    counts: Any = noised()
    words: Any = noised()
    ticks: int = public()


@pytest.mark.slow
@given(
    bits=nps.arrays(np.uint8, st.integers(0, 70), elements=st.integers(0, 1)),
    counts=nps.arrays(np.int64, nps.array_shapes(max_dims=2, min_side=0, max_side=4)),
    words=nps.arrays(np.uint64, st.integers(0, 5)),
    ticks=st.integers(-(2**63), 2**63 - 1),
    parameters=st.dictionaries(
        st.text(max_size=5), st.one_of(st.integers(), st.text(), st.floats(allow_nan=False), st.binary())
    ),
)
def test_round_trip(bits: Any, counts: Any, words: Any, ticks: int, parameters: dict[str, Any]) -> None:
    layout = {
        "bits": FieldLayout("bits", (None,)),
        "counts": FieldLayout("i8", (None,) * counts.ndim),
        "words": FieldLayout("u8", (None,)),
        "ticks": FieldLayout("int"),
    }
    data = codec.encode("Thing", parameters, State(bits=bits, counts=counts, words=words, ticks=ticks), layout)
    header, _ = codec.read_header(data)
    assert header["algorithm"] == "Thing"
    assert header["parameters"] == parameters
    again = codec.decode(data, State, layout)
    for name in ("bits", "counts", "words"):
        assert np.array_equal(getattr(again, name), locals()[name])
        assert getattr(again, name).flags.writeable or getattr(again, name).size == 0
    assert again.ticks == ticks


def sealed(header: bytes, payload: bytes = b"", magic: bytes = b"PANSTRM1") -> bytes:
    body = magic + struct.pack("<I", len(header)) + header + payload
    return body + hashlib.sha256(body).digest()


GOOD = Monitor(OptBern(universe=20, epsilon=1.0), rng=SeededSource(2)).to_bytes()
HEADER = json.loads(GOOD[12 : 12 + struct.unpack_from("<I", GOOD, 8)[0]])
PAYLOAD = GOOD[12 + struct.unpack_from("<I", GOOD, 8)[0] : -32]


def altered(**changes: Any) -> bytes:
    return sealed(json.dumps({**HEADER, **changes}).encode(), PAYLOAD)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not panstream bytes"),
        (GOOD[:-1], "checksum"),
        (sealed(b"{", PAYLOAD), "header cannot be read"),
        (sealed(b"[]", PAYLOAD), "header cannot be read"),
        (sealed(b"[" * 100_000), "header cannot be read"),
        (sealed(json.dumps(HEADER).replace("{", '{"format": 2, ', 1).encode(), PAYLOAD), "without duplicate keys"),
        (altered(format=3), "format version 3 is not known"),
        (altered(id=None), "which state this is"),
        (altered(id="00" * 15), "which state this is"),
        (altered(published="-1"), "which state this is"),
        (altered(published=3), "which state this is"),
        (altered(algorithm="Nothing"), "no algorithm named 'Nothing'"),
        (altered(algorithm=7), "names no algorithm"),
        (altered(parameters={"universe": 20, "epsilon": -1.0}), "parameters are not those"),
        (altered(parameters={"nonsense": 1}), "parameters are not those"),
        (altered(parameters={"universe": 21, "epsilon": 1.0}), "shape"),
        (altered(fields=[]), "fields are not those"),
        (altered(fields=None), "fields are not those"),
        (altered(fields=[["bits", "bits", [20]], ["frozen", "bits", [-1, 20]], ["released", "int", []]]), "shape"),
        (altered(fields=[["bits", "i8", [20]], ["frozen", "bits", [0, 20]], ["released", "int", []]]), "shape"),
        (sealed(json.dumps(HEADER).encode(), PAYLOAD + b"x"), "more bytes"),
        (sealed(json.dumps(HEADER).encode(), PAYLOAD[:-9]), "cut short"),
        (sealed(json.dumps(HEADER).encode(), PAYLOAD[:-8] + struct.pack("<q", 2)), "outside its range"),
        (sealed(json.dumps(HEADER).encode(), PAYLOAD, b"PANSTRM7"), "container version"),
        (b"PANSTRM1" + struct.pack("<I", 2**31) + b"x" * 40, "checksum"),
    ],
)
def test_refused_with_advice(data: bytes, words: str) -> None:
    with pytest.raises(InvalidBytes, match=words):
        Monitor.from_bytes(data)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    for candidate in (data, b"PANSTRM1" + data, sealed(data), sealed(json.dumps(HEADER).encode(), data)):
        try:
            Monitor.from_bytes(candidate)
        except InvalidBytes:
            continue
        assert candidate[:-32].endswith(PAYLOAD) or len(data) == len(PAYLOAD)


@given(st.binary(max_size=200))
def test_garbage_without_a_checksum_is_refused(data: bytes) -> None:
    for candidate in (data, b"PANSTRM1" + data, sealed(data), sealed(json.dumps(HEADER).encode(), data)):
        try:
            Monitor.from_bytes(candidate, verify_checksum=False)
        except InvalidBytes:
            continue
        assert candidate[:-32].endswith(PAYLOAD) or len(data) == len(PAYLOAD)


def test_what_has_no_checksum_is_read_only_where_that_is_asked_for() -> None:
    bare = Monitor.from_bytes(GOOD).to_bytes(checksum=False)
    assert bare == GOOD[:-32] + bytes(32)
    for data in (bare, GOOD):
        assert Monitor.from_bytes(data, verify_checksum=False).to_bytes() == GOOD
    with pytest.raises(InvalidBytes, match="checksum"):
        Monitor.from_bytes(bare)


def test_golden_file_of_version_1_is_read_for_ever() -> None:
    from pathlib import Path

    data = Path(__file__).parents[1].joinpath("golden", "optbern-1.bin").read_bytes()
    monitor = Monitor.from_bytes(data)
    assert monitor.algorithm == OptBern(universe=100, epsilon=1.0, sample=40, releases=2, key=9)
    assert "".join(map(str, unpack_bits(monitor.state.bits, 40))) == "1100111101100110001100100010100101101100"
    assert monitor.state.released == 1
    assert monitor.to_bytes() == data


def test_your_own_algorithm_can_be_registered() -> None:
    class Mine(OptBern):
        pass

    assert register(register(Mine)) is find_algorithm("Mine")
    assert type(Monitor.from_bytes(Mine(universe=5, epsilon=1.0).start().to_bytes()).algorithm) is Mine
    with pytest.raises(InvalidParameter, match="already registered"):
        register(type("OptBern", (OptBern,), {}))


def test_what_is_no_algorithm_is_refused_at_once() -> None:
    """With what it lacks, not when the first state is read."""
    for thing in (len, int, "OptBern", OptBern(universe=5, epsilon=1.0)):
        with pytest.raises(InvalidParameter, match="must be a class that derives from Algorithm"):
            register(thing)  # type: ignore[type-var, arg-type]

    class Half(Algorithm[object]):
        state_type = int

        def claim(self) -> Claim:
            return Claim(epsilon=1.0, unit="user")

    with pytest.raises(InvalidParameter, match="Half must define layout, initial_state, batch, update, release"):
        register(Half)
    Open = type("Open", (OptBern,), {})
    Open.__dataclass_params__ = type("Params", (), {"frozen": False})  # type: ignore[attr-defined]
    with pytest.raises(InvalidParameter, match="Open must be a frozen dataclass"):
        register(Open)


@pytest.mark.parametrize("width", [1, 8, 13, 16])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_packed_rows_are_stored_as_plain_bits_are(width: int, rows: int) -> None:
    """Memory holds each row in bytes of its own, a file holds them without a gap: as it did when memory held bytes
    0 and 1.
    """

    @dataclass
    class Rows:
        one: Any
        all: Any

    cells = np.random.default_rng(width).integers(0, 2, (rows, width)).astype(np.uint8)
    first = np.arange(width).astype(np.uint8) % 2
    plain = {"one": FieldLayout("bits", (width,)), "all": FieldLayout("bits", (None, width))}
    layout = {"one": FieldLayout("packed", (width,)), "all": FieldLayout("packed", (None, width))}
    data = codec.encode("Rows", {}, Rows(pack_bits(first), pack_bits(cells)), layout)
    assert data == codec.encode("Rows", {}, Rows(first, cells), plain)
    again = codec.decode(data, Rows, layout)
    assert again.one.tolist() == pack_bits(first).tolist()
    assert again.all.tolist() == pack_bits(cells).tolist()
    assert again.all.shape == (rows, (width + 7) // 8)


def test_bits_beyond_the_last_are_refused() -> None:
    @dataclass
    class One:
        bits: Any

    layout = {"bits": FieldLayout("packed", (3,))}
    for value in (0b111, 0b1111, 0b10000000):
        data = codec.encode("One", {}, One(np.array([value], np.uint8)), layout)
        if value == 0b111:
            assert codec.decode(data, One, layout).bits.tolist() == [value]
        else:
            with pytest.raises(InvalidBytes, match="field bits holds a value outside its range"):
                codec.decode(data, One, layout)
