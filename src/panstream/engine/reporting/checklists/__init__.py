"""Checklists of others, filled in from a configuration: ``panstream statement --for``."""
