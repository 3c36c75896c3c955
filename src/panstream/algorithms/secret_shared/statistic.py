"""A statistic on shares: how a batch becomes a dense change, what the machines keep, and how opened numbers are read.

It is a frozen value of public parameters, like an algorithm, and takes the same batches. It has no state of its own: on
one machine it would be exact, and a copy of it would show everybody.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from panstream.algorithms.secret_shared.running_sums import Rule
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

    kind: ClassVar[str]  # of the rule
    proof: ClassVar[str] = "two-machines.md"

    @abstractmethod
    def claim(self) -> Claim:
        """Return what is promised: any number of looks, at one machine at a time."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """Return how the machines keep it."""

    @abstractmethod
    def batch(self, *args: Any, **kwargs: Any) -> Any:
        """Return checked input, or raise InvalidBatch by row, as on one machine."""

    @abstractmethod
    def empty_buffer(self) -> Dealt:
        """Return the change of a step in which nothing happened."""

    @abstractmethod
    def accumulate(self, change: Dealt, batch: Any, scratch: Scratch) -> None:
        """Take a checked batch into the change of a step."""

    @abstractmethod
    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return a change as the rule deals it, in the step that starts the state (``fresh``) or in a later one."""

    @abstractmethod
    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the answer whose numbers were opened, the ``number``-th of this state."""

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild this value."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return what one machine keeps of it: bytes that are uniform by themselves."""
        return {"cells": FieldLayout("u1", (self.rule.size,))}

    def start(self) -> Any:
        """Refuse: one machine alone would hold the exact state."""
        raise NotSupported(
            f"{type(self).__name__} needs two machines: name them in [stream] machines, or use the algorithm of one"
        )
