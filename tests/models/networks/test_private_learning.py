"""Claims of the learners by enumeration on a tiny domain, and by the sum of what was really drawn."""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.audit.claims.cases.networks import _PrescribedSource, _replaced
from panstream.errors import BudgetExhausted, InvalidParameter
from panstream.models.networks import BudgetSplit, Domain, PrivBayes, Records, TreeNetwork, contingency
from panstream.models.networks import tree_network as tree
from panstream.models.networks.budget import PureBudget, ZcdpBudget, split_proportionally
from panstream.models.networks.learner import LearnedNetwork
from panstream.models.networks.privbayes import _greedy_families, _ParentSets, _Score, _useful_cells
from panstream.models.networks.structure_search import largest_families
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource, SeededSource, SelectionRate
from panstream.privacy.composition import zcdp_rho

TINY = Domain({"a": ["0", "1"], "b": ["0", "1"]})
CELLS = list(itertools.product((0, 1), repeat=2))


def data_sets(n: int) -> Iterator[Records]:
    for rows in itertools.combinations_with_replacement(CELLS, n):
        yield Records(TINY, np.array(rows, np.uint16).T)


def worst_loss(learner: PrivBayes, n: int, grid: Sequence[int]) -> float:
    """Largest log ratio over neighbouring data sets and views: one-way tables, choice, last tables.

    One-way tables range over ``grid``; among last tables the largest ratio is at the first data set's own counts.
    """
    every = list(data_sets(n))
    worst = 0.0
    for one in every:
        margins = tuple(contingency(one, (attribute,)) for attribute in (0, 1))
        views = [np.array([zeros, n - zeros], np.int64) for zeros in grid]
        firsts = [*itertools.product(views, repeat=2), margins]
        others = [other for other in every if _replaced(one, other)]
        for first, choice in itertools.product(firsts, (0, 1)):
            first_run = _PrescribedSource(first, [choice])
            learner.fit(one, first_run)
            for other in others:
                second_run = _PrescribedSource((*first, *first_run.seen[2:]), [choice])
                learner.fit(other, second_run)
                worst = max(worst, first_run.log - second_run.log)
    return worst


