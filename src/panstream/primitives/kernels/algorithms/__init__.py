"""Kernels of the algorithms' states."""
