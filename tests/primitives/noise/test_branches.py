"""No jump in the compiled samplers depends on the draw: compilers may turn any comparison into a jump.

Random words are compared as unsigned numbers or by the sign of a difference; loops end by signed or equal counters, and
ties are equal. So no jump may test a sign, or follow an unsigned comparison unless with a constant.
"""

import platform
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.noise.gaussian_rejection import add_from_candidates
from panstream.primitives.kernels.noise.inversion_table import add_from_table
from panstream.primitives.kernels.noise.laplace_digits import add_from_digits
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace
from panstream.primitives.noise._gaussian_rejection import candidates_of
from panstream.primitives.noise._inversion_table import draw_table
from panstream.primitives.noise._laplace_digits import digit_coins

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86-64 instructions")

LAW = DiscreteGaussian.at_least(400.0)
VALUES = np.zeros(2, np.int64)
UNDECIDED = np.zeros(2, np.int64)
WORDS = np.zeros(400, np.uint64)


def of_candidates() -> tuple[Any, ...]:
    drawn = candidates_of(LAW)
    shape = (np.uint64(LAW.numerator or 0), np.uint64(drawn.block_bits), drawn.number)
    return VALUES, WORDS, drawn.starts, drawn.high, drawn.low, *shape, UNDECIDED


def of_table() -> tuple[Any, ...]:
    table = draw_table(LAW)
    assert table is not None
    return VALUES, WORDS, table.bounds, table.guide, table.digits, table.reach, UNDECIDED


def of_digits() -> tuple[Any, ...]:
    return VALUES, WORDS, *digit_coins(DiscreteLaplace.at_most(0.1)), UNDECIDED


def searched(values: NDArray[np.int64], words: NDArray[np.uint64], bounds: NDArray[np.uint64]) -> None:
    """Draw from a table with a search that is longer for larger noise."""
    for i in range(values.size):
        size = 0
        while words[i] > bounds[size]:
            size += 1
        values[i] += size


def jumps(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    """Return the jumps in a compiled function that test an unsigned comparison with a variable, or a sign."""
    compiled = njit(nogil=True)(function)
    compiled(*arguments)
    (text,) = compiled.inspect_asm().values()
    body = text[text.index(f"{function.__name__}") :]
    lines = [line.strip() for line in body.splitlines()]
    branches = []
    compared = ""
    for line in lines[: next(at for at, line in enumerate(lines) if line.startswith((".size", ".Lfunc_end")))]:
        if re.match(r"(cmp|test|sub|add|and|dec|inc|sar|shr|xor|or)[bwlq]?\s", line):
            compared = line
        unsigned = re.match(r"j(a|ae|b|be|c|nc)\s", line) and not re.match(r"cmp[bwlq]\s+\$", compared)
        if unsigned or re.match(r"j(s|ns)\s", line):
            branches.append(f"{compared}; {line}")
    return branches


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [(add_from_candidates, of_candidates), (add_from_table, of_table), (add_from_digits, of_digits)],
    ids=["candidates", "table", "digits"],
)
def test_no_jump_depends_on_what_is_drawn(kernel: Any, arguments: Callable[[], tuple[Any, ...]]) -> None:
    assert jumps(kernel.py_func, arguments()) == []


def test_a_search_that_is_longer_for_larger_noise_is_seen() -> None:
    assert jumps(searched, (VALUES, WORDS, np.array([5, 1 << 63], np.uint64)))
