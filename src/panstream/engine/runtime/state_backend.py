"""Where the states of running queries are held: in this process, on shards, or as shares on two machines."""

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
    """What an engine stores of a remote state: its number of releases, and the step that the remote must have."""

    released: int = public()
    step: int = public()

    def to_bytes(self, algorithm: Any, *, checked: bool = True) -> bytes:
        """Serialize the record, with the algorithm's name and parameters."""
        return codec.encode(type(algorithm).__name__, algorithm.parameters(), self, _LAYOUT, checksum=checked)

    @classmethod
    def from_bytes(cls, data: bytes) -> RemoteStateRecord:
        """Read a stored record; it has no checksum to verify, since the store authenticates its content."""
        record: RemoteStateRecord = codec.decode(data, cls, _LAYOUT, checked=False)
        return record


_LAYOUT = {"released": FieldLayout("int", at_least=0), "step": FieldLayout("int", at_least=0)}


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """A release of a state that two machines hold as shares.

    ``opened`` returns the reconstructed numbers, and raises KeyError until the release's step is durable.
    """

    algorithm: Any
    number: int
    opened: Callable[[], list[int]]

    def estimate(self) -> Estimate:
        """Return the estimate of the state's own statistic."""
        estimate: Estimate = self.algorithm.estimate(self.opened(), self.number)
        return estimate

    def at(self, what: Any) -> Estimate:
        """Return the estimate of another statistic of the same numbers, such as a second quantile."""
        estimate: Estimate = self.algorithm.at((self.opened(), self.number), what)
        return estimate


class StateHandle(Protocol):
    """A running state as the engine sees it; `Monitor` is one."""

    @property
    def algorithm(self) -> Any:
        """Return the algorithm whose state it is."""

    def apply(self, batch: Any) -> None:
        """Apply a validated batch, and wipe it."""

    def release(self) -> Estimate | PendingAnswer:
        """Draw an answer of a one-shot algorithm."""

    def tick(self) -> Estimate | PendingAnswer:
        """Close the current slot of a continual algorithm and draw its answer."""

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Refresh the state after an announced intrusion, unless it would have to be frozen and rows came since."""

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Serialize what the engine must store to continue with the state."""


class StateBackend(Protocol):
    """Creates and restores states; the engine notifies it of the steps of a batch and of a commit."""

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Create a state."""

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Restore the state that ``to_bytes`` serialized."""

    def begin(self, producer: str | None, sequence: int) -> None:
        """Called before a micro-batch is applied."""

    def end_batch(self) -> None:
        """Called when all queries have applied the micro-batch."""

    def flush(self) -> None:
        """Make remote states durable and pending answers readable; called before the engine commits."""

    def drop(self, closed_slots: Collection[tuple[str, Slot]]) -> None:
        """Delete states that the last commit, which is durable, no longer contains."""


class _StoredMonitor(Monitor[Any]):
    """A monitor whose releases are counted by the store.

    A release that was drawn but not committed was never published and may be drawn again; the release log rejects a
    second value under the same number. So the check against copies of a published state is not needed.
    """

    __slots__ = ()

    @property
    def _shares(self) -> bool:
        return False


class LocalBackend:
    """States in this process, one monitor each, stored with the checkpoint."""

    def __init__(self, rng: NoiseSource | None = None) -> None:
        self._rng = rng

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Create a monitor."""
        if isinstance(algorithm, SharedStatistic):
            raise NotSupported("this stream is held by two machines: open it with panstream.distributed.two_party")
        return _StoredMonitor(algorithm, rng=self._rng)

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Restore a monitor."""
        return _StoredMonitor.from_bytes(data, rng=self._rng, verify_checksum=False)  # the store has authenticated it

    def begin(self, producer: str | None, sequence: int) -> None:
        """Do nothing."""

    def end_batch(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: states are stored by the commit."""

    def drop(self, closed_slots: Collection[tuple[str, Slot]]) -> None:
        """Do nothing: dropped monitors are not in the commit."""
