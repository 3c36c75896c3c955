"""Statistics whose cells two machines hold as shares: the arithmetic, the rules of each kind of cell, one party's part
of a step, and the statistics themselves. Who talks to whom, and what is on disk when, is not here.
"""
