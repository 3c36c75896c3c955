"""The audit of the product: check that only noised numbers depend on one user's rows.

The mechanisms are audited in `panstream.audit.claims`. This package runs the shipped commands on neighbouring inputs
and compares everything that an attacker or a reader can see of the two runs: store and shard metadata, sizes, releases,
exit codes, output, logs, metrics, and responses to other senders. Noised numbers are masked; everything else must be
equal.
"""
