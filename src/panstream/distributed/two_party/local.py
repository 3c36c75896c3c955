"""Both participants in this process, for tests and trials: an intrusion into it sees both shares, so no claim holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from panstream.distributed.two_party.backend import Line
from panstream.distributed.two_party.participant import Participant


class InProcessTwoPartyTransport:
    """Two participants whose stores are ``directory / "a"`` and ``directory / "b"``.

    Args:
        directory: Folder of both stores.
        stream: Name of the stream.
    """

    def __init__(self, directory: Path, stream: str) -> None:
        self.second = Participant(directory / "b", first=False, stream=stream)
        self.first = Participant(directory / "a", first=True, stream=stream, peer=lambda data: self.second.answer(data))

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        """Yield a function that sends a message to a participant and returns its answer."""
        yield self.ask

    def ask(self, first: bool, message: bytearray) -> bytearray:
        """Return a participant's answer to a message.

        Args:
            first: Whether the first participant is asked.
            message: The message.
        """
        return (self.first if first else self.second).answer(message)

    def close(self) -> None:
        """Close both participants."""
        self.first.close()
        self.second.close()
