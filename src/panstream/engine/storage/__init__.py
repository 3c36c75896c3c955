"""State and releases on disk: one readable copy of the state, and a public log of the releases.

``snapshot_store`` holds the encrypted checkpoint and its keys (``_key_record``, ``sealed_box``) and accesses files
through ``disk``; ``release_log`` is the log, ``ledger_file`` the ledger next to a data file. What a checkpoint contains
and when it is written is decided by ``engine.runtime``.
"""

from panstream.engine.storage.release_log import ReleaseLog
from panstream.engine.storage.snapshot_store import SnapshotStore

__all__ = ["ReleaseLog", "SnapshotStore"]