@pytest.fixture(autouse=True)
def no_fit(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Fitting is post-processing: enumeration leaves it out for speed."""
    if "enumeration" in request.node.name:
        monkeypatch.setattr("panstream.models.networks.privbayes.fit_forest", lambda *args: None)
        monkeypatch.setattr("panstream.models.networks.learner._notes", lambda *args: ())


@pytest.mark.slow
@pytest.mark.parametrize(("n", "grid"), [(1, (-1, 1)), (2, (1,)), (3, (0,)), (4, (2,))], ids=str)
def test_the_claim_of_privbayes_holds_by_enumeration_and_is_nearly_used_up(n: int, grid: tuple[int, ...]) -> None:
    learner = PrivBayes(epsilon=1.5, split=BudgetSplit())
    loss = worst_loss(learner, n, grid)
    assert 0.93 * learner.epsilon < loss <= learner.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_with_few_records_enumeration_finds_all_spent_on_marginals(n: int) -> None:
    assert worst_loss(PrivBayes(epsilon=1.5), n, (1,)) == pytest.approx(1.5, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_claim_of_greedy_parents_holds_by_enumeration(n: int) -> None:
    """The score R decides between no parent and one; its sensitivity is an upper bound, so less than all is lost."""
    learner = PrivBayes(epsilon=1.5, score="R", theta=1e-3)
    loss = worst_loss(learner, n, (0, n))
    assert 0.89 * 1.5 < loss <= 1.5 * (1 + 1e-9)


@pytest.mark.slow
def test_enumeration_would_notice_choices_by_r_that_are_too_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PureBudget.choose

    def sharp(self: PureBudget, purpose: str, utilities: Any, sensitivity: int, share: Any, rng: Any) -> int:
        return honest(self, purpose, 8 * utilities, sensitivity, share, rng)

    monkeypatch.setattr(PureBudget, "choose", sharp)
    assert worst_loss(PrivBayes(epsilon=1.5, score="R", theta=1e-3), 3, (0, 3)) > 1.5


def test_enumeration_would_notice_a_little_less_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PureBudget._noise
    monkeypatch.setattr(
        PureBudget, "_noise", lambda self, share: DiscreteLaplace.at_most(1.08 * honest(self, share).kappa)
    )
    assert worst_loss(PrivBayes(epsilon=1.5, split=BudgetSplit()), 2, (1,)) > 1.5
    assert worst_loss(PrivBayes(epsilon=1.5), 2, (1,)) > 1.5


class Spy(SeededSource):
    """Draws as usual and adds up what each draw loses when one record is replaced."""

    __slots__ = ("epsilon", "rho")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.epsilon = self.rho = 0.0

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        self.epsilon += 2 * law.kappa
        super().add_discrete_laplace(values, law)

    def add_balanced_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        self.epsilon += 2 * law.kappa
        super().add_balanced_laplace(values, law)

    def add_joint_laplace(self, tables: Sequence[NDArray[np.int64]], law: DiscreteLaplace) -> None:
        self.epsilon += 2 * law.kappa
        super().add_joint_laplace(tables, law)

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        self.rho += 2 / (2 * law.sigma**2)
        super().add_discrete_gaussian(values, law)

    def permute_and_flip(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        self.epsilon += 2 * self.sensitivity * preference.rate
        return super().permute_and_flip(utilities, preference)

    def exponential(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        self.rho += (2 * 2.0 * preference.rate) ** 2 / 8
        return super().exponential(utilities, preference)

    sensitivity = 2.0  # of the gain; R's is 3n - 2 of its own units


class SpyR(Spy):
    __slots__ = ()
    sensitivity = 3.0 * 2000 - 2


def chain(n: int = 2000, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    c = np.where(rng.random(n) < 0.7, b > 0, rng.integers(0, 2, n))
    e = rng.integers(0, 4, n)
    domain = Domain({"a": list("xyz"), "b": list("xyz"), "c": ["no", "yes"], "e": list("1234")})
    return Records(domain, np.array([a, b, c, e], np.uint16))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("epsilon", [0.02, 1.0])
def test_what_is_drawn_adds_up_to_the_claim_and_no_further(seed: int, epsilon: float) -> None:
    records = chain()
    for learner, spy in [
        (PrivBayes(epsilon=epsilon), Spy(seed)),
        (PrivBayes(epsilon=epsilon, score="R", degree=2), SpyR(seed)),
        (PrivBayes(epsilon=epsilon, score="R"), SpyR(seed)),
    ]:
        learner.fit(records, spy)
        assert 0.999 * epsilon < spy.epsilon <= epsilon * (1 + 1e-12)
    spy = Spy(seed)
    rho = zcdp_rho(epsilon, 1e-9)
    TreeNetwork(epsilon=epsilon).fit(records, spy)
    assert 0.999 * rho < spy.rho <= rho * (1 + 1e-12)


def total_variation(learned: LearnedNetwork, records: Records, pair: tuple[int, int]) -> float:
    truth = contingency(records, pair) / len(records)
    return 0.5 * float(np.abs(learned.network.marginal(pair) - truth).sum())


@pytest.mark.parametrize(
    "learner",
    [
        PrivBayes(epsilon=20.0),
        PrivBayes(epsilon=20.0, score="R", degree=1),
        PrivBayes(epsilon=20.0, score="mi", degree=2),
        PrivBayes(epsilon=20.0, score="R"),
        TreeNetwork(epsilon=20.0),
        PrivBayes(epsilon=math.inf),
        TreeNetwork(epsilon=math.inf),
    ],
    ids=str,
)
def test_a_large_budget_finds_the_chain(learner: Any) -> None:
    records = chain(5000)
    learned = learner.fit(records)
    assert total_variation(learned, records, (0, 1)) < 0.03
    assert total_variation(learned, records, (1, 2)) < 0.03
    assert learned.records == 5000
    assert learned.claim.epsilon == learner.epsilon
    assert learned.claim.unit == "record"
    assert learned.claim.adjacency == "replace"


def test_f_serves_two_valued_attributes() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 3000)
    b = np.where(rng.random(3000) < 0.9, a, 1 - a)
    c = rng.integers(0, 2, 3000)
    domain = Domain({name: ["no", "yes"] for name in "abc"})
    records = Records(domain, np.array([a, b, c], np.uint16))
    learned = PrivBayes(epsilon=20.0, score="F", degree=1).fit(records)
    assert total_variation(learned, records, (0, 1)) < 0.03
    with pytest.raises(InvalidParameter, match="score F"):
        PrivBayes(epsilon=1.0, score="F").fit(chain())


def test_hopeless_budgets_buy_marginals_only() -> None:
    records = chain(300)
    with SeededSource(3) as rng:
        learned = PrivBayes(epsilon=0.05).fit(records, rng)
    assert [table.attributes for table in learned.tables] == [(0,), (1,), (2,), (3,)]
    assert not learned.claim.is_private  # a test source promises nothing


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 7])
def test_degree_k_needs_n_minus_k_tables(degree: int) -> None:
    learned = PrivBayes(epsilon=2.0, score="R", degree=degree).fit(chain(500))
    assert learned.network.degree == min(degree, 3)
    assert len(learned.tables) - 4 == max(4 - degree, 1)


def test_theta_limits_the_size_of_families() -> None:
    records = chain(400)
    limit = _useful_cells(400, 4, 1.0 * 0.6, 4.0)
    learned = PrivBayes(epsilon=1.0, score="R").fit(records)
    sizes = [int(np.asarray(table.counts).size) for table in learned.tables if len(table.attributes) > 1]
    assert all(size <= limit for size in sizes)
    assert list(_ParentSets(degree=2).parents(records.domain, 3, [0, 1, 2])) == [(0, 2), (1, 2)]
    assert list(_ParentSets(cells=12).parents(records.domain, 3, [0, 2])) == [(2,)]
    assert largest_families([(), (0,), (0, 1), (2,)]) == [(0, 1, 2), (2, 3)]


def test_one_attribute_spends_all_on_its_table() -> None:
    records = chain(200).select([0])
    for learner in (PrivBayes(epsilon=1.0), TreeNetwork(epsilon=1.0), PrivBayes(epsilon=1.0, score="R")):
        assert learner.fit(records).network.degree == 0


def test_a_budget_cannot_be_overdrawn() -> None:
    with NoiseSource() as rng:
        for budget in (PureBudget(1.0), ZcdpBudget(1.0, 1e-6)):
            budget.measure("x", (0,), np.zeros(3, np.int64), Fraction(2, 3), rng)
            with pytest.raises(BudgetExhausted):
                budget.measure("x", (0,), np.zeros(3, np.int64), Fraction(2, 3), rng)
            with pytest.raises(BudgetExhausted):
                budget.choose("y", np.zeros(3, np.int64), 1, Fraction(2, 3), rng)
            assert sum(budget.spent.values()) == Fraction(2, 3)
    shares = split_proportionally(Fraction(1), [1.0, math.sqrt(2), math.pi])
    assert sum(shares) <= 1 < sum(shares) + Fraction(1, 2**40)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PrivBayes(epsilon=0.0), "epsilon must be positive"),
        (lambda: PrivBayes(epsilon=1.0, score="BIC"), "score must be one of"),  # type: ignore[arg-type]
        (lambda: PrivBayes(epsilon=1.0, degree=-1), "degree must be at least 0"),
        (lambda: PrivBayes(epsilon=1.0, degree=2), "degree must be 0 or 1"),
        (lambda: PrivBayes(epsilon=1.0, theta=0.0), "theta must be positive"),
        (lambda: TreeNetwork(epsilon=1.0, delta=0.0), "delta must be in"),
        (lambda: TreeNetwork(epsilon=-1.0), "epsilon must be positive"),
        (lambda: TreeNetwork(epsilon=1.0, degree=2), "degree must be 0 or 1"),
        (lambda: BudgetSplit(marginals=0.5, structure=0.5, tables=0.5), "add up to 1"),
        (lambda: BudgetSplit(marginals=0.5, structure=0.5, tables=0.0), "add up to 1"),
    ],
    ids=range(10),
)
def test_bad_parameters_are_named(make: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        make()


def test_edges_never_close_a_cycle() -> None:
    with SeededSource(2) as rng:
        budget = PureBudget(50.0)
        tables = tree.grow_forest(chain(3000), budget, rng)
    edges = [table.attributes for table in tables if len(table.attributes) == 2]
    assert len(edges) <= 3
    assert set(edges) >= {(0, 1)}


@pytest.mark.parametrize(("sizes", "binary"), [((2, 2, 2), True), ((2, 3, 2), False), ((3, 3, 3), False)])
def test_scores_are_told_whether_all_attributes_have_two_values(sizes: tuple[int, ...], binary: bool) -> None:
    """Mutual information moves less between two values, so a wrong answer would be a wrong claim."""
    arguments = []

    def sensitivity(records: int, two: bool) -> int:
        arguments.append((records, two))
        return 1

    domain = Domain({f"a{at}": [str(value) for value in range(size)] for at, size in enumerate(sizes)})
    records = Records(domain, np.zeros((3, 20), np.uint16))
    score = _Score(lambda table: 0, sensitivity)
    with NoiseSource() as rng:
        _greedy_families(records, score, _ParentSets(degree=1), PureBudget(1.0), Fraction(1), rng, lambda *_: None)
    assert arguments == [(20, binary)]
