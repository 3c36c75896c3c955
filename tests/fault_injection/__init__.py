"""Leaks and secret recording, put into the product on purpose: positive controls for the audits.

They patch private names, so they fit exactly one commit, and they are not in the wheel. ``make audit-controls`` runs
all of them.
"""
