"""Kernels that route rows to shards."""
