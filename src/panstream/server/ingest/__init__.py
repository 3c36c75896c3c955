"""From request bodies to applied batches: jobs, engine thread, wiping."""
