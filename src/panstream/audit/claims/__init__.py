"""Audit of claims: exact losses and lower bounds."""
