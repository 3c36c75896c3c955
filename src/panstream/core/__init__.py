"""What every algorithm implements or returns: Algorithm, Monitor, Estimate."""
