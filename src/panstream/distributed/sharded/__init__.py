"""The same questions on many machines: shards that own disjoint cells, held by Dask workers.

Here belongs what divides states, moves cells and drives workers; what touches a cell is the algorithm's
(`panstream.core.shardable`). ``spark`` counts a column with Spark, under a weaker promise. Needs
``panstream[dask]``. See docs/howto/cluster.md; the claims are proved in docs/proofs/cluster.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panstream.distributed.sharded.dataframes import distinct, run

__all__ = ["distinct", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from panstream.distributed.sharded import dataframes as lakes

    return getattr(lakes, name)
