"""A store's file: it opens, or is refused; nothing else happens, whatever the disk gave back."""

import tempfile
from pathlib import Path

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.storage.snapshot_store import SnapshotStore
    from panstream.errors import PanstreamError

_FOLDER = Path(tempfile.mkdtemp(prefix="panstream-fuzz-"))
with SnapshotStore(_FOLDER) as _store:
    _store.commit({"state": b"noisy bits" * 100})
    _store.commit({"state": b"other bits" * 100})
(_FILE,) = [path for path in _FOLDER.iterdir() if path.stat().st_size > 4096]
_GOOD = _FILE.read_bytes()


def test_one_input(data: bytes) -> None:
    """The first bytes say where the others are written over a good file."""
    place = int.from_bytes(data[:3], "little") % len(_GOOD)
    cut = int.from_bytes(data[3:6], "little")
    body = _GOOD[:place] + data[6:] + _GOOD[place + len(data[6:]) :]
    _FILE.write_bytes(body[: cut % len(body)] if cut % 5 == 0 else body)
    try:
        with SnapshotStore(_FOLDER) as store:
            found = store.load()
    except PanstreamError:
        return
    assert found in (None, {"state": b"noisy bits" * 100}, {"state": b"other bits" * 100})


if __name__ == "__main__":
    fuzzing.run(test_one_input)
