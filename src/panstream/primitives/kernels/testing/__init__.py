"""Kernels of the memory scanner."""
