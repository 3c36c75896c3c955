"""Choose the algorithm of each parsed query, and compute its claim and expected error."""
