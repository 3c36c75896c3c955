"""Where state and releases live on disk: one readable copy of the state, and a public log of what was published."""

from panstream.store.releases import ReleaseLog
from panstream.store.snapshot import SnapshotStore

__all__ = ["ReleaseLog", "SnapshotStore"]
