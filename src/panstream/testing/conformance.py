"""The conformance suite: checks that every algorithm must pass.

Describe an algorithm in a `Specimen` and run it through ``CHECKS``::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
    def test_conformance(check):
        check(MY_SPECIMEN)

A check raises ``AssertionError`` with a sentence that describes the violation.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from panstream.core.algorithm import Continual
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidBytes, MergeError, NotSupported, PanstreamError
from panstream.primitives import codec
from panstream.primitives.noise import NoiseSource, SeededSource
from panstream.testing.enumeration import snapshot, update

_RUNS = 200
_STARTS = 40  # fresh states; that all of them are equal by chance has a probability below 1e-20
_BETA = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """An algorithm with inputs and expected answers for the suite.

    ``batches`` are keyword arguments of ``algorithm.batch`` (``ids`` is passed by position); ``truth`` is the exact
    answer after all of them. ``bad`` are batches that must be rejected; each contains ``canary`` if it can.
    ``noiseless`` is the same algorithm with epsilon = inf, or None if it has no exact answer without noise.
    """

    name: str
    algorithm: Any
    batches: tuple[Mapping[str, Any], ...]
    bad: tuple[Mapping[str, Any], ...]
    truth: float
    noiseless: Any = None
    canary: str = "canary-7f3a91"
    other_key: Any = None  # for mergeable algorithms: one that cannot be merged with ``algorithm``
    truth_twice: float | None = None  # the exact answer after merging two equal states; ``truth`` by default

    def __str__(self) -> str:
        return self.name


def _state_fields_are_declared(specimen: Specimen) -> None:
    """Every state field is declared public, published, noised or noise, and the layout has exactly these fields."""
    kind = specimen.algorithm.state_type
    assert is_dataclass(kind), f"{kind.__name__} is not a dataclass"
    undeclared = [declared.name for declared in fields(kind) if codec.field_role(declared) is None]
    assert not undeclared, f"state fields {undeclared} are not declared public, published, noised or noise"
    assert set(specimen.algorithm.layout()) == {declared.name for declared in fields(kind)}, "layout and fields differ"


def _start_is_already_noised(specimen: Specimen) -> None:
    """Fresh states differ: the state of an empty stream is already noise."""
    with NoiseSource() as rng:
        fresh = [specimen.algorithm.initial_state(rng) for _ in range(_STARTS)]
    noisy = [d.name for d in fields(fresh[0]) if codec.field_role(d) in ("noised", "noise")]
    assert noisy, "no field is noised"
    first = [getattr(fresh[0], name) for name in noisy]
    same = [all(np.array_equal(a, getattr(state, n)) for a, n in zip(first, noisy, strict=True)) for state in fresh]
    assert not all(same), "fresh states are all equal"


def _state_is_numbers_of_fixed_size(specimen: Specimen) -> None:
    """The state has integers and arrays only, and its size does not depend on the stream."""
    monitor = Monitor(specimen.algorithm)
    initial_size = len(monitor.to_bytes())
    _feed(monitor, specimen)
    for declared in fields(monitor.state):
        value = getattr(monitor.state, declared.name)
        assert isinstance(value, int | np.ndarray), f"state field {declared.name} is neither integer nor array"
        assert not isinstance(value, np.ndarray) or value.dtype.kind in "iu", f"{declared.name} is not integral"
    data = monitor.to_bytes()
    assert len(data) == initial_size, "the state grew with the stream"
    assert specimen.canary.encode() not in data, "an item is stored in the state"


def _errors_are_free_of_data(specimen: Specimen) -> None:
    """A bad batch raises InvalidBatch, and neither its message nor its chained exceptions contain an item."""
    for batch in specimen.bad:
        with _assert_raises(InvalidBatch, "a bad batch was accepted") as caught:
            update(**batch).call(specimen.algorithm.batch)
        chain: BaseException | None = caught[0]
        while chain is not None:
            assert specimen.canary not in str(chain), f"the message shows an item: {type(chain).__name__}"
            chain = chain.__cause__ or chain.__context__


def _bad_batch_changes_nothing(specimen: Specimen) -> None:
    """A rejected batch leaves the state unchanged, bit by bit."""
    monitor = Monitor(specimen.algorithm)
    _feed(monitor, specimen)
    initial_state = snapshot(copy.deepcopy(monitor.state))
    for batch in specimen.bad:
        with _assert_raises(InvalidBatch, "a bad batch was accepted"):
            _update(monitor, batch)
        assert snapshot(monitor.state) == initial_state, "a refused batch changed the state"


def _bytes_round_trip(specimen: Specimen) -> None:
    """Bytes are read back as the same algorithm and state, with the same count of releases."""
    monitor = Monitor(specimen.algorithm, rng=SeededSource(3))
    _feed(monitor, specimen)
    data = monitor.to_bytes()
    restored = Monitor[Any].from_bytes(data, rng=SeededSource(4))
    assert restored.algorithm == specimen.algorithm, "the parameters changed"
    assert restored.to_bytes() == data, "the state changed"
    if not isinstance(specimen.algorithm, Continual):
        _exhaust(restored)
        reread = Monitor[Any].from_bytes(restored.to_bytes())
        with _assert_raises(BudgetExhausted, "bytes forgot the count of releases"):
            reread.release()


def _a_step_depends_on_state_and_input_only(specimen: Specimen) -> None:
    """A step depends on state and input only, so inputs may depend on earlier answers (docs/proofs/adaptive.md)."""
    monitor = Monitor(specimen.algorithm, rng=SeededSource(5))
    for batch in (*specimen.batches, *specimen.batches):
        restored = Monitor[Any].from_bytes(monitor.to_bytes(), rng=SeededSource(6))
        monitor._rng = SeededSource(6)
        for candidate in (monitor, restored):
            _update(candidate, batch)
        assert snapshot(monitor.state) == snapshot(restored.state), "an update depends on something outside the state"
    restored = Monitor[Any].from_bytes(monitor.to_bytes(), rng=SeededSource(7))
    monitor._rng = SeededSource(7)
    answers = [_conclude(candidate) for candidate in (monitor, restored)]
    assert answers[0].released == answers[1].released, "an answer depends on something outside the state"
    assert snapshot(monitor.state) == snapshot(restored.state), "an answer depends on something outside the state"
    claim = specimen.algorithm.claim()
    proved = claim.delta == 0.0 or specimen.algorithm.window_loss().rho_joint is not None
    assert claim.inputs == "fixed" or proved, "adaptive inputs and a delta: only zCDP proves both"


def _copies_share_their_releases(specimen: Specimen) -> None:
    """A published answer cannot be published again from a copy, and only bytes can be copied."""
    monitor = Monitor(specimen.algorithm)
    _feed(monitor, specimen)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with _assert_raises(NotSupported, "a monitor was copied"):
            copied(monitor)
    data = monitor.to_bytes()
    early, late = (Monitor[Any].from_bytes(data) for _ in range(2))
    _conclude(monitor)
    for behind in (early, late, Monitor[Any].from_bytes(data)):
        with _assert_raises(BudgetExhausted, "a copy was released beside the original"):
            _conclude(behind)
    assert len(data) == len(monitor.to_bytes()), "the number of releases shows in the size of the bytes"


def _damaged_bytes_are_refused(specimen: Specimen) -> None:
    """Cut, altered, foreign or newer bytes raise InvalidBytes and nothing else."""
    data = Monitor(specimen.algorithm).to_bytes()
    damaged = [b"", b"PANSTRM", data[:-1], data[: len(data) // 2], data + b"x", b"NOTMINE1" + data[8:]]
    damaged += [b"PANSTRM9" + data[8:]]
    for position in range(0, len(data), max(1, len(data) // 50)):
        damaged.append(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
    for bad in damaged:
        with _assert_raises(InvalidBytes, "damaged bytes were read"):
            Monitor[Any].from_bytes(bad)


def _seeded_runs_are_identical(specimen: Specimen) -> None:
    """The same seed gives the same answer, with a claim of infinite epsilon."""
    answers = []
    for _ in range(2):
        monitor = Monitor(specimen.algorithm, rng=SeededSource(11))
        _feed(monitor, specimen)
        answers.append(_conclude(monitor))
    first, second = ((answer.value, *answer.interval(), answer.released) for answer in answers)
    assert str(first) == str(second), "two runs with one seed differ"
    assert answers[0].claim.epsilon == math.inf, "a seeded run claims privacy"


def _default_source_is_secure(specimen: Specimen) -> None:
    """By default a monitor draws from a secure noise source that is new in every call."""
    monitor = specimen.algorithm.start()
    first = monitor._step()
    second = monitor._step()
    assert first.is_secure, "the default source is not secure"
    assert first is not second, "a source is kept between two steps"
    assert monitor.claim().epsilon == specimen.algorithm.claim().epsilon


def _further_release_is_refused(specimen: Specimen) -> None:
    """After the claimed number of releases, another raises BudgetExhausted, also after updates and a refresh."""
    if isinstance(specimen.algorithm, Continual):
        return
    monitor = Monitor(specimen.algorithm)
    _feed(monitor, specimen)
    _exhaust(monitor)
    last = monitor.last_release
    with _assert_raises(BudgetExhausted, "one release too many"):
        monitor.release()
    with contextlib.suppress(BudgetExhausted):  # some take no rows after the last release
        _feed(monitor, specimen)
    with _assert_raises(BudgetExhausted, "an update bought a release"):
        monitor.release()
    with contextlib.suppress(NotSupported, BudgetExhausted):
        monitor.refresh(rows_since_copy=False)
    with _assert_raises(BudgetExhausted, "a refresh bought a release"):
        monitor.release()
    assert monitor.last_release is last, "a refused release changed last_release"


def _zero_noise_is_exact(specimen: Specimen) -> None:
    """With epsilon = inf the answer is exact, and so is the claim: infinite epsilon."""
    if specimen.noiseless is None:
        return
    monitor = Monitor(specimen.noiseless)
    _feed(monitor, specimen)
    estimate = _conclude(monitor)
    if estimate.has_no_value:
        low, high = estimate.interval()
        assert low <= specimen.truth <= high, "zero noise, and the truth is outside"
    else:
        assert math.isclose(estimate.value, specimen.truth, rel_tol=1e-9, abs_tol=1e-9), "zero noise is not exact"
    assert estimate.claim.epsilon == math.inf, "zero noise claims privacy"


def _error_bound_covers(specimen: Specimen) -> None:
    """The error bound is exceeded no more often than it states (one run in a million fails by chance)."""
    bound = specimen.algorithm.error_bound(beta=_BETA)
    rng = SeededSource(17)
    failures = 0
    for _ in range(_RUNS):
        monitor = Monitor(specimen.algorithm, rng=rng)
        _feed(monitor, specimen)
        estimate = _conclude(monitor)
        value = estimate.value if math.isnan(estimate.unbiased) else estimate.unbiased
        low, high = (value - bound, value + bound) if not estimate.has_no_value else estimate.interval(1 - _BETA)
        failures += not low <= specimen.truth <= high
    allowed = _binomial_quantile(_RUNS, _BETA)
    assert failures <= allowed, f"the error bound failed in {failures} of {_RUNS} runs, {allowed} allowed"


def _merge(specimen: Specimen) -> None:
    """Merging consumes both inputs, agrees with the truth, and rejects itself and other keys."""
    if specimen.other_key is None:
        return
    rng = SeededSource(23)
    errors = []
    truth = specimen.truth if specimen.truth_twice is None else specimen.truth_twice
    for _ in range(40):
        first, second = (Monitor(specimen.algorithm, rng=rng) for _ in range(2))
        _feed(first, specimen)
        _feed(second, specimen)
        merged = first.merge(second)
        estimate = _conclude(merged)
        errors.append((estimate.value - truth) / estimate.standard_error)
    assert abs(float(np.mean(errors))) < 5 / math.sqrt(40) + 0.5, "merged answers are biased"
    for consumed in (first, second):
        with _assert_raises(NotSupported, "a merge left an input alive"):
            consumed.to_bytes()
    fresh = Monitor(specimen.algorithm)
    for partner in (fresh, Monitor(specimen.other_key)):
        with _assert_raises(MergeError, "merged with itself or with another key"):
            fresh.merge(partner)


CHECKS: tuple[Callable[[Specimen], None], ...] = (
    _state_fields_are_declared,
    _start_is_already_noised,
    _state_is_numbers_of_fixed_size,
    _errors_are_free_of_data,
    _bad_batch_changes_nothing,
    _bytes_round_trip,
    _a_step_depends_on_state_and_input_only,
    _copies_share_their_releases,
    _damaged_bytes_are_refused,
    _seeded_runs_are_identical,
    _default_source_is_secure,
    _further_release_is_refused,
    _zero_noise_is_exact,
    _error_bound_covers,
    _merge,
)


@contextlib.contextmanager
def _assert_raises(kind: type[PanstreamError], complaint: str) -> Iterator[list[PanstreamError]]:
    """Fail with the complaint unless the block raises ``kind``; the error is in the list afterwards."""
    caught: list[PanstreamError] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, complaint


def _update(monitor: Monitor[Any], batch: Mapping[str, Any]) -> None:
    update(**batch).call(monitor.update)


def _feed(monitor: Monitor[Any], specimen: Specimen) -> None:
    for batch in specimen.batches:
        _update(monitor, batch)


def _conclude(monitor: Monitor[Any]) -> Estimate:
    return monitor.tick() if isinstance(monitor.algorithm, Continual) else monitor.release()


def _exhaust(monitor: Monitor[Any]) -> None:
    for _ in range(monitor.algorithm.claim().releases):
        monitor.release()


def _binomial_quantile(trials: int, rate: float, alpha: float = 1e-6) -> int:
    """Return the smallest k with P(Binomial > k) at most ``alpha``."""
    tail = 0.0
    k = trials
    while k > 0:
        tail += math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        if tail > alpha:
            return k
        k -= 1
    return 0
