"""Statistics of integer updates of any sign, one modular counter per user or bucket."""
