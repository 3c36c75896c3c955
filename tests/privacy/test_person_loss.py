"""Losses of one person over a period: enumerated on the shipped algorithms, and counted by brute force."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.audit.claims.person_periods import ABSENT, COMES, PeriodEnumeration, consecutive_windows
from panstream.errors import InvalidParameter
from panstream.privacy.bitmap_loss import outputs_loss
from panstream.privacy.claim import Claim
from panstream.privacy.joint_loss import present_probability
from panstream.privacy.person_history import AskedQuery, worst_total
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal, WindowLoss
from panstream.testing.enumeration import Enumerator, Stream, enumerate_streams, release

DAY = 86_400.0


def weights(first: float, high: float, kappa: float, signs: tuple[int, ...]) -> list[float]:
    """Return the log weight of a user's every behaviour, by the definition: draw the bit again, or leave it."""
    found = []
    for arrivals in itertools.product((False, True), repeat=len(signs)):
        law = {0: 1.0 - first, 1: first}
        for arrived, sign in zip(arrivals, signs, strict=True):
            if arrived:
                total = sum(law.values())
                law = {0: total * (1.0 - high), 1: total * high}
            law = {bit: weight * math.exp(kappa * sign * bit) for bit, weight in law.items()}
        found.append(math.log(sum(law.values())))
    return found


def brute_force(first: float, high: float, kappa: float, releases: int) -> float:
    """Return the largest log-ratio over all signs of the releases and two behaviours."""
    return max(
        max(found) - min(found)
        for signs in itertools.product((1, -1), repeat=releases)
        for found in [weights(first, high, kappa, signs)]
    )


@settings(max_examples=60)
@given(
    first=st.floats(0.0, 1.0),
    high=st.floats(0.01, 0.99),
    kappa=st.floats(1e-3, 5.0),
    releases=st.integers(1, 5),
)
def test_answers_lose_what_all_behaviours_show(first: float, high: float, kappa: float, releases: int) -> None:
    assert outputs_loss(first, high, kappa, releases) == pytest.approx(
        brute_force(first, high, kappa, releases), abs=1e-9
    )


