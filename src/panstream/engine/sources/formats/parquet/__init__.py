"""Columns of strings and of 64-bit integers in Parquet files, read page by page into memory of our own.

pyarrow takes 1.2 to 2.2 times as long to read such columns and to keep a third of the ids (CPU time, ids as strings or
integers, Zstd or Snappy, words in dictionaries), and holds what it decodes until it needs the room. ``pages`` reads and
unpacks pages, ``alike`` joins those that can be decoded together; ``columns`` goes from one to the next and decodes
strings, ``numbers`` integers, and ``words`` the codes of columns with few different strings. Ids stay where they are
until it is known which are needed: those that no WHERE keeps are never copied, and pages are overwritten as soon as
they were read.
"""
