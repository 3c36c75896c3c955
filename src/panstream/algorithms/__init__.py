"""One module per algorithm, grouped by the question it answers."""
