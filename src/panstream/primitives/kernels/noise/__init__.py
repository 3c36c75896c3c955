"""Kernels that turn random bytes into exact integer noise."""
