"""Compiled loops over arrays: no policy, no validation, no randomness of their own.

Every function here expects contiguous arrays whose bounds the caller has checked. They are compiled for one of three
reasons, which the module or the function states: NumPy would need temporary arrays, which hold copies of rows that
nothing wipes; the loop depends on its own previous step; or the same instructions must run whatever the data are.
Kernels allocate nothing of a size that depends on values, only on the sizes of their arguments.
"""
