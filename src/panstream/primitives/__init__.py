"""Exact noise, keyed hashing, input conversion, wiped memory, numba kernels."""