@pytest.mark.parametrize(("releases", "loss"), [(1, 0.092181801), (2, 0.191477766), (3, 0.297122118), (6, 0.644787762)])
def test_reference_values_of_answers_alone(releases: int, loss: float) -> None:
    p1 = present_probability(1.0)
    assert outputs_loss(1.0 - p1, p1, 0.2, releases) == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("epsilon_state", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("kappa", [0.01, 0.2, 2.0])
def test_closed_forms_of_one_release(epsilon_state: float, kappa: float) -> None:
    p1 = present_probability(epsilon_state)
    loss = WindowLoss.of_bits(epsilon_state + kappa, 1.0 - p1, p1, kappa, 1)
    assert loss.answers == pytest.approx(2 * math.atanh(math.tanh(epsilon_state / 2) * math.tanh(kappa / 2)), abs=1e-9)
    assert loss.unused == pytest.approx(math.log(1 - p1 + p1 * math.exp(kappa)), abs=1e-9)


SHIPPED = [
    OptBern(universe=1, epsilon=1.0),
    OptBern(universe=1, epsilon=1.0, releases=2),
    OptBern(universe=2, epsilon=2.0, releases=3),
    Bitmap(epsilon=1.5, buckets=1, levels=1),
]


def streams(releases: int, slots: int, *, before: int = 0) -> list[Stream]:
    """Return what one user can do: nothing in the first slots, and anything between releases."""
    steps: list[Any] = [ABSENT] * before + [None] * slots
    for _ in range(releases - 1):
        steps += [release(), None]
    return enumerate_streams([*steps, release()], [ABSENT, COMES])


@pytest.mark.parametrize("algorithm", SHIPPED, ids=lambda a: f"{type(a).__name__} {a.epsilon:g} {a.releases}")
def test_the_shipped_steps_lose_what_window_loss_says(algorithm: Any) -> None:
    enumerator = Enumerator(algorithm, window=(-3, 5))
    loss = algorithm.window_loss()
    alone = enumerator.joint_loss(streams(algorithm.releases, 1), [None]).epsilon
    assert alone <= loss.answers
    assert alone == pytest.approx(loss.answers, rel=1e-6)
    seen_early = enumerator.joint_loss(streams(algorithm.releases, 1, before=1), [1]).epsilon
    assert seen_early <= loss.unused
    assert seen_early == pytest.approx(loss.unused, rel=1e-6)
    assert loss.joint == algorithm.epsilon


@pytest.mark.parametrize(
    "algorithm",
    [
        OptBern(universe=3, epsilon=1.0, releases=100_000),
        OptBern(universe=3, epsilon=1.0, deletions=True),
        OptBern(universe=3, epsilon=2.0, announced=1),
        TogglingBitmap(epsilon=1.0),
        Bitmap(epsilon=1.0, announced=2),
    ],
    ids=["too many releases to compute", "deletions", "announced", "toggling", "bitmap, announced"],
)
def test_without_a_proof_answers_cost_what_a_copy_does(algorithm: Any) -> None:
    loss = algorithm.window_loss()
    assert loss.answers == loss.unused == loss.joint == algorithm.claim().epsilon


def period_loss(algorithm: Any, looks: tuple[int | None, ...]) -> float:
    """Return the largest loss over whole periods: ``looks`` says for every window after which step it is copied."""
    return PeriodEnumeration(consecutive_windows(algorithm, len(looks)), [looks])().loss


ONE_BIT = OptBern(universe=1, epsilon=1.0)


def share(windows: int, *, open_: int = 1, opening: int = 0) -> PersonShare:
    return PersonShare(
        name="visitors", loss=ONE_BIT.window_loss(), windows=windows, open=open_, opening=opening, bounded_by="shape"
    )


@pytest.mark.parametrize("look", [0, 1, 2, 3])
def test_two_windows_and_one_copy_of_the_shipped_bits(look: int) -> None:
    """The claim is reached by the worst copy, one between two arrivals, and never exceeded."""
    worst = max(period_loss(ONE_BIT, (look, None)), period_loss(ONE_BIT, (None, look)))
    assert worst <= share(2).epsilon + 1e-12
    if look == 1:
        assert worst == pytest.approx(share(2).epsilon, rel=1e-6)


def test_three_windows_and_one_copy_of_the_shipped_bits() -> None:
    worst = max(period_loss(ONE_BIT, tuple(1 if window == seen else None for window in range(3))) for seen in range(3))
    assert worst <= share(3).epsilon + 1e-12
    assert worst == pytest.approx(share(3).epsilon, rel=1e-6)


def test_what_is_left_out_of_the_account_exceeds_it() -> None:
    two_copies = period_loss(ONE_BIT, (1, 1))
    assert two_copies > share(2).epsilon
    assert two_copies <= share(2, open_=2).epsilon + 1e-12
    just_opened = period_loss(ONE_BIT, (1, 0))
    assert just_opened > share(2).epsilon
    assert just_opened <= share(2, opening=1).epsilon + 1e-12
    assert period_loss(ONE_BIT, (1, None, None)) > share(2).epsilon  # a state was lost, and its successor not charged


def test_coming_once_before_all_releases_is_not_the_worst() -> None:
    """R = 3, K = 5/4 and two releases: .220400 is what is lost by one arrival before both, against none."""
    kappa = math.log(1.25)
    p1 = present_probability(math.log(3))
    never, _, once, _ = weights(1 - p1, p1, kappa, (1, 1))
    assert once - never == pytest.approx(0.220400, abs=1e-6)
    assert outputs_loss(1 - p1, p1, kappa, 2) == pytest.approx(0.230727, abs=1e-6)


@pytest.mark.parametrize(
    ("window", "windows"), [(3600.0, 721), (14_400.0, 181), (DAY, 31), (7 * DAY, 6), (30 * DAY, 2), (365 * DAY, 2)]
)
def test_windows_that_thirty_days_can_meet(window: float, windows: int) -> None:
    assert PersonShare.of_windows("q", ONE_BIT.window_loss(), window=window, period=PERIOD).windows == windows


@given(window=st.integers(1, 12), period=st.integers(1, 40), lateness=st.integers(0, 30), start=st.integers(0, 200))
def test_windows_are_counted_as_a_clock_does(window: int, period: int, lateness: int, start: int) -> None:
    """All times are halves, so that a period may begin anywhere in a window."""
    found = PersonShare.of_windows(
        "q", ONE_BIT.window_loss(), window=float(window), period=float(period), lateness=float(lateness), overlap=True
    )
    begin = start / 2
    met = {math.floor(time / 4 / window) for time in range(int(4 * begin), int(4 * (begin + period)))}
    assert len(met) <= found.windows
    now = begin
    takes_rows = [k for k in range(int(now // window) + 1) if (k + 1) * window + lateness > now]
    assert min(len(takes_rows), found.windows) <= found.open


def test_a_share_without_windows_is_one_state() -> None:
    found = PersonShare.of_windows("q", ONE_BIT.window_loss(), window=None, period=PERIOD)
    assert (found.windows, found.open, found.opening, found.epsilon) == (1, 1, 0, 1.0)


def test_a_total_adds_up_and_says_what_has_no_bound() -> None:
    names = PersonShare(name="names", loss=WindowLoss.of_claim(Claim(epsilon=1.0, delta=1e-6, unit="user")), windows=2)
    total = PersonTotal(period=PERIOD, shares=(share(31), names))
    assert total.epsilon >= share(31).epsilon + 2.0
    assert total.stated_delta == pytest.approx(2e-6)
    assert total.text("visitor").startswith("one visitor, any 30 days, all queries, one intrusion: epsilon ")
    events = PersonShare(name="views", loss=None, reason="protects one event")
    unbounded = PersonTotal(period=PERIOD, shares=(share(31), events))
    assert math.isinf(unbounded.epsilon)
    assert "not bounded by 'views'; 1 other query: epsilon" in unbounded.text()
    assert unbounded.to_json()["epsilon"] == "inf"
    assert unbounded.to_json()["reason"] == "'views': protects one event"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"joint": 1.0, "answers": 1.1, "unused": 0.5}, "answers and unused must be in"),
        ({"joint": 1.0, "answers": -0.1, "unused": 0.5}, "answers and unused must be in"),
    ],
)
def test_losses_out_of_order_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        WindowLoss(**wrong)


