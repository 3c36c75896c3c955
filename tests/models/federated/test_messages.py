from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.models.federated._messages import Message
from panstream.primitives.container import MESSAGE, to_pieces

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
arrays = npst.arrays(st.sampled_from(["<i8", "<u2"]), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
messages = st.builds(
    Message,
    kind=st.text(max_size=10),
    fields=st.dictionaries(st.text(max_size=5), plain, max_size=4),
    arrays=st.dictionaries(st.text(max_size=5), arrays, max_size=3),
)


@pytest.mark.slow
@settings(deadline=None)
@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    found = Message.decode(message.encode())
    assert (found.kind, found.fields) == (message.kind, message.fields)
    assert list(found.arrays) == list(message.arrays)
    for name, array in message.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.slow
@settings(deadline=None)
@given(messages, st.data())
def test_any_changed_or_missing_byte_is_noticed(message: Message, data: st.DataObject) -> None:
    good = message.encode()
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = bytearray(good)
    flipped[at] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(flipped), good[:at], good + b"\0"):
        with pytest.raises(InvalidBytes):
            Message.decode(bad)


def sealed(header: object, rest: bytes = b"") -> bytes:
    """Bytes with a right checksum around whatever header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"".join(to_pieces(MESSAGE, text, [rest]))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_a_right_checksum_does_not_make_garbage_a_message(garbage: bytes) -> None:
    for bad in (garbage, sealed(garbage)):
        with pytest.raises(InvalidBytes):
            Message.decode(bad)


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "a", "fields": {}},
        {"kind": 1, "fields": {}, "arrays": []},
        {"kind": "a", "fields": {}, "arrays": [], "more": 1},
        {"kind": "a", "fields": {}, "arrays": [["x", "|O", [1]]]},
        {"kind": "a", "fields": {}, "arrays": [["x", "<i8", [-1]]]},
        {"kind": "a", "fields": {}, "arrays": [["x", "<i8", [2**40]]]},
        {"kind": "a", "fields": {}, "arrays": [["x", "<i8", [True]]]},
        {"kind": "a", "fields": {}, "arrays": [["x", "<i8", [0]], ["x", "<i8", [0]]]},
        b'{"kind":"a","fields":{"x":NaN},"arrays":[]}',
        b'{"kind":"a","kind":"b","fields":{},"arrays":[]}',
        b"[" * 100_000,
    ],
    ids=range(11),
)
def test_headers_that_encode_would_not_write_are_refused(header: object) -> None:
    with pytest.raises(InvalidBytes):
        Message.decode(sealed(header))


def test_limits_hold_in_both_directions() -> None:
    message = Message(kind="a", arrays={"x": np.zeros(1000, np.int64)})
    with pytest.raises(InvalidParameter, match="at most 500 bytes"):
        message.encode(limit=500)
    with pytest.raises(InvalidBytes, match="at most 500 bytes"):
        Message.decode(message.encode(), limit=500)
    with pytest.raises(InvalidBytes, match="container version"):
        Message.decode(b"PANMESG2" + message.encode()[8:])
    with pytest.raises(InvalidParameter, match="int64"):
        Message(kind="a", arrays={"x": np.zeros(2, np.complex128)}).encode()


def test_the_bytes_are_stable_for_ever() -> None:
    data = Message(kind="vote", fields={"b": 1, "a": [0.5]}, arrays={"x": np.array([1, -2])}).encode()
    assert hashlib.sha256(data).hexdigest() == "1481a765208c09b9077eebf2890fbba2ca73c1d79cfe4f137f49145ccb819476"
