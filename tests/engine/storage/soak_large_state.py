"""A state of more than 2 GiB, which one call of the system neither reads nor writes. Part of make soak, not of make
test.
"""

from pathlib import Path

from panstream.engine.storage import SnapshotStore

SIZE = 2_200_000_000


def test_a_state_above_two_gibibytes(tmp_path: Path) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit({"a": b"first"})
        store.commit({"a": bytes(SIZE), "b": b"end"})
    with SnapshotStore(tmp_path) as store:
        found = store.load()
    assert found is not None
    assert (len(found["a"]), found["a"].count(0), found["b"]) == (SIZE, SIZE, b"end")
