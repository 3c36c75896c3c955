"""Bayesian networks, learned from one table or from several data holders."""
