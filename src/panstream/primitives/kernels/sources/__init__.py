"""Kernels that parse input."""
