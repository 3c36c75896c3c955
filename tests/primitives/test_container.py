"""The container of states and messages: what was written is read, and nothing else is."""

import math

import pytest

from panstream.distributed.two_party.messages import pack, unpack
from panstream.errors import InvalidBytes, TwoPartyError
from panstream.primitives.container import MESSAGE, STATE, read_container, to_pieces


def written(header: bytes = b'{"a":1}', body: bytes = b"body", *, checksum: bool = True) -> bytes:
    return b"".join(to_pieces(MESSAGE, header, [body], checksum=checksum))


@pytest.mark.parametrize("checksum", [True, False])
def test_header_and_body_are_read_where_they_lie(checksum: bool) -> None:
    data = bytearray(written(checksum=checksum))
    header, body = read_container(data, MESSAGE, checksum=checksum)
    assert (header, bytes(body)) == ({"a": 1}, b"body")
    data[-33] = ord("z")
    assert bytes(body) == b"bodz"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (written()[:43], "cut short"),
        (written().replace(MESSAGE, STATE), "of this kind"),
        (written().replace(MESSAGE, b"PANMESG2"), "container version"),
        (written()[:-1] + b"\0", "checksum"),
        (written(checksum=False), "checksum"),
        (written().replace(b"body", b"bodz"), "checksum"),
        (written(b'{"a":"12345678901234567890"}'), "too long"),
        (written(b"[]"), "JSON object"),
        (written(b'{"a":1,"a":1}'), "duplicate keys"),
        (written(b'{"a":{"b":1,"b":1}}'), "duplicate keys"),
        (written(b'{"a":NaN}'), "cannot be read"),
        (written(b'{"a":[-1e999]}'), "cannot be read"),
        (written(b'{"a":1} '[:-2]), "cannot be read"),
        (written(b"\xff{}"), "cannot be read"),
        (written("{}".encode("utf-16")), "cannot be read"),
    ],
)
def test_anything_else_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidBytes, match=words):
        read_container(data, MESSAGE, max_header=25)


def test_headers_that_are_nested_without_end_are_refused() -> None:
    with pytest.raises(InvalidBytes, match="cannot be read"):
        read_container(written(b'{"a":' + b"[" * 100_000), MESSAGE)


def test_infinite_numbers_are_read_only_where_they_are_allowed() -> None:
    header, _ = read_container(written(b'{"epsilon":Infinity}'), MESSAGE, constants=True)
    assert header == {"epsilon": math.inf}


@pytest.mark.parametrize("data", [b"", written()[:20], written(b"[]"), written(b'{"verb":1,"verb":2}')])
def test_machines_refuse_it_as_a_message_of_another_release(data: bytes) -> None:
    assert unpack(pack({"verb": "status"}))[0] == {"verb": "status"}
    with pytest.raises(TwoPartyError, match="same release"):
        unpack(bytearray(data))
