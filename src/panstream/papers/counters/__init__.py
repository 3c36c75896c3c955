"""The papers' continual counters, made sound."""
