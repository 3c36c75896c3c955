"""Names that nobody listed beforehand, and how often each of them came.

Here belong the noised tables of prefixes and counts, their decoder, and the answers that they give.
"""
