"""The papers' continual counters, with corrections that make their claims true."""
