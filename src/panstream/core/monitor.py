"""Monitor: an algorithm, its state, and fresh entropy for every call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from panstream.core import replay_guard as copies
from panstream.core.algorithm import Algorithm, is_continual
from panstream.core.estimate import Estimate, Estimates
from panstream.core.registry import algorithm_from_header
from panstream.errors import MergeError, NotSupported, PanstreamError
from panstream.primitives import codec
from panstream.primitives.codec import FieldLayout
from panstream.primitives.memory.scratch import clears_registers
from panstream.primitives.memory.secret_memory import move_to_secret_memory
from panstream.primitives.noise import NoiseSource
from panstream.primitives.noise.entropy import random_id
from panstream.privacy.claim import Claim, Refresh, weak_epsilon_warning

StateT = TypeVar("StateT")
OtherT = TypeVar("OtherT")

_MAX_CACHED_PARAMETERS = 1 << 12  # characters of JSON that a monitor caches: a universe may have millions of ids


@runtime_checkable
class _Mergeable(Protocol[OtherT]):
    """An algorithm whose states can be merged."""

    def merge(self, mine: OtherT, other: Any, theirs: OtherT, rng: NoiseSource) -> tuple[Any, OtherT]:
        """Return the merged algorithm and state, or raise MergeError with both inputs unchanged."""


class Monitor(Generic[StateT]):
    """An algorithm, its state, and fresh entropy for every call.

    It cannot be copied. Its bytes can, and copies share its releases.

    Args:
        algorithm: The algorithm and its public parameters.
        state: A stored state of the algorithm; a new one is drawn without it.
        rng: Noise for tests; claims then say that there is no privacy.

    >>> from panstream.algorithms.density import OptBern
    >>> monitor = OptBern(universe=1000, epsilon=1.0).start()
    >>> monitor.update(range(0, 1000, 2))
    >>> estimate = monitor.release()
    >>> 0 <= estimate.value <= 1
    True
    """

    __slots__ = ("_header", "_id", "_published", "_rng", "_state", "algorithm", "last_release")

    @clears_registers
    def __init__(
        self, algorithm: Algorithm[StateT], *, state: StateT | None = None, rng: NoiseSource | None = None
    ) -> None:
        self.algorithm = algorithm
        self.last_release: Estimate | None = None
        self._rng = rng
        self._header: tuple[str, Mapping[str, FieldLayout]] | None = None  # parameters and layout, for ``to_bytes``
        if state is None:
            if text := weak_epsilon_warning(getattr(algorithm, "epsilon", 0.0)):
                warnings.warn(text, stacklevel=4)
            with self._step() as step:
                state = algorithm.initial_state(step)
        move_to_secret_memory(state)
        self._state: StateT | None = state
        self._id = random_id(copies.ID_BYTES)
        self._published = 0

    def __repr__(self) -> str:
        """Show the algorithm and its claim; nothing of the state."""
        claim = self.claim()
        name = type(self.algorithm).__name__
        loss = f"epsilon {claim.epsilon:g} for one {claim.protects}" if claim.is_private else "no privacy"
        return f"<Monitor of {name}: {loss}{', consumed by a merge' if self._state is None else ''}>"

    @property
    def state(self) -> StateT:
        """Return the live state. Reading it counts as an intrusion."""
        if self._state is None:
            raise NotSupported("this monitor was consumed by a merge")
        return self._state

    def claim(self) -> Claim:
        """Return the claim; epsilon is infinite if a test source draws the noise."""
        claim = self.algorithm.claim()
        insecure = self._rng is not None and not self._rng.is_secure
        return claim.without_privacy("drawn from a test source") if insecure else claim

    @clears_registers
    def update(self, *args: Any, **kwargs: Any) -> None:
        """Apply a batch: all of it, or none of it and an error.

        Args:
            args: The input, as the algorithm's `batch` takes it.
            kwargs: Further input.
        """
        self.state  # noqa: B018  (raises if a merge consumed it)
        self._apply(self.algorithm.batch(*args, **kwargs))

    @clears_registers
    def apply(self, batch: Any) -> None:
        """Apply a ``batch`` that ``algorithm.batch`` has checked, and wipe it."""
        self._apply(batch)

    def _apply(self, batch: Any) -> None:
        try:
            with self._step() as rng:
                self.algorithm.update(self.state, batch, rng)
            move_to_secret_memory(self.state)
        finally:
            batch.wipe()

    @clears_registers
    def release(self) -> Estimate:
        """Publish an estimate.

        Raises:
            BudgetExhausted: All paid releases were made, by this state or a copy of it.
        """
        with self._publishing(), self._step() as rng:
            return self._publish(self.algorithm.release(self.state, rng))

    @clears_registers
    def tick(self) -> Estimate:
        """Close the current slot of a continual algorithm and publish."""
        algorithm = self._continual()
        with self._publishing(), self._step() as rng:
            return self._publish(algorithm.tick(self.state, rng))

    @clears_registers
    def tick_many(self, values: Any) -> Estimates:
        """Apply one value per slot and publish after each; faster than `update` and `tick` in turn.

        Args:
            values: A value per slot.
        """
        algorithm = self._continual()
        with self._publishing(), self._step() as rng:
            estimates: Estimates = algorithm.tick_many(self.state, values, rng)
            move_to_secret_memory(self.state)
            if not rng.is_secure:
                estimates = replace(estimates, claim=self.claim())
            return estimates

    @clears_registers
    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Refresh the state after a known intrusion, if that makes another copy safe.

        An algorithm that ``freezes`` publishes the current state. If a row was applied since the copy, that would be a
        second copy of the same bits, which has no finite loss: the state is not changed, and the copy counts as the
        unannounced one that the claim covers. Algorithms that add noise are refreshed in any case.

        Args:
            rows_since_copy: Whether a row was applied since the state was copied, or since the first of several copies
                after the last refresh; None if that is not known.

        Returns:
            Whether the copy is covered as an announced one, and if not, why.

        Raises:
            NotSupported: The algorithm cannot be refreshed, or all refreshes that were paid for are used up.
        """
        if self.algorithm.freezes and self.claim().intrusions.announced and rows_since_copy is not False:
            return Refresh.too_late(rows_since_copy)
        with self._step() as rng:
            self.algorithm.refresh(self.state, rng)
        move_to_secret_memory(self.state)
        return Refresh(covered=True)

    @clears_registers
    def merge(self, other: Monitor[StateT]) -> Monitor[StateT]:
        """Return the merged monitor; both inputs are consumed.

        Args:
            other: A monitor of the same algorithm.
        """
        if not isinstance(self.algorithm, _Mergeable):
            raise NotSupported(f"{type(self.algorithm).__name__} states cannot be merged")
        if other is self:
            raise MergeError("a monitor cannot be merged with itself")
        mine = self.state
        theirs = other.state
        if self._shares:
            copies.require_not_replayed((self._id, self._published), (other._id, other._published))
        with self._step() as rng:
            algorithm, state = self.algorithm.merge(mine, other.algorithm, theirs, rng)
        if self._shares:
            copies.retire(self._id, other._id)
        self._state = other._state = None
        return Monitor(algorithm, state=state, rng=self._rng)

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Return the state as bytes. A stored copy of the state is an intrusion: store one, and replace it in place.

        Copies share this monitor's releases: a second answer drawn from a copy would not be paid for. This process
        rejects it; the caller must make sure that no other process draws one. So store the bytes again after every
        release. Omit the ``checksum`` only where a container authenticates the bytes.
        """
        header = self._header
        if header is None:
            header = codec.to_json(self.algorithm.parameters()), self.algorithm.layout()
            self._header = header if len(header[0]) <= _MAX_CACHED_PARAMETERS else None
        parameters, layout = header
        name = type(self.algorithm).__name__
        identity = self._id, self._published
        return codec.encode(name, parameters, self.state, layout, identity=identity, checksum=checksum)

    @classmethod
    def from_bytes(cls, data: bytes, *, rng: NoiseSource | None = None, verify_checksum: bool = True) -> Self:
        """Restore a monitor from `to_bytes`, with its id and its count of releases.

        Args:
            data: The stored bytes.
            rng: Noise for tests; claims then say that there is no privacy.
            verify_checksum: Whether the bytes end with a checksum.
        """
        header, _ = codec.read_header(data, checked=verify_checksum)
        algorithm = algorithm_from_header(header)
        identity = codec.read_identity(header)
        state = codec.decode(data, algorithm.state_type, algorithm.layout(), checked=False)
        monitor = cls(algorithm, state=state, rng=rng)
        monitor._id, monitor._published = identity
        return monitor

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled: two monitors would release one state twice."""
        raise NotSupported("a monitor cannot be copied or pickled; to_bytes() stores it, and copies share its releases")

    @property
    def _shares(self) -> bool:
        """Return whether releases are shared with copies: not with test sources, whose claims are infinite."""
        return self._rng is None or self._rng.is_secure

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        """Count one publication of this state and of all its copies, unless the block raises a PanstreamError."""
        previous_count = self._published
        if self._shares:
            copies.record_publication(self._id, previous_count)
        try:
            self._published += 1
            yield
        except PanstreamError:
            self._published = previous_count
            if self._shares:
                copies.undo_publication(self._id, previous_count)
            raise

    def _step(self) -> NoiseSource:
        return self._rng if self._rng is not None else NoiseSource()

    def _continual(self) -> Any:
        if not is_continual(self.algorithm):
            raise NotSupported(f"{type(self.algorithm).__name__} does not release at ticks; call release()")
        return self.algorithm

    def _publish(self, estimate: Estimate) -> Estimate:
        if self._rng is not None and not self._rng.is_secure:
            estimate = replace(estimate, claim=estimate.claim.without_privacy("drawn from a test source"))
        self.last_release = estimate
        move_to_secret_memory(self.state)
        return estimate
