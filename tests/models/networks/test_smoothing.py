"""Smoothing along bins: against a direct solution, harmless where there is a spike, helpful where there is a curve."""

import numpy as np
import pytest
from scipy import stats

from panstream.models.networks import Bins, Domain
from panstream.models.networks.forest_fit import fit_forest
from panstream.models.networks.noisy_tables import NoisyTable, _ordered_cells, smooth

AGES = Domain({"age": Bins(range(31)), "sex": ["f", "m"]})
CURVE = 4000.0 * np.exp(-0.5 * ((np.arange(30) - 12.0) / 6.0) ** 2)


def test_it_is_the_expectation_under_the_most_likely_roughness() -> None:
    noisy = CURVE + np.random.default_rng(1).normal(0, 200, 30)
    sigma = 200.0
    found, left = smooth(AGES, (0,), noisy, sigma)
    second = np.diff(np.eye(30), 2, axis=0)

    def evidence(ratio: float) -> float:
        spread = sigma**2 * second @ second.T + ratio * sigma**2 * np.eye(28)
        return float(stats.multivariate_normal.logpdf(second @ noisy, np.zeros(28), spread))

    ratio = max(np.geomspace(1e-4, 1e12, 97), key=evidence)
    direct = np.linalg.solve(np.eye(30) + second.T @ second / ratio, noisy)
    np.testing.assert_allclose(found, direct, rtol=1e-9)
    hat = np.linalg.inv(np.eye(30) + second.T @ second / ratio)
    assert left == pytest.approx(sigma * np.sqrt((hat @ hat.T).trace() / 30))


def test_curves_gain_and_spikes_stay() -> None:
    rng = np.random.default_rng(2)
    spikes = np.zeros(30)
    spikes[[3, 11, 25]] = 20_000.0
    gain = []
    harm = []
    for _ in range(30):
        noise = rng.laplace(0, 200, 30)
        for truth, ratios in ((CURVE, gain), (spikes, harm)):
            found, _ = smooth(AGES, (0,), truth + noise, 200 * 2**0.5)
            ratios.append(np.abs(found - truth).sum() / np.abs(noise).sum())
    assert np.mean(gain) < 0.6
    assert np.mean(harm) < 1.02


def test_two_way_tables_are_smoothed_along_bins_only() -> None:
    rng = np.random.default_rng(3)
    truth = np.column_stack([CURVE, CURVE[::-1]])
    noisy = truth + rng.normal(0, 150, truth.shape)
    found, left = smooth(AGES, (0, 1), noisy, 150.0)
    turned, same = smooth(AGES, (1, 0), noisy.T, 150.0)
    np.testing.assert_allclose(found, turned.T)
    assert same == left < 150
    assert np.abs(found - truth).sum() < 0.7 * np.abs(noisy - truth).sum()


def test_where_there_is_no_order_nothing_changes() -> None:
    plain = Domain({"a": [str(value) for value in range(30)], "few": Bins([0, 1, 2, 3])})
    for attributes, shape in (((0,), (30,)), ((1,), (3,)), ((0, 1), (30, 3))):
        counts = np.random.default_rng(4).normal(100, 30, shape)
        found, left = smooth(plain, attributes, counts, 30.0)
        np.testing.assert_array_equal(found, counts)
        assert left == 30.0
    np.testing.assert_array_equal(smooth(AGES, (0,), CURVE, 0.0)[0], CURVE)


def test_a_missing_value_is_no_bin() -> None:
    domain = Domain({"age": Bins(range(31))}, missing={"age": "unknown"})
    assert (_ordered_cells(domain, 0), domain.sizes[0]) == (30, 31)
    counts = np.append(CURVE + np.random.default_rng(5).normal(0, 200, 30), 9_000.0)
    found, _ = smooth(domain, (0,), counts, 200.0)
    assert found[30] == 9_000.0
    assert abs(found[29] - CURVE[29]) < 600


def test_a_fit_uses_it() -> None:
    noise = np.random.default_rng(6).normal(0, 300, 30)
    n = int(CURVE.sum())
    ages = Domain({"age": Bins(range(31))})
    plain = Domain({"age": [str(value) for value in range(30)]})
    error = [
        np.abs(fit_forest(each, n, [NoisyTable((0,), CURVE + noise, 300.0)]).tables[0] - CURVE / n).sum()
        for each in (ages, plain)
    ]
    assert error[0] < 0.7 * error[1]
