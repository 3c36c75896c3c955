"""Streaming tables: the linear program on all cells, and controls without start noise, release noise or a level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from panstream.algorithms.continual.noisy_tree import TreeState
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import linear_case, with_update_replaced
from panstream.core.estimate import Estimate
from panstream.models.networks.domain import Domain
from panstream.models.networks.streaming_tables import StreamingTables
from panstream.primitives.noise import NoiseSource
from panstream.privacy.continual_loss import tables_laws
from panstream.testing.enumeration import Step, refresh, tick, update

_DOMAIN = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
_ONE = ("no", "yes")
_OTHER = ("yes", "no")


def _records(*rows: tuple[str, str]) -> Step:
    return update([dict(zip(_DOMAIN.names, row, strict=True)) for row in rows])


class _Joined(StreamingTables):
    """The library's tables, with a merge as a step."""

    def joined(self, state: TreeState, rng: NoiseSource) -> Estimate:
        """Merge with a site without records; publishes nothing."""
        other = StreamingTables.initial_state(self, rng)
        other.ticks = state.ticks
        other.digits[:] = state.digits
        _, both = self.merge(replace(state, open=state.open.copy()), self, other, rng)
        state.open[:] = both.open
        state.draws[:] = both.draws
        return Estimate(value=0.0, standard_error=0.0, claim=self.claim(), released=(0,))


class _NoStart(StreamingTables):
    """Starts with zeros."""

    def initial_state(self, rng: NoiseSource) -> TreeState:
        state = StreamingTables.initial_state(self, rng)
        state.open.fill(0)
        return state


class _NoFresh(StreamingTables):
    """Publishes the open leaf without fresh noise."""

    def tick(self, state: TreeState, rng: NoiseSource) -> Estimate:
        shown = tuple(int(cell) for cell in state.open[0])
        return replace(StreamingTables.tick(self, state, rng), released=shown)


class _OneTableFree(StreamingTables):
    """Ignores that a record is also in a pair's table."""

    @property
    def laws(self) -> Any:
        """Return the noise of shares that add up to more than 1."""
        ones = StreamingTables.laws.fget(self)[:2]  # type: ignore[attr-defined]
        two = tables_laws(self.epsilon, 0.0, self.levels or 1, [1])  # type: ignore[list-item]
        return (*ones, *two)


def _streaming_cases() -> Iterator[Case]:
    """Yield one level and two, announced intrusions, users, a merge, and the controls."""
    nothing = _records(_ONE)
    slots = [nothing, tick()] * 3
    tiny: dict[str, Any] = {"domain": _DOMAIN, "epsilon": 1.0, "horizon": 3}

    def case(name: str, algorithm: StreamingTables, stream: list[Step], *rows: tuple[str, str], **options: Any) -> Case:
        neighbours = with_update_replaced(stream, _records(_ONE, *(rows or (_OTHER,))))
        return linear_case(algorithm, stream, neighbours, name=name, sampled=False, runs=200, **options)

    yield case("StreamingTables", StreamingTables(**tiny, levels=1), slots)
    yield case("StreamingTables, two levels", StreamingTables(**tiny, levels=2), slots)
    seen = [nothing, refresh(), nothing, tick(), refresh(), nothing, tick()]
    yield case("StreamingTables, announced intrusions", StreamingTables(**tiny, levels=1), seen, looks=(None, 5, 6, 7))
    users = StreamingTables(**tiny, levels=1, contributions=2)
    yield case("StreamingTables, a user of two records", users, slots, _OTHER, _OTHER)
    merged = case("StreamingTables, two sites merged", _Joined(**tiny, levels=1), [nothing, Step("joined"), *slots[:2]])
    yield replace(merged, algorithm=StreamingTables(**tiny, levels=1))

    def control(name: str, kind: type[StreamingTables], represents: str) -> Case:
        return case(name, kind(**tiny, levels=1), slots, kind="control", represents=represents)

    yield control("streaming tables without start noise", _NoStart, "noise at the release only")
    yield control("streaming tables without release noise", _NoFresh, "one noise for state and answer")
    yield control("streaming tables with a table for free", _OneTableFree, "a record is in every table")


CASES = (_streaming_cases,)
