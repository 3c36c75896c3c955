"""The audit of the whole product: does anything besides noised numbers depend on one person's rows?

The mechanisms are audited in `panstream.audit`. Here the shipped commands run on neighbouring inputs, and
everything that an intruder or a reader can see of the two runs is compared: store and shard metadata, sizes, releases,
exit codes, output, logs, metrics, and what other senders are told. Noised numbers are masked; everything else must be
equal.
"""
