"""Tests, in the folders of the packages they test; helpers are imported as ``tests.…``."""
