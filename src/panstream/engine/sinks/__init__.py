"""Where releases are copied to."""