# Queries that come and go.


def asked(
    name: str, window: int | None, begin: int | None, end: int | None, *, start: int | None = None, period: int = 10
) -> AskedQuery:
    loss = WindowLoss(joint=1.0, answers=0.1, unused=0.1)
    length = None if window is None else float(window)
    return AskedQuery(
        share=PersonShare.of_windows(name, loss, window=length, period=float(period)),
        window=length,
        begin=None if begin is None else float(begin),
        end=None if end is None else float(end),
        start=start,
    )


def by_brute_force(queries: list[AskedQuery], period: int, low: int, high: int) -> float:
    """Return the largest total over periods that begin at any quarter, with windows counted one by one."""
    worst = 0.0
    for quarter in range(4 * low, 4 * high):
        times = [(quarter + step) / 4 for step in range(4 * period)]
        loss = 0.0
        copies: dict[int | None, float] = {}
        for query in queries:
            inside = [
                time
                for time in times
                if (query.begin is None or time >= query.begin) and (query.end is None or time < query.end)
            ]
            met = {0 if query.window is None else math.floor(time / query.window) for time in inside}
            loss += 0.1 * len(met)
            copies[query.start] = copies.get(query.start, 0.0) + 0.9 * min(1, len(met))
        stored = copies.pop(None, 0.0)
        worst = max(worst, loss + stored + max([0.0, *copies.values()]))
    return worst


