"""Kernels of Bayesian networks."""
