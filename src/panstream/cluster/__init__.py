"""The same questions on many machines: shards that own disjoint cells, held by Dask workers.

Needs ``panstream[dask]``. See docs/howto/cluster.md; the claims are proved in docs/proofs/cluster.md.
"""
