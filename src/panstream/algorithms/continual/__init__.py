"""Counts, sums, means, variances, quantiles, windows and decayed sums, published at every tick.

Here belong the algorithms that release at ticks, the trees of noisy sums they run on, and the errors of their answers.
The papers' own counters are in `panstream.papers`.
"""
