"""Formats of input: CSV, JSON lines, access logs, Arrow, Parquet."""
