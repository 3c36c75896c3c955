"""Counts, sums, means and variances published at every tick."""