@settings(max_examples=150)
@given(
    windows=st.lists(st.one_of(st.none(), st.integers(1, 7)), min_size=1, max_size=3),
    changes=st.lists(st.integers(0, 30), min_size=0, max_size=2),
    lost=st.booleans(),
)
def test_the_worst_period_over_changes_is_that_of_brute_force(
    windows: list[int | None], changes: list[int], lost: bool
) -> None:
    """Times are whole, so a period's windows change at quarters only where brute force looks."""
    queries = []
    for number, window in enumerate(windows):
        edges = [None, *sorted(set(changes)), None]
        spans = list(itertools.pairwise(edges))
        begin, end = spans[number % len(spans)]
        queries.append(asked(f"q{number}", window, begin, end, start=number if lost else None))
    found = worst_total(queries, 10.0).epsilon
    exact = by_brute_force(queries, 10, -60, 110)
    assert found >= exact - 1e-9
    finite = all(query.begin is not None and query.end is not None for query in queries)
    assert found == pytest.approx(exact, abs=1e-9) if finite else found <= exact + 0.1 * len(queries) + 1e-9


def test_a_removed_query_can_be_copied_with_its_successor_but_a_lost_one_cannot() -> None:
    stored = worst_total([asked("a", None, None, 5), asked("b", None, 5, None)], 10.0)
    lost = worst_total([asked("a", None, None, 5, start=1), asked("b", None, 5, None, start=2)], 10.0)
    assert stored.epsilon == pytest.approx(2.0)
    assert lost.epsilon == pytest.approx(1.1)


def test_a_history_is_read_back() -> None:
    query = asked("visitors", 7, 3, None, start=2)
    assert AskedQuery.from_json(query.to_json()) == query
    events = AskedQuery(share=PersonShare(name="views", loss=None, reason="protects one event"), window=None)
    assert AskedQuery.from_json(events.to_json()) == events


def started_loss(algorithm: ContinualDensity, rate: float = 1.0) -> float:
    """Return the largest log ratio of two worlds over all numbers that a start and an answer can show, for one user."""
    p1 = present_probability(algorithm.strategy.epsilon_state)
    laws = [
        {number: math.exp(-rate * kappa * abs(number)) for number in range(-40, 42)}
        for kappa in (algorithm.strategy.start, algorithm.strategy.rate)
    ]
    worst = 0.0
    for first, last in itertools.product(range(-39, 41), repeat=2):
        start = [law * laws[0][first - bit] for bit, law in enumerate((p1, 1.0 - p1))]
        stays = sum(start[bit] * laws[1][last - bit] for bit in (0, 1))
        comes = sum(start) * sum(chance * laws[1][last - bit] for bit, chance in enumerate((1.0 - p1, p1)))
        worst = max(worst, abs(math.log(comes / stays)))
    return worst


def test_a_start_that_is_released_costs_what_lemma_six_says() -> None:
    """Summed over every output of the shipped rates; with half of the noise it would cost more."""
    algorithm = ContinualDensity(universe=500, epsilon=1.0, horizon=1, unit="user", expected=40)
    assert algorithm.strategy.start > 0.0
    loss = algorithm.window_loss()
    assert loss.answers == pytest.approx(started_loss(algorithm), rel=1e-9)
    assert started_loss(algorithm, 2.0) > 1.5 * loss.answers
    assert loss.answers < 0.5 * loss.joint == 0.5
    p1 = present_probability(algorithm.strategy.epsilon_state)
    assert loss.unused == pytest.approx(math.log1p(p1 * math.expm1(algorithm.strategy.rate)), rel=1e-9)
    bitmap = DistinctCount(1.0, expected=10_000, at_most=160_000).algorithm
    assert bitmap.window_loss().answers < 0.5
    deleting = ContinualDensity(universe=500, epsilon=1.0, horizon=1, unit="user", expected=40, deletions=True)
    assert deleting.window_loss().answers == 1.0
