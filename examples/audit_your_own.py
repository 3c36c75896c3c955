"""Audit an algorithm of your own: a "private" counter whose saved state holds the exact count.

The recipe of many libraries: count exactly, add noise when asked. Its outputs are fine; whoever copies its state reads
the count.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream import Claim, Estimate
from panstream.algorithms import KaryTree
from panstream.audit import audit, linear_case, register_case
from panstream.core import DiscreteLaplace, FieldLayout, NoiseSource, noised
from panstream.testing.enumeration import tick, update


@dataclass(slots=True)
class CountState:
    count: NDArray[np.int64] = noised()  # it says so, but it is not


@dataclass(slots=True)
class Rows:
    rows: NDArray[np.int64]

    def wipe(self) -> None:
        self.rows[:] = 0


@dataclass(frozen=True)
class NaiveCounter:
    """Counts in the clear; every tick publishes count + noise of rate epsilon/ticks."""

    state_type: ClassVar[type[Any]] = CountState
    epsilon: float
    ticks_planned: int

    def claim(self) -> Claim:
        return Claim(epsilon=self.epsilon, unit="event", releases=self.ticks_planned)

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "ticks_planned": self.ticks_planned}

    def layout(self) -> dict[str, FieldLayout]:
        return {"count": FieldLayout("i8", (1,))}

    def initial_state(self, rng: NoiseSource) -> CountState:
        return CountState(count=np.zeros(1, np.int64))

    def batch(self, values: Any) -> Rows:
        return Rows(np.array(values))

    def update(self, state: CountState, batch: Rows, rng: NoiseSource) -> None:
        state.count += batch.rows.sum()

    def tick(self, state: CountState, rng: NoiseSource) -> Estimate:
        noisy = state.count.copy()
        rng.add_discrete_laplace(noisy, DiscreteLaplace.at_most(self.epsilon / self.ticks_planned))
        shown = int(noisy[0])
        return Estimate(value=shown, standard_error=np.nan, claim=self.claim(), released=(shown,))

    def tick_many(self, state: CountState, values: Any, rng: NoiseSource) -> Any: ...


WORLD = [update([0]), tick(), update([0]), tick()]
NEIGHBOURS = [[update([1]), *WORLD[1:]], [*WORLD[:2], update([1]), tick()]]  # one event more

if __name__ == "__main__":
    naive = NaiveCounter(epsilon=1.0, ticks_planned=2)
    tree = KaryTree(epsilon=1.0, horizon=2, levels=1)
    chosen = [
        register_case(linear_case(naive, WORLD, NEIGHBOURS, name="naive counter, outputs", looks=(None,))),
        register_case(linear_case(naive, WORLD, NEIGHBOURS, name="naive counter, state copied once")),
        register_case(linear_case(tree, WORLD, NEIGHBOURS, name="pan-private tree, state copied once")),
    ]
    for found in audit(chosen):
        print(f"{found.name}: claims {found.claimed:g}, loses {found.exact:g} ({found.verdict}); {found.witness}")
