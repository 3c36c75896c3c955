"""Columns of strings in Parquet files, read page by page into memory of our own.

pyarrow decodes such a column slower than it is hashed, and keeps what it decodes until it needs the room. ``cursor`` goes from page to page;
``strings`` decodes rows, ``stored`` leaves ids in their pages until it is known which are needed.
"""
