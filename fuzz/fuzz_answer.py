"""Answers of data holders, as an analyst reads them: answers, or a refusal."""

import hashlib
import struct

import fuzzing

with fuzzing.instrumented():
    from panstream.errors import InvalidBytes
    from panstream.models.federated._answers import read_answer
    from panstream.models.federated._messages import Message

_START = Message(kind="", fields={}, arrays={}).encode()[:6]


def test_one_input(data: bytes) -> None:
    """A line of JSON, then arrays; length and checksum are made to fit."""
    header, _, arrays = data.partition(b"\n")
    body = _START + struct.pack("<I", len(header)) + header + arrays
    for whole in (data, body + hashlib.sha256(body).digest()):
        try:
            answer = read_answer(whole, "q")
        except InvalidBytes:
            continue
        assert type(read_answer(answer.write("q"), "q")) is type(answer)


if __name__ == "__main__":
    fuzzing.run(test_one_input)
