"""First mistakes of users: a number in quotes, a monitor that was not started, an epsilon that hides nothing."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import panstream
from panstream.algorithms.density import OptBern
from panstream.errors import InvalidParameter
from tests.conformance.specimens import specimens

ALGORITHMS = {type(specimen.algorithm): specimen.algorithm for specimen in specimens()}
STATISTICS = [
    panstream.DistinctCount(epsilon=1.0),
    panstream.TopItems(1.0),
    panstream.ContinualDistinct(epsilon=1.0, horizon=8),
]
EVERY = pytest.mark.parametrize(
    "algorithm", [*ALGORITHMS.values(), *STATISTICS], ids=lambda algorithm: type(algorithm).__name__
)


@EVERY
@pytest.mark.parametrize("value", ["1", None, [1]], ids=repr)
def test_a_number_that_is_none_is_named(algorithm: Any, value: object) -> None:
    if "epsilon" not in algorithm.__dataclass_fields__:
        return  # a merged algorithm, which users do not construct
    with pytest.raises(InvalidParameter, match="epsilon must be a number"):
        replace(algorithm, epsilon=value)


@EVERY
@pytest.mark.parametrize(
    "call", [lambda algorithm: algorithm.update([1]), lambda algorithm: algorithm.release()], ids=["update", "release"]
)
def test_a_call_before_start_suggests_start(algorithm: Any, call: Any) -> None:
    with pytest.raises(AttributeError, match=rf"monitor = {type(algorithm).__name__}\(\.\.\.\)\.start\(\)"):
        call(algorithm)


def test_an_epsilon_that_hides_nothing_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="epsilon = 1000 hides almost nothing") as found:
        monitor = OptBern(epsilon=1000.0, universe=100).start()
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match="hides almost nothing"):
        panstream.DistinctCount(epsilon=1000.0, universe=100).start()
    with pytest.warns(UserWarning, match="hides almost nothing"):
        panstream.query(pa.table({"n": [1]}), "SELECT COUNT(*) FROM t", epsilon=1000.0)
    assert repr(monitor) == "<Monitor of OptBern: epsilon 1000 for one user>"
