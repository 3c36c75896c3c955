"""The protocol of all algorithms.

An algorithm is a frozen value of public parameters. Its state is a separate value, whose fields are declared with
``public``, ``published``, ``noised`` or ``noise`` from `panstream.primitives.codec`. Randomness is in neither: a noise
source is passed in for one step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, overload, runtime_checkable

from panstream.core.estimate import Estimate, Estimates
from panstream.errors import BudgetExhausted
from panstream.primitives.codec import FieldLayout
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.person_loss import WindowLoss

if TYPE_CHECKING:
    from panstream.core.monitor import Monitor

StateT = TypeVar("StateT")
SeenT = TypeVar("SeenT", contravariant=True)


_REQUIRED_ARGUMENTS = {"update": 3, "release": 2, "refresh": 2}  # without self


def _require_state_argument(method: Callable[..., Any], argument_count: int) -> Callable[..., Any]:
    """Wrap a method so that a call with a monitor's arguments raises an error that suggests a monitor."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) < argument_count:
            raise not_started_error(self, method.__name__)
        return method(self, *args, **kwargs)

    checked.__dict__["checked"] = True
    return checked


def not_started_error(owner: object, name: str) -> AttributeError:
    """Return the error for calling on an algorithm what only its monitor can do."""
    from panstream.core.monitor import Monitor

    kind = type(owner).__name__
    hint = f"; a monitor has: monitor = {kind}(...).start()" if hasattr(Monitor, name) else ""
    return AttributeError(f"{kind} holds no data and has no {name!r}{hint}")


def proof_reference(algorithm: Any) -> str:
    """Return page and theorem of the proof of an algorithm's claim; empty if there is no valid proof."""
    theorem = f", {algorithm.theorem}" if algorithm.theorem else ""
    return f"docs/proofs/{algorithm.proof}{theorem}" if algorithm.proof else ""


class Algorithm(Protocol[StateT]):
    """A frozen dataclass of public parameters with the verbs start, update, release, refresh.

    ``batch`` checks input against the public parameters and raises before the state is changed; ``update`` then cannot
    fail because of the data. A subclass defines ``initial_state`` instead of ``start``.
    """

    state_type: ClassVar[type[Any]]
    proof: ClassVar[str] = ""  # the page of docs/proofs that proves the claim; empty if there is no valid proof
    theorem: ClassVar[str] = ""  # the theorem of that page
    freezes: ClassVar[bool] = False
    """Whether ``refresh`` freezes the current state instead of adding noise: the attacker copied that state only if no
    row was applied since."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, argument_count in _REQUIRED_ARGUMENTS.items():
            method = cls.__dict__.get(name)
            if method is not None and not hasattr(method, "checked"):  # dataclass(slots=True) creates the class twice
                setattr(cls, name, _require_state_argument(method, argument_count))

    def claim(self) -> Claim:
        """Return the privacy claim for the whole lifetime of a state."""

    def window_loss(self) -> WindowLoss:
        """Return what one unit loses to this state with and without a copy of it; unless proved otherwise, the same."""
        return WindowLoss.of_claim(self.claim())

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return kind, shape and range of each field of the state."""

    def initial_state(self, rng: NoiseSource) -> StateT:
        """Return a new state, with noise already in it.

        Args:
            rng: Source of the noise.
        """

    def batch(self, *args: Any, **kwargs: Any) -> Any:
        """Return checked input for ``update``, or raise InvalidBatch with a row number, never an item.

        Its ``wipe()`` overwrites the copies that panstream made, not the caller's own arrays.

        Args:
            args: The input, as the algorithm takes it.
            kwargs: Further input.
        """

    def update(self, state: StateT, batch: Any, rng: NoiseSource) -> None:
        """Apply one batch to the state, in place: one atomic step.

        Args:
            state: The state, which is changed.
            batch: What `batch` has returned.
            rng: Source of the noise.
        """

    def release(self, state: StateT, rng: NoiseSource) -> Estimate:
        """Draw release noise, return the estimate, and count the release.

        Args:
            state: The state.
            rng: Source of the noise.
        """

    def refresh(self, state: StateT, rng: NoiseSource) -> None:
        """Restore the guarantee for one more copy after an announced intrusion.

        Args:
            state: The state, which is changed.
            rng: Source of the noise.
        """

    def error_bound(self, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``."""

    @overload
    def start(self) -> Monitor[StateT]: ...
    @overload
    def start(self, rng: NoiseSource) -> StateT: ...
    def start(self, rng: NoiseSource | None = None) -> Monitor[StateT] | StateT:
        """Return a running `Monitor`; with a noise source, only the state.

        Args:
            rng: Noise for tests; the monitor's claims then say that there is no privacy.
        """
        if rng is not None:
            return self.initial_state(rng)
        from panstream.core.monitor import Monitor

        return Monitor(self)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild this value."""
        return {declared.name: getattr(self, declared.name) for declared in fields(self) if declared.init}  # type: ignore[arg-type]

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Rebuild an algorithm from its stored ``parameters``."""
        return cls(**parameters)


@runtime_checkable
class Continual(Protocol[SeenT]):
    """An algorithm that releases at every tick."""

    def tick(self, state: SeenT, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far.

        Args:
            state: The state, which is changed.
            rng: Source of the noise.
        """

    def tick_many(self, state: SeenT, values: Any, rng: NoiseSource) -> Estimates:
        """Take one value per slot, close each, and return all estimates.

        Args:
            state: The state, which is changed.
            values: A value per slot.
            rng: Source of the noise.
        """


def is_continual(algorithm: object) -> bool:
    """Return whether an algorithm releases at every tick."""
    return _releases_at_ticks(type(algorithm))  # type: ignore[arg-type]  # types are hashable


@functools.cache
def _releases_at_ticks(kind: type[object]) -> bool:  # cached: issubclass of a protocol compares all methods
    return issubclass(kind, Continual)


def consume_release(released: int, allowed: int) -> int:
    """Return the new count of releases, or raise BudgetExhausted; depends on calls only, never on data."""
    if 0 <= allowed <= released:
        raise BudgetExhausted(
            f"no paid release is left (releases={allowed}); build the algorithm with more, or read last_release"
        )
    return released + 1
