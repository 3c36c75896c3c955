"""From a parsed query to the algorithm that answers it and what it costs."""
