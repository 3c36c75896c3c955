"""Columns of strings and of 64-bit integers in Parquet files, read page by page into memory of our own.

pyarrow decodes such a column slower than it is hashed, and keeps what it decodes until it needs the room. ``pages``
finds and unpacks pages; ``columns`` goes from one to the next and decodes strings, ``numbers`` integers, and ``words``
the codes of columns with few different strings. Ids stay where they are until it is known which are needed: those that
no WHERE keeps are never copied, and pages are overwritten as soon as they were read.
"""
