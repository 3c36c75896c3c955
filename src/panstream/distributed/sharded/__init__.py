"""Streams on a Dask cluster: shards on the workers own disjoint cells of the states.

This package partitions states, routes updates and drives workers; what an update does to a cell is up to the
algorithm (`panstream.core.shardable`). ``spark`` counts a column with Spark, under a weaker claim. Needs
``panstream[dask]``. See docs/howto/cluster.md; the claims are proved in docs/proofs/cluster.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.distributed.sharded.dask_setup import local_cluster as local_cluster
    from panstream.distributed.sharded.dataframes import distinct as distinct
    from panstream.distributed.sharded.dataframes import run as run

_MODULES = {
    "distinct": "panstream.distributed.sharded.dataframes",
    "local_cluster": "panstream.distributed.sharded.dask_setup",
    "run": "panstream.distributed.sharded.dataframes",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
