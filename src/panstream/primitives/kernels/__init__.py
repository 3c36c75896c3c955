"""Compiled loops over arrays: no policy, no validation, no randomness of their own.

Every function here expects contiguous arrays whose bounds the caller has checked.
"""
