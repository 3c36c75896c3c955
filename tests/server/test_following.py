"""Files that grow, read by the server itself: every row counts once, through failing disks and restarts."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from panstream.errors import FeedError, InvalidParameter
from panstream.server.access import Limits
from panstream.server.serve import Settings, make_server
from panstream.store.snapshot import SnapshotStore
from server.server_live import Live, lines, served, write_config
from server.test_durable import until


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as out:
        out.write(data)


def rows_read(server: Live) -> int:
    """How far the engine, as it is now, has read; the last step may not be stored."""
    return sum(server.running.worker.engine.positions().values())


def test_rows_count_as_they_are_appended_and_never_twice(tmp_path: Path) -> None:
    config, file = write_config(tmp_path / "served"), tmp_path / "visits.json"
    append(file, lines(30))
    with served(config, follow=(str(file),)) as server:
        until(lambda: rows_read(server) == 30)
        append(file, lines(20, start=30))
        until(lambda: rows_read(server) == 50)
        assert server.rows() == 50
        assert server.post(lines(5)).status == 200, "rows may come both ways"
        facts = server.get("/v1/queries").json["queries"][0]["claim"]["public"]
        assert "how far every file was read" in facts
    append(file, lines(10, start=50))
    with served(config, follow=(str(file),)) as server:
        until(lambda: rows_read(server) == 60)
        assert server.rows() == 65


def test_a_step_that_cannot_be_stored_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full for three commits while rows come; none is lost or counted twice."""
    config, file, failed = write_config(tmp_path / "served"), tmp_path / "visits.json", list[OSError]()
    file.touch()
    real = SnapshotStore.commit

    def full(store: SnapshotStore, parts: Any, **options: Any) -> None:
        if file.stat().st_size and len(failed) < 3:
            failed.append(OSError(28, "No space left on device"))
            raise failed[-1]
        real(store, parts, **options)

    monkeypatch.setattr(SnapshotStore, "commit", full)
    with served(config, follow=(str(file),)) as server:
        for part in range(20):
            append(file, lines(10, start=10 * part))
        until(lambda: len(failed) == 3 and rows_read(server) == 200)
        assert server.rows() == 200


def test_what_cannot_be_followed_stops_the_server(tmp_path: Path) -> None:
    config = write_config(tmp_path / "served")
    (tmp_path / "packed.json").write_bytes(b"\x1f\x8b and so on")
    settings = Settings(port=0, limits=Limits(), follow=(str(tmp_path / "packed.json"),))
    with pytest.raises(FeedError, match="a compressed file cannot be followed"):
        make_server(config, settings).run_until_stopped()


def test_streams_elsewhere_are_not_followed(tmp_path: Path) -> None:
    settings = Settings(port=0, limits=Limits(), follow=("redis://127.0.0.1/0#visits",))
    with pytest.raises(InvalidParameter, match="only files and standard input"):
        make_server(write_config(tmp_path), settings)


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_a_followed_log_has_a_dashboard(tmp_path: Path, piped: bool) -> None:
    """``panstream web --logs --follow`` answers over HTTP while the log grows; a log of any name will do."""
    log, command = tmp_path / "access", [sys.executable, "-m", "panstream.cli", "web", "--site", "example.org"]
    command += ["--epsilon", "200", "--logs", "-" if piped else str(log), "--follow"]
    subprocess.run([*command, "--out", "example.org.toml"], cwd=tmp_path, check=True, capture_output=True)
    file = tmp_path / "example.org.toml"
    text = file.read_text().replace('window = "1 hour"', 'window = "2 seconds"')
    file.write_text(text.replace('lateness = "1 minute"', 'lateness = "1 second"'))
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline() + process.stdout.readline()
            found = re.search(rb"http://([\d.]+):(\d+)", said)
            assert found is not None, said
            live = Live(found[1].decode(), int(found[2]), None)

            def write(method: str, count: int) -> None:
                when = datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
                line = f' - - [{when}] "{method} /a HTTP/1.1" 200 9 "-" "Firefox"\n'
                data = "".join(f"10.0.0.{number}{line}" for number in range(count)).encode()
                if not piped:
                    append(log, data)
                elif process.stdin is not None:
                    process.stdin.write(data)
                    process.stdin.flush()

            def counted() -> bool:
                write("HEAD", 1)  # no page view: it only tells the time, as the traffic of a site does
                return views(live) >= 40

            write("GET", 40)
            until(counted)
            assert views(live) == 40
            assert live.get("/v1/queries").json["web"] == {"site": "example.org", "source": "log"}
            assert b"The counter reads these lines" in live.get("/privacy").body
        finally:
            process.terminate()


def views(live: Live) -> float:
    found = live.get("/v1/releases?limit=10000").json["releases"]
    return float(sum(each["value"] for each in found if each["query"] == "page views per hour"))
