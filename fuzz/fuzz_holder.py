"""Questions to a data holder: an answer or a refusal, both as bytes, and never an error."""

import hashlib
import struct

import fuzzing
import numpy as np

with fuzzing.instrumented():
    from panstream.models.federated import Holder
    from panstream.models.federated._messages import Message
    from panstream.models.networks import Domain, Records

_DOMAIN = Domain({"sex": ["f", "m"], "ward": ["a", "b", "c"]})
_HOLDER = Holder("north", Records(_DOMAIN, np.zeros((2, 10), np.uint16)), epsilon=1.0)
_START = Message(kind="", fields={}, arrays={}).encode()[:6]


def test_one_input(data: bytes) -> None:
    """A line of JSON, then arrays; length and checksum are made to fit."""
    header, _, arrays = data.partition(b"\n")
    body = _START + struct.pack("<I", len(header)) + header + arrays
    Message.decode(_HOLDER.answer(body + hashlib.sha256(body).digest()))
    Message.decode(_HOLDER.answer(data))


if __name__ == "__main__":
    fuzzing.run(test_one_input)
