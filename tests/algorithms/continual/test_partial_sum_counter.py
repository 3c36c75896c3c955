"""What the counters of the papers share: errors in the units of the data."""

import math

import pytest

from panstream.core.monitor import Monitor
from panstream.papers.counters.simple_counters import SimpleCounterII
from panstream.primitives.noise import SeededSource
from tests.exact_law import laplace_sum


@pytest.mark.parametrize("fraction_bits", [0, 1, 5])
def test_standard_errors_are_in_the_units_of_the_data(fraction_bits: int) -> None:
    """Three slots of one step each hold one draw each, of 2**fraction_bits steps to the unit."""
    counter = SimpleCounterII(
        epsilon=0.7, upper=1.0, resolution=2.0**-fraction_bits if fraction_bits else None, one_step_ticks=True
    )
    monitor = Monitor(counter, rng=SeededSource(1))
    said = monitor.tick_many([1.0, 0.0, 1.0] if fraction_bits else [1, 0, 1]).standard_error[-1]
    values, chances = laplace_sum(3, 0.7 / 2**fraction_bits)
    expected = math.sqrt(float(chances @ values**2)) / 2**fraction_bits
    assert monitor.release().standard_error == pytest.approx(expected, rel=1e-6)
    assert said == pytest.approx(expected, rel=1e-6)
