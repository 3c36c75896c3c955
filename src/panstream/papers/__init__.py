"""What the papers print, for comparison: never the first choice for data.

Their partial-sum counters corrected, the literal forms (``Published...``) that claim their true loss and serve as
negative controls, and the figures that both are compared in.
"""
