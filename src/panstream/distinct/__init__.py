"""Distinct count on an open universe: any ids, mergeable."""
