"""More than twenty ways to break shipped code by one line each. Every one must be caught by the audit."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from panstream.algorithms.continual.moments import ContinualVariance
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualSum, KaryTree
from panstream.algorithms.density.cropped_mean import CroppedMean
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.algorithms.turnstile._residues import ResidueLaw
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.audit import Case, Enumeration, LinearProgram, Scenario, case_of, linear_case
from panstream.audit.claims.cases import cases_in
from panstream.audit.claims.cases.continual import _slots, _with_added, _with_events, _with_refreshes, _with_two_events
from panstream.audit.claims.cases.distinct import _id_in
from panstream.audit.claims.cases.known_mistakes import _Unnoticed
from panstream.audit.claims.exact import presence_scenarios
from panstream.audit.claims.person_periods import PeriodEnumeration, consecutive_windows, one_copy
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.primitives.noise import Coin, DiscreteLaplace
from panstream.primitives.packed_bits import get_bit, popcount
from panstream.privacy.joint_loss import kappa_for
from panstream.testing.enumeration import enumerate_streams, refresh, release, update

NOTHING = update([])
APPEAR = update([0])
LEAVE = update(delete=[0])
SABOTAGES: dict[str, Callable[[], Case]] = {}


def sabotage(name: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def keep(build: Callable[[], Case]) -> Callable[[], Case]:
        SABOTAGES[name] = build
        return build

    return keep


def altered(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return the class with its law changed."""
    return type(kind.__name__, (kind,), {"law": property(lambda self: change(kind.law.fget(self)))})


def presence(kind: Any, actions: Any = (NOTHING, APPEAR), **more: Any) -> Case:
    algorithm = kind(universe=1, epsilon=1.0, **more)
    return Case(
        name=kind.__name__,
        kind="production",
        claimed=1.0,
        exact=Enumeration(algorithm, (-1, 2), presence_scenarios(*actions, announced=more.get("announced", 0))),
    )


def noisier(factor: float) -> Callable[[Any], Any]:
    return lambda law: replace(law, noise=DiscreteLaplace.at_most(factor * law.noise.kappa))


@sabotage("noise scale halved")
def _() -> Case:
    return presence(altered(OptBern, noisier(2.0)))


@sabotage("noise scale halved, one person over two windows")
def _() -> Case:
    case = next(case for case in cases_in("person_periods") if case.name == "One person, two windows of OptBern")
    windows = consecutive_windows(altered(OptBern, noisier(2.0))(universe=1, epsilon=1.0), 2)
    return replace(case, exact=PeriodEnumeration(windows, one_copy([len(window.steps) for window in windows])))


@sabotage("p1 one percent larger")
def _() -> Case:
    return presence(
        altered(OptBern, lambda law: replace(law, present=Coin.at_most(law.present.probability * Fraction(101, 100))))
    )


@sabotage("start without noise")
def _() -> Case:
    return presence(altered(OptBern, lambda law: replace(law, absent=Coin(0))))


@sabotage("release without fresh noise")
def _() -> Case:
    return presence(altered(OptBern, lambda law: replace(law, noise=DiscreteLaplace(None))))


@sabotage("debias before noise")
def _() -> Case:
    """Noise for a sensitivity of 1/m on the debiased mean is noise of rate kappa/(p1 - p0) on the count."""
    return presence(altered(OptBern, lambda law: noisier(1 / (law.p1 - law.p0))(law)))


@sabotage("missing refresh")
def _() -> Case:
    class Stale(OptBern):
        def refresh(self, state: Any, rng: Any) -> None:
            state.frozen = np.concatenate([state.frozen, state.bits[np.newaxis]])

    return presence(Stale, announced=1)


@sabotage("delete writes a clear zero")
def _() -> Case:
    class Clear(OptBern):
        def update(self, state: Any, batch: Any, rng: Any) -> None:
            OptBern.update(self, state, batch, rng)
            if batch.weights is not None:
                state.bits[batch.cells[batch.weights < 0]] = 0

    return presence(Clear, (NOTHING, APPEAR, LEAVE), deletions=True)


@sabotage("source reused: the release noise is drawn at the start and kept")
def _() -> Case:
    class Kept(OptBern):
        def initial_state(self, rng: Any) -> Any:
            state = OptBern.initial_state(self, rng)
            noise = np.zeros(1, np.int64)
            rng.add_discrete_laplace(noise, self.law.noise)
            state.released = int(noise[0])
            return state

        def release(self, state: Any, rng: Any) -> Any:
            kept = state.released
            state.released = 0
            with_none = replace(OptBern(universe=1, epsilon=1.0), epsilon=1.0)
            estimate = OptBern.release(with_none, state, rng)
            return replace(
                estimate, value=0.0, unbiased=0.0, standard_error=0.0, released=(popcount(state.bits) + kept,)
            )

    return presence(Kept)


