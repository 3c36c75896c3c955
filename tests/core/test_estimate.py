"""Estimates: intervals against scipy, text, JSON and HTML."""

import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from panstream import Claim, Estimate
from panstream.core.estimate import Estimates, bisect_decreasing, normal_laplace_quantile
from panstream.errors import InvalidParameter

CLAIM = Claim(epsilon=1.0, unit="user")


def normal_laplace_tail(x: float, sigma: float, kappa: float) -> float:
    """P(Normal + Laplace > x) by numerical integration over the normal part."""
    laplace = stats.laplace(scale=1 / kappa)
    points = sorted({x, 0.0})
    value, _ = integrate.quad(
        lambda z: stats.norm.pdf(z, scale=sigma) * laplace.sf(x - z), -12 * sigma, 12 * sigma, points=points, limit=500
    )
    return float(value)


@pytest.mark.parametrize("tail", [0.2, 0.025, 1e-4, 1e-9])
@pytest.mark.parametrize(("sigma", "kappa"), [(1.0, 1.0), (50.0, 0.1), (1.0, 0.01), (100.0, 5.0), (3.0, 30.0)])
def test_quantile_against_numerical_integration(tail: float, sigma: float, kappa: float) -> None:
    x = normal_laplace_quantile(tail, sigma, kappa)
    if kappa * sigma < 50:
        assert normal_laplace_tail(x, sigma, kappa) == pytest.approx(tail, rel=1e-5)
    else:
        assert x == pytest.approx(sigma * stats.norm.isf(tail), rel=1e-3)


def test_quantile_limits() -> None:
    assert normal_laplace_quantile(0.025, 2.0, math.inf) == pytest.approx(2.0 * stats.norm.isf(0.025))
    assert normal_laplace_quantile(0.025, 0.0, 0.5) == pytest.approx(stats.laplace(scale=2.0).isf(0.025))


@settings(max_examples=50)
@given(st.floats(-5, 5), st.floats(0.1, 9.0))
def test_falling_root(root: float, slope: float) -> None:
    argument = bisect_decreasing(lambda x: slope * (root - x) ** 3, -6.0, 6.0)
    assert abs(slope * (root - argument) ** 3) <= 1e-9 or argument == pytest.approx(root, abs=1e-6)
    assert bisect_decreasing(lambda x: -1.0, 0.0, 1.0) == 0.0
    assert bisect_decreasing(lambda x: 1.0, 0.0, 1.0) == 1.0


def test_value_is_moved_into_its_support_and_the_unbiased_one_is_kept() -> None:
    estimate = Estimate.clipped(-0.2, (0.0, 1.0), standard_error=0.3, claim=CLAIM, name="density")
    assert (estimate.value, estimate.unbiased) == (0.0, -0.2)
    low, high = estimate.interval()
    assert low == 0.0
    assert high == pytest.approx(-0.2 + 1.959964 * 0.3)
    assert float(estimate) == 0.0


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5])
def test_bad_levels_are_named(level: float) -> None:
    with pytest.raises(InvalidParameter, match="level must be in"):
        Estimate(value=1.0, standard_error=1.0, claim=CLAIM).interval(level)


def test_scaled_keeps_the_interval_rule() -> None:
    estimate = Estimate.clipped(
        0.5, (0.0, 1.0), standard_error=0.1, claim=CLAIM, interval_rule=lambda level: (0.4, 0.5 + level / 4)
    )
    users = estimate.scaled(200, "users")
    assert users.value == 100
    assert users.interval(0.8) == pytest.approx((80.0, 140.0))
    assert users.support == (0.0, 200.0)
    with pytest.raises(InvalidParameter, match="factor must be positive"):
        estimate.scaled(0, "nothing")


def test_text_json_and_html() -> None:
    estimate = Estimate.clipped(1234.5, (0.0, 1e9), standard_error=10.0, claim=CLAIM, name="<users>")
    assert "1,234" in str(estimate) or "1,235" in str(estimate)
    assert "epsilon 1" in str(estimate)
    data = json.loads(json.dumps(estimate.to_json(), allow_nan=False))
    assert data["interval"] == pytest.approx([1234.5 - 19.59964, 1234.5 + 19.59964])
    assert "one user" in estimate._repr_html_()
    assert "<users>" not in estimate._repr_html_()
    no_privacy = Estimate(value=1.0, standard_error=0.0, claim=CLAIM.without_privacy("test"))
    assert "no privacy" in str(no_privacy)


def test_columns() -> None:
    columns = Estimates(unclipped=np.array([1.0, 2.0]), standard_error=np.array([0.5, 0.25]), claim=CLAIM, name="count")
    assert len(columns) == 2
    assert columns[1].value == 2.0
    low, high = columns.interval(0.95)
    assert (high - low) == pytest.approx(2 * 1.959964 * columns.standard_error)


def test_numbers_that_do_not_exist_are_null_in_json() -> None:
    nothing = Estimate(
        value=math.nan, standard_error=math.inf, claim=CLAIM, interval_rule=lambda level: (-math.inf, math.inf)
    )
    data = json.loads(json.dumps(nothing.to_json(), allow_nan=False))
    assert (data["value"], data["standard_error"], data["interval"]) == (None, None, [None, None])


def test_an_interval_is_cut_at_what_is_possible_and_never_a_point_by_accident() -> None:
    def answer(unclipped: float) -> Estimate:
        return Estimate.clipped(unclipped, (0.0, 24.0), standard_error=1.0, claim=CLAIM)

    reach = NormalDist().inv_cdf(0.975)
    assert (answer(-1.0).value, answer(-1.0).unclipped) == (0.0, -1.0)
    assert answer(-1.0).interval() == (0.0, pytest.approx(reach - 1.0))
    assert answer(-9.0).interval() == (0.0, pytest.approx(reach))
    assert answer(99.0).interval() == (pytest.approx(24.0 - reach), 24.0)
    assert answer(5.0).interval() == (pytest.approx(5.0 - reach), pytest.approx(5.0 + reach))
    assert Estimate.clipped(-9.0, (0.0, 24.0), standard_error=0.0, claim=CLAIM).interval() == (0.0, 0.0)
    assert answer(-1.0).to_json()["unclipped"] == -1.0
    assert answer(-1.0).within(0.5, 30.0).value == 0.5
    assert answer(-1.0).within(0.5, 30.0).unclipped == -1.0
    columns = Estimates(
        unclipped=np.array([-9.0, -1.0, 99.0]), standard_error=np.ones(3), claim=CLAIM, support=(0.0, np.full(3, 24.0))
    )
    assert columns.value.tolist() == [0.0, 0.0, 24.0]
    for at, unclipped in enumerate((-9.0, -1.0, 99.0)):
        assert columns[at].interval() == pytest.approx(answer(unclipped).interval())
        assert tuple(end[at] for end in columns.interval()) == pytest.approx(answer(unclipped).interval())
