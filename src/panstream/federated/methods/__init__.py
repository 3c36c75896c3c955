"""Ways to learn one network from several holders; each is a frozen value with ``run(federation)``."""
