"""Where state and releases live on disk: one readable copy of the state, and a public log of what was published.

Here belong the snapshot with its keys (``snapshot``, ``record``, ``sealed``) and the way to its files (``disk``), the
log (``releases``) and the ledger beside a data file (``ledger_file``). What is in a snapshot, and when it is written,
the engine decides; nothing here knows a query.
"""

from panstream.engine.storage.release_log import ReleaseLog
from panstream.engine.storage.snapshot_store import SnapshotStore

__all__ = ["ReleaseLog", "SnapshotStore"]
