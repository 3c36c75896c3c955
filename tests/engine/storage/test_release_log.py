"""The public log: append-only, idempotent, and never two values for one release."""

from pathlib import Path

import pytest

from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.errors import StoreDamaged, StoreError


def release(number: int, value: float, query: str = "q") -> Release:
    return Release(
        query=query, number=number, time=f"2026-03-0{number}T00:00Z", record={"value": value, "unclipped": value}
    )


def test_append_read_and_reopen(tmp_path: Path) -> None:
    path = tmp_path / "releases.sqlite"
    with ReleaseLog(path) as log:
        assert log.last("q") is None
        assert log.publish(release(1, 1.5))
        assert log.publish(release(2, 2.5))
        assert log.publish(release(1, 9.0, "other"))
    with ReleaseLog(path) as log:
        assert log.last("q") == release(2, 2.5)
        assert [r.number for r in log.history("q")] == [1, 2]
        assert [r.number for r in log.history("q", after=1)] == [2]
        assert len(list(log.history())) == 3


def test_the_same_release_may_be_published_again_but_not_redrawn(tmp_path: Path) -> None:
    with ReleaseLog(tmp_path / "log") as log:
        assert log.publish(release(1, 1.5))
        assert not log.publish(release(1, 1.5))
        with pytest.raises(StoreError, match="never be drawn twice"):
            log.publish(release(1, 1.6))
        assert log.last("q") == release(1, 1.5)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"this is not a database at all, whatever it is called" * 40)
    with pytest.raises(StoreDamaged, match="release log cannot be used"):
        ReleaseLog(path)
