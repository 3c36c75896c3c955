"""How questions reach a holder: anything with a name that takes bytes and returns bytes."""

from __future__ import annotations

from typing import Protocol

from panstream.federated.holder import Holder

__all__ = ["Channel", "LocalChannel"]


class Channel(Protocol):
    """A way to one holder. ``remote`` channels are asked at the same time, each in a thread."""

    @property
    def name(self) -> str:
        """Return how the run speaks of this holder until it has introduced itself."""

    @property
    def remote(self) -> bool:
        """Return whether asking takes long without using this process."""

    def ask(self, question: bytes) -> bytes:
        """Return the answer's bytes, or raise :class:`panstream.errors.HolderUnreachable`."""


class LocalChannel:
    """A holder in the same process, for tests, experiments and trials."""

    remote = False

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self.name = holder.name

    def ask(self, question: bytes) -> bytes:
        """Ask the holder."""
        return self._holder.answer(question)
