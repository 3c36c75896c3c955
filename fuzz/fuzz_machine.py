"""Messages to one of two machines: an answer or a refusal, both as bytes, and never an error."""

import tempfile

import fuzzing

with fuzzing.instrumented():
    from panstream.distributed.two_party.messages import unpack
    from panstream.distributed.two_party.participant import Machine

_MACHINE = Machine(tempfile.mkdtemp(prefix="panstream-fuzz-"), first=False, stream="s")


def test_one_input(data: bytes) -> None:
    unpack(_MACHINE.answer(bytearray(data)))
    _MACHINE._abandon()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
