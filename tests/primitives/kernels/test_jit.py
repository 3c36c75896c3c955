"""Kernels import numba when the first of them runs, and not before."""

import pickle
import subprocess
import sys

import numpy as np

from panstream.primitives.kernels.jit import instruction, njit, part
from panstream.primitives.kernels.sources.row_windows import running_maximum

ones = instruction("panstream.primitives.kernels.machine_word_instructions", "ones")


@part
def _bits(word: np.uint64) -> np.uint64:
    return ones(word)  # type: ignore[no-any-return]


@njit(nogil=True)
def count_bits(words: np.ndarray) -> int:  # type: ignore[type-arg]
    """Count the set bits of all words."""
    total = 0
    for i in range(words.size):
        total += np.int64(_bits(words[i]))
    return total


def test_kernels_call_each_other_and_instructions() -> None:
    words = np.array([0, 1, 7, 2**64 - 1], np.uint64)
    assert count_bits(words) == 0 + 1 + 3 + 64
    assert count_bits.__doc__ == "Count the set bits of all words."
    assert count_bits.py_func.__name__ == "count_bits"
    assert len(count_bits.signatures) == 1  # an attribute of numba's dispatcher


def test_a_kernel_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(running_maximum)) is running_maximum


def test_importing_the_query_function_imports_no_numba() -> None:
    script = "import sys, panstream; panstream.query; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