@sabotage("a release is not counted")
def _() -> Case:
    class Forgets(OptBern):
        def release(self, state: Any, rng: Any) -> Any:
            state.released = 0
            return OptBern.release(self, state, rng)

    streams = enumerate_streams([None, None, release(), release()], [NOTHING, APPEAR])
    return case_of(Forgets(universe=1, epsilon=1.0), streams, window=(0, 1))


@sabotage("counters that start at zero")
def _() -> Case:
    class FromZero(CroppedMean):
        def initial_state(self, rng: Any) -> Any:
            state = CroppedMean.initial_state(self, rng)
            state.counters[:] = 0
            return state

    return presence(FromZero, crop=2)


def bitmap(kind: Any, cell: int = 0, **size: int) -> Case:
    algorithm = kind(epsilon=1.0, **{"buckets": 1, "levels": 1, **size})
    streams = enumerate_streams([None, None, release()], [NOTHING, update([_id_in(algorithm, cell)])])
    return case_of(algorithm, streams, window=(-1, 2))


@sabotage("noise on the first level only")
def _() -> Case:
    class Clear(Bitmap):
        def release(self, state: Any, rng: Any) -> Any:
            estimate = Bitmap.release(self, state, rng)
            return replace(estimate, released=(estimate.released[0], get_bit(state.bits, 1)))

    return bitmap(Clear, 1, levels=2)


@sabotage("toggled bits charged like bits drawn afresh")
def _() -> Case:
    return bitmap(
        altered(
            TogglingBitmap,
            lambda law: replace(law, noise=DiscreteLaplace.at_most(kappa_for(1.0, law.epsilon_state))),
        )
    )


@sabotage("a returning user's cell is set, not drawn")
def _() -> Case:
    class Set(Bitmap):
        def update(self, state: Any, batch: Any, rng: Any) -> None:
            if len(batch):
                state.bits[:] = 1

    return bitmap(Set)


def weights(kind: Any, *values: int, window: tuple[int, int], **more: Any) -> Case:
    algorithm = kind(universe=1, epsilon=1.0, **more)
    steps = [update(ids=[0], weight=[value]) for value in values]
    return case_of(algorithm, enumerate_streams([None, None, release()], steps), window=window, claimed=1.0)


@sabotage("sensitivity 1 instead of 2 (heavy hitters)")
def _() -> Case:
    return weights(
        altered(HeavyHitterCount, noisier(2.0)), 0, 1, 5, window=(-1, 3), threshold=2, min_net_weight=0, largest=5
    )


@sabotage("sensitivity 1 instead of 2 (histogram of residues)")
def _() -> Case:
    return weights(altered(ProfileSketch, noisier(2.0)), 0, 1, window=(0, 1), largest=1)


@sabotage("weight of the residues one percent larger")
def _() -> Case:
    def wider(law: Any) -> Any:
        odds = law.start.ratio * Fraction(101, 100) * Fraction(3, 4)
        return replace(law, start=ResidueLaw(7, Coin.at_most(odds / (1 + odds))))

    return weights(altered(LegendreCounter, wider), 0, 1, 3, window=(-1, 2), prime=7)


def tree(algorithm: Any, event: Any = 1, count: int = 5) -> Case:
    stream = _slots(count)
    return linear_case(algorithm, stream, _with_events(stream, event), claimed=1.0)


def cheaper(kind: Any, factor: Callable[[Any], float]) -> Any:
    def engine(self: Any) -> Any:
        sound = kind.engine.fget(self)
        return replace(sound, epsilon=sound.epsilon * factor(sound))

    return type(kind.__name__, (kind,), {"engine": property(engine)})


@sabotage("level count off by one (tree)")
def _() -> Case:
    kind = cheaper(KaryTree, lambda engine: engine.shape(0).rows / (engine.shape(0).rows - 1))
    return tree(kind(epsilon=1.0, horizon=5, levels=2))


@sabotage("level count off by one (binary)")
def _() -> Case:
    short = type("Short", (BinaryMechanism,), {"memberships": property(lambda self: 2)})
    return tree(short(epsilon=1.0, horizon=5))


