"""Batches of parsed rows: columns, filters, wiping."""
