"""Fraction of a known population that appeared: one noisy bit per sampled user."""
