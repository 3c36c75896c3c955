"""Files that grow, read by the server itself: every row counts once, through failing disks and restarts."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import SourceError
from panstream.server.auth import Limits
from panstream.server.server import ServerSettings, make_server
from panstream.testing.memory import make_needles, scan
from tests.server.server_live import Live, lines, served, write_config
from tests.waiting import PATIENCE, until


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as out:
        out.write(data)


def rows_read(server: Live) -> int:
    """How far the engine, as it is now, has read; the last step may not be stored."""
    return sum(server.running.worker.engine.positions().values())


def test_rows_count_as_they_are_appended_and_never_twice(tmp_path: Path) -> None:
    config = write_config(tmp_path / "served")
    file = tmp_path / "visits.json"
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
    config = write_config(tmp_path / "served")
    file = tmp_path / "visits.json"
    failed = list[OSError]()
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
    settings = ServerSettings(port=0, limits=Limits(), follow=(str(tmp_path / "packed.json"),))
    with pytest.raises(SourceError, match="a compressed file cannot be followed"):
        make_server(config, settings).run_until_stopped()


class FollowedLog:
    """``panstream web --logs --follow`` on a log of any name, with exact counts and windows of two seconds."""

    def __init__(self, folder: Path, site: str = "example.org", *, piped: bool = False) -> None:
        self.folder = folder
        self._piped = piped
        self._log = folder / "access"
        command = ["web", "--site", site, "--page-view", "2000", "--logs", "-" if piped else str(self._log), "--follow"]
        with contextlib.chdir(folder):
            written = CliRunner().invoke(app, [*command, "--out", f"{site}.toml"])
        assert written.exit_code == 0, written.output
        file = folder / f"{site}.toml"
        text = file.read_text().replace('window = "1 hour"', 'window = "2 seconds"')
        file.write_text(text.replace('lateness = "1 minute"', 'lateness = "1 second"'))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "panstream.cli.scannable", *command, "--listen", "127.0.0.1:0"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline() + self.process.stdout.readline()
        found = re.search(rb"http://([\d.]+):(\d+)", said)
        assert found is not None, said
        self.live = Live(found[1].decode(), int(found[2]), None)

    def write(self, data: str) -> None:
        """Append to the log."""
        if not self._piped:
            append(self._log, data.encode())
        elif self.process.stdin is not None:
            self.process.stdin.write(data.encode())
            self.process.stdin.flush()

    def views(self) -> float:
        """How many page views were published in all."""
        found = self.live.get("/v1/releases?limit=10000").json["releases"]
        return float(sum(each["value"] for each in found if each["query"] == "page views per hour"))

    def wait_for(self, views: int) -> None:
        """Wait until so many were published, while traffic goes on that is none and only tells the time."""

        pause = threading.Event()
        for _ in range(round(PATIENCE / 0.2)):
            self.write(line(method="HEAD"))
            if self.views() >= views:
                break
            pause.wait(0.2)  # every look has the server read all its answers
        assert self.views() == views

    def check_pages(self, site: str) -> None:
        """Assert that the dashboard and the privacy statement say where the visits come from."""
        assert self.live.get("/v1/queries").json["web"] == {"site": site, "source": "log"}
        assert b"The counter reads these lines" in self.live.get("/privacy").body

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


def line(host: str = "::1", page: str = "a", referrer: str = "-", agent: str = "Firefox", method: str = "GET") -> str:
    when = datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'{host} - - [{when}] "{method} /{page} HTTP/1.1" 200 9 "{referrer}" "{agent}"\n'


@pytest.mark.slow
def test_a_followed_log_has_a_dashboard(tmp_path: Path) -> None:
    """Here from a pipe; the next test follows a file."""
    log = FollowedLog(tmp_path, piped=True)
    try:
        log.write("".join(line(f"10.0.0.{number}") for number in range(40)))
        log.wait_for(40)
        log.check_pages("example.org")
    finally:
        log.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is scanned on Linux")
@pytest.mark.usefixtures("warm_scanner")
def test_nothing_of_a_followed_log_stays_behind(tmp_path: Path) -> None:
    """Hosts, pages, referrers and agents, in memory and in the store; half a line that waits shows that they would be
    found.
    """
    (control,) = make_needles(1, size=20)
    fields = [make_needles(150) for _ in range(4)]
    log = FollowedLog(tmp_path, f"{control}.example")
    given: dict[str, Any] = {"decoys": make_needles(100), "control": control.encode()}
    given["files"] = [tmp_path / f"{control}.example-state"]
    try:
        visits = zip(*fields, strict=True)
        log.write("".join(line(host, page, f"https://{of}/", agent) for host, page, of, agent in visits))
        log.wait_for(150)
        log.check_pages(f"{control}.example")
        (waiting,) = make_needles(1)
        log.write(waiting)
        until(lambda: bool(scan(log.process.pid, [waiting], **given).found))
        log.write(line(host=""))
        log.wait_for(151)
        assert not scan(log.process.pid, [waiting, *(each for field in fields for each in field)], **given).found
    finally:
        log.close()
