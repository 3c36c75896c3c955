"""A statistic on secret shares: the dense update of a batch, the rule of its shares, and the decoding of an answer.

It is a frozen value of public parameters, like an algorithm, and takes the same batches. It has no state of its own:
its cells are exact, so a state on one machine would reveal every user to an attacker who copies it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from panstream.algorithms.secret_shared.rules import Rule
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.core.estimate import Estimate
from panstream.errors import NotSupported
from panstream.primitives.codec import FieldLayout
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim


@runtime_checkable
class SharedStatistic(Protocol):
    """Public parameters and the rules of one statistic whose state two machines hold as shares."""

    kind: ClassVar[str]  # name of the rule, as it is stored
    proof: ClassVar[str] = "two-machines.md"
    theorem: ClassVar[str] = "Theorem"

    @abstractmethod
    def claim(self) -> Claim:
        """Return the claim, which covers any number of copies of one machine at a time."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """Return the rule by which the machines hold and update their shares."""

    @abstractmethod
    def batch(self, *args: Any, **kwargs: Any) -> Any:
        """Return checked input, or raise InvalidBatch by row, as on one machine."""

    @abstractmethod
    def empty_buffer(self) -> Dealt:
        """Return the buffer of a step without rows."""

    @abstractmethod
    def accumulate(self, change: Dealt, batch: Any, scratch: Scratch) -> None:
        """Add a checked batch to the buffer of a step."""

    @abstractmethod
    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return a buffer in the form that the rule deals; ``fresh`` in the step that starts the state."""

    @abstractmethod
    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the estimate from the reconstructed numbers of the ``number``-th answer of this state."""

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild this value."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of one machine's share, whose bytes are uniform by themselves."""
        return {"cells": FieldLayout("u1", (self.rule.size,))}

    def start(self) -> Any:
        """Raise NotSupported: a single machine would hold the exact state."""
        raise NotSupported(
            f"{type(self).__name__} needs two machines: name them in [stream] machines, or use the algorithm of one"
        )