@sabotage("both halves of the hybrid get the whole budget")
def _() -> Case:
    class Whole(HybridMechanism):
        @property
        def logarithmic(self) -> Any:
            return HybridMechanism.logarithmic.fget(replace(self, epsilon=2 * self.epsilon))  # type: ignore[attr-defined]

        def epoch(self, number: int) -> Any:
            return HybridMechanism.epoch(replace(self, epsilon=2 * self.epsilon), number)

    return tree(Whole(epsilon=1.0))


@sabotage("contributions forgotten")
def _() -> Case:
    kind = cheaper(KaryTree, lambda engine: float(engine.contributions))
    stream = _slots(5)
    twice = _with_two_events(stream, (0, 2), (4, 8), 1)
    return linear_case(kind(epsilon=1.0, horizon=5, levels=2, contributions=2), stream, twice)


@sabotage("values enter unclipped")
def _() -> Case:
    class Unclipped(ContinualSum):
        def read(self, values: Any) -> Any:
            return ContinualSum.read(replace(self, lower=-100.0, upper=100.0, resolution=1.0), values)

    return tree(Unclipped(epsilon=1.0, horizon=5, levels=2, lower=0.0, upper=3.0, resolution=1.0), 50.0)


@sabotage("noise before clipping")
def _() -> Case:
    """Accumulators are noised and then moved to zero from below: an untouched one shows itself."""

    class Clipped(KaryTree):
        def initial_state(self, rng: Any) -> Any:
            state = KaryTree.initial_state(self, rng)
            np.maximum(state.open, 0, out=state.open)
            return state

    return case_of(Clipped(epsilon=1.0, horizon=1, levels=1), [(update([0]),), (update([1]),)], window=(-2, 2))


@sabotage("depth of the histogram forgotten")
def _() -> Case:
    kind = cheaper(RangeHistogram, lambda engine: float(engine.sensitivity))
    algorithm = kind(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=4.0, branching=2, depth=2)
    stream = _slots(3, nothing=0.5)
    return linear_case(algorithm, stream, _with_added(stream, 0.5, 3.5))


@sabotage("the budget of two sums for three")
def _() -> Case:
    kind = cheaper(ContinualVariance, lambda engine: 1.5)
    algorithm = kind(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=8.0, resolution=2.0)
    stream = _slots(3, nothing=4.0)
    return linear_case(algorithm, stream, _with_added(stream, 4.0, 0.0, 8.0))


@sabotage("refresh of the leaves only")
def _() -> Case:
    class Leaves(KaryTree):
        def refresh(self, state: Any, rng: Any) -> None:
            rng.add_discrete_laplace(state.open[0], self.engine.law(0))
            state.draws[0] += 1

    stream, looks = _with_refreshes(_slots(5), 3)
    return Case(
        name="leaves only",
        kind="production",
        claimed=1.0,
        exact=LinearProgram(Leaves(epsilon=1.0, horizon=5, levels=2), stream, _with_events(stream, 1), looks),
    )


@sabotage("two looks in one phase")
def _() -> Case:
    scenario = Scenario(enumerate_streams([refresh(), None], [NOTHING, APPEAR]), (2,))
    return Case(
        name="two looks",
        kind="production",
        claimed=1.0,
        exact=Enumeration(_Unnoticed(universe=1, epsilon=1.0), (-1, 2), [scenario]),
    )


def forest_views(learner: Any) -> Any:
    """Return the audit of a network's views, for another learner and one record."""
    exact: Any = next(cases_in("networks")).exact
    return replace(exact, learner=learner, records=1)


@sabotage("tables of a network as if a record were in one of them")
def _() -> Case:
    from panstream.models.networks.privbayes import PrivBayes

    # A record is in a table for each attribute and in one for the pair; forgetting one spends more than there is.
    greedy = PrivBayes(epsilon=1.5 * 4 / 3)
    return Case(name="network", kind="production", claimed=1.5, exact=forest_views(greedy))


@sabotage("Gaussian tables of a tree network with a tenth less noise")
def _() -> Case:
    from panstream.models.networks.budget import BudgetSplit
    from panstream.models.networks.tree_network import TreeNetwork

    tree = TreeNetwork(epsilon=1.5 * 10 / 9, delta=1e-6, split=BudgetSplit())
    return Case(name="network", kind="production", claimed=1.5, exact=forest_views(tree))


@sabotage("seed kept")
def _() -> Case:
    case = next(case for case in cases_in("attacks") if case.name == "Seed stored in the state")
    return replace(case, kind="production")
