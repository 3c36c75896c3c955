"""Messages to data holders, analysts and machines: an answer or a refusal as bytes, or InvalidBytes; no other error."""

import tempfile
from typing import Any

import fuzzing
import numpy as np

with fuzzing.instrumented():
    from panstream.distributed.two_party.messages import unpack
    from panstream.distributed.two_party.participant import Participant
    from panstream.errors import InvalidBytes
    from panstream.models.federated import Holder
    from panstream.models.federated._answers import read_answer
    from panstream.models.federated._messages import Message
    from panstream.models.networks import Domain, Records
    from panstream.primitives.container import MESSAGE, read_container, to_pieces

_DOMAIN = Domain({"sex": ["f", "m"], "ward": ["a", "b", "c"]})
_HOLDER = Holder("north", Records(_DOMAIN, np.zeros((2, 10), np.uint16)), epsilon=1.0)
_MACHINE = Participant(tempfile.mkdtemp(prefix="panstream-fuzz-"), first=False, stream="s")


def test_one_input(data: bytes) -> None:
    """A line of JSON, then arrays, in a container that fits; and the bytes as they are."""
    header, _, body = data.partition(b"\n")
    for message in (data, b"".join(to_pieces(MESSAGE, header, [body]))):
        _check_container(message)
        Message.decode(_HOLDER.answer(message))
        _check_answer(message)
        unpack(_MACHINE.answer(bytearray(message)))
        _MACHINE._abandon()


def _check_container(data: bytes) -> None:
    read: list[tuple[dict[str, Any], memoryview]] = []
    for checksum in (True, False):
        try:
            read.append(read_container(data, MESSAGE, checksum=checksum))
        except InvalidBytes:
            assert not read, "what has a right checksum can be read without comparing it"


def _check_answer(data: bytes) -> None:
    try:
        answer = read_answer(data, "q")
    except InvalidBytes:
        return
    assert type(read_answer(answer.write("q"), "q")) is type(answer)


if __name__ == "__main__":
    fuzzing.run(test_one_input)
