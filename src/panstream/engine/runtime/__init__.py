"""Running queries: micro-batches, windows, releases, checkpoints."""
