"""The first start says that it compiles, and a later one says nothing."""

import numpy as np
from numba import njit

from panstream.cli.compile_notice import compile_notice


def test_the_first_compilation_is_reported_and_its_time() -> None:
    @njit
    def inner(values: np.ndarray) -> float:
        return float(values[0])

    @njit
    def outer(values: np.ndarray) -> float:
        return inner(values) + 1.0

    told: list[str] = []
    with compile_notice(told.append):
        assert outer(np.zeros(3)) == 1.0
        assert told == ["compiling once for this machine ..."]
    assert len(told) == 2 and told[1].startswith("compiled ")
    with compile_notice(told.append):
        assert outer(np.ones(3)) == 2.0
    assert len(told) == 2, "nothing is compiled a second time"
