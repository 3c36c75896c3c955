"""Kernels of the hash functions and of the tables that hashes index."""
