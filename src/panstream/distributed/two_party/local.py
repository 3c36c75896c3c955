"""Both machines in this process: for tests and trials. One host is one machine, so nothing is promised."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from panstream.distributed.two_party.backend import Line
from panstream.distributed.two_party.participant import Participant


class InProcessTwoPartyTransport:
    """Two machines whose directories are below ``directory``."""

    def __init__(self, directory: Path, stream: str) -> None:
        self.second = Participant(directory / "b", first=False, stream=stream)
        self.first = Participant(directory / "a", first=True, stream=stream, peer=lambda data: self.second.answer(data))

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        """Yield a way to both."""
        yield self.ask

    def ask(self, first: bool, message: bytearray) -> bytearray:
        """Let a machine answer."""
        return (self.first if first else self.second).answer(message)

    def close(self) -> None:
        """Let go of both directories."""
        self.first.close()
        self.second.close()
