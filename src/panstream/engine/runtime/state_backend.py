"""Where the states of running queries are held: in this process, or wherever a backend puts them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import NotSupported
from panstream.primitives import codec
from panstream.primitives.codec import FieldLayout, public
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Refresh

Slot = tuple[int, int]  # window, group


def state_name(query: str, slot: Slot) -> str:
    """Return the name of one state: ``window/group/query``."""
    return f"{slot[0]}/{slot[1]}/{query}"


@dataclass(slots=True)
class RemoteStateRecord:
    """What an engine stores of a state that is held elsewhere: its releases, and the step that must be reached."""

    released: int = public()
    step: int = public()

    def to_bytes(self, algorithm: Any, *, checked: bool = True) -> bytes:
        """Return the record of an algorithm's state."""
        return codec.encode(type(algorithm).__name__, algorithm.parameters(), self, _LAYOUT, checksum=checked)

    @classmethod
    def from_bytes(cls, data: bytes) -> RemoteStateRecord:
        """Return the record that was stored, which the store has authenticated."""
        record: RemoteStateRecord = codec.decode(data, cls, _LAYOUT, checked=False)
        return record


_LAYOUT = {"released": FieldLayout("int", at_least=0), "step": FieldLayout("int", at_least=0)}


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer whose numbers can be read once its step is durable: of a state that two machines hold.

    ``opened`` returns them; it raises KeyError before that.
    """

    algorithm: Any
    number: int
    opened: Callable[[], list[int]]

    def estimate(self) -> Estimate:
        """Return the state's own answer."""
        estimate: Estimate = self.algorithm.estimate(self.opened(), self.number)
        return estimate

    def at(self, what: Any) -> Estimate:
        """Return another answer that is made of the same numbers."""
        estimate: Estimate = self.algorithm.at((self.opened(), self.number), what)
        return estimate


class StateHandle(Protocol):
    """A running state as the engine sees it; `Monitor` is one."""

    @property
    def algorithm(self) -> Any:
        """Return the algorithm whose state it is."""

    def apply(self, batch: Any) -> None:
        """Take a checked batch, and wipe it."""

    def release(self) -> Estimate | PendingAnswer:
        """Draw an answer."""

    def tick(self) -> Estimate | PendingAnswer:
        """Close the current slot of a continual algorithm and draw its answer."""

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Refresh the state after an announced intrusion, unless it would have to be frozen and rows came since."""

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Return what the engine must store to go on with it; without ``checksum``, without a checksum."""


class StateBackend(Protocol):
    """Starts and restores states, and is told what the engine is about to do with them."""

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Return a fresh state."""

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Return the state that ``to_bytes`` described."""

    def begin(self, producer: str | None, sequence: int) -> None:
        """Hear that a micro-batch is about to be applied."""

    def end_batch(self) -> None:
        """Hear that the micro-batch is complete."""

    def flush(self) -> None:
        """Make durable what was applied, wherever it is held, and let pending answers be read: the engine is about to
        commit.
        """

    def drop(self, gone: Collection[tuple[str, Slot]]) -> None:
        """Hear that states are no longer needed and that this is durable."""


class _StoredMonitor(Monitor[Any]):
    """A monitor whose releases the store counts: what was drawn and not committed was never published, and is drawn
    again.

    The log of releases refuses another answer under a number that it has.
    """

    __slots__ = ()

    @property
    def _shares(self) -> bool:
        return False


class LocalBackend:
    """The usual place: a monitor each, in this process, stored with everything else."""

    def __init__(self, rng: NoiseSource | None = None) -> None:
        self._rng = rng

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Return a monitor."""
        if isinstance(algorithm, SharedStatistic):
            raise NotSupported("this stream is kept by two machines: open it with panstream.distributed.two_party")
        return _StoredMonitor(algorithm, rng=self._rng)

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Return the stored monitor."""
        return _StoredMonitor.from_bytes(data, rng=self._rng, verify_checksum=False)  # the store has authenticated it

    def begin(self, producer: str | None, sequence: int) -> None:
        """Do nothing."""

    def end_batch(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: states are stored by the commit."""

    def drop(self, gone: Collection[tuple[str, Slot]]) -> None:
        """Do nothing: they are gone already."""
