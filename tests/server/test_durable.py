"""200 means durable: through failing disks, kill -9 and a stop in the middle of traffic."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.storage.snapshot_store import SnapshotStore
from tests.server.server_live import ARROW, AS_THEY_COME, EVENTS, LINES, Live, arrow, lines, served, write_config
from tests.waiting import PATIENCE, until


@pytest.mark.slow
def test_waiting_batches_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one commit is held up, nine batches arrive; they need one more commit, not nine."""
    begun = threading.Event()
    go_on = threading.Event()
    commits = []
    real = SnapshotStore.commit

    def slow(store: SnapshotStore, parts: Any, **options: Any) -> None:
        commits.append(len(parts))
        begun.set()
        assert go_on.wait(PATIENCE)
        real(store, parts, **options)

    with served(write_config(tmp_path, AS_THEY_COME)) as server:
        monkeypatch.setattr(SnapshotStore, "commit", slow)
        statuses: list[int] = []
        senders = [threading.Thread(target=lambda: statuses.append(server.post(lines(5)).status)) for _ in range(10)]
        senders[0].start()
        assert begun.wait(PATIENCE)
        for sender in senders[1:]:
            sender.start()
        worker = server.running.worker
        until(lambda: worker._jobs.qsize() == 9)  # all parsed by now
        assert statuses == []
        go_on.set()
        for sender in senders:
            sender.join(PATIENCE)
        assert statuses == [200] * 10
        assert len(commits) == 2
        monkeypatch.undo()
        assert server.rows() == 50


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True], ids=["kept", "refused"])
def test_bodies_are_parsed_while_others_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Six batches share a commit that is held up; six more are read meanwhile. Whether it fails or not, each counts
    once.
    """
    begun = [threading.Event() for _ in range(2)]
    go_on = [threading.Event() for _ in range(2)]
    real = SnapshotStore.commit
    held = iter(range(2))

    def slow(store: SnapshotStore, parts: Any, **options: Any) -> None:
        number = next(held, None)
        if number is not None:
            begun[number].set()
            assert go_on[number].wait(PATIENCE)
            if number == 1 and fails:
                raise OSError(28, "No space left on device")
        real(store, parts, **options)

    with served(write_config(tmp_path, AS_THEY_COME)) as server:
        ids = [server.opened(f"p{number}") for number in range(13)]
        monkeypatch.setattr(SnapshotStore, "commit", slow)
        worker = server.running.worker
        answers = dict[int, int]()

        def send(number: int) -> None:
            origin = {"Panstream_Producer": ids[number], "Panstream_Sequence": "1"}
            answers[number] = server.post(arrow(number + 1), ARROW, EVENTS, **origin).status

        def start(numbers: range, enough: Callable[[], bool]) -> list[threading.Thread]:
            threads = [threading.Thread(target=send, args=[number]) for number in numbers]
            for thread in threads:
                thread.start()
            until(enough)
            return threads

        senders = start(range(1), begun[0].is_set)
        senders += start(range(1, 7), lambda: worker._jobs.qsize() == 6)
        go_on[0].set()
        assert begun[1].wait(PATIENCE)
        assert worker._jobs.qsize() == 0
        senders += start(range(7, 13), lambda: worker._jobs.qsize() == 6)  # what waits there is parsed
        assert set(answers) <= {0}
        go_on[1].set()
        for sender in senders:
            sender.join(PATIENCE)
        monkeypatch.undo()
        assert len(answers) == 13
        if fails:
            assert answers[0] == 200
            assert all(answers[number] == 503 for number in range(1, 7))
        else:
            assert set(answers.values()) == {200}
        for number in range(13):
            send(number)
        assert set(answers.values()) == {200}
        assert server.rows() == sum(range(1, 14))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The batch is not acknowledged; once the disk works again, the same batch is taken, and once."""
    from panstream.engine.storage import snapshot_store as snapshot

    with served(write_config(tmp_path)) as server:
        origin = {"Panstream_Producer": server.opened("p"), "Panstream_Sequence": "1"}
        assert server.post(lines(7)).status == 200
        with monkeypatch.context() as patch:

            def refuse(*args: Any, **options: Any) -> Any:
                raise OSError(28, "No space left on device")

            patch.setattr(snapshot.os, call, refuse)
            answer = server.post(lines(5), **origin)
            assert answer.code == "unavailable"
            assert answer.headers["Retry-After"] == "1"
            assert server.get("/healthz").status == 503
        for _ in range(100):
            if (answer := server.post(lines(5), **origin)).status == 200:
                break
        assert answer.json["new"] is True
        assert server.post(lines(5), **origin).json["new"] is False
        assert server.rows() == 12
        assert server.get("/healthz").json["status"] == "ok"


@pytest.mark.slow
def test_a_stop_finishes_what_is_under_way(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with served(config) as server:
        assert server.post(lines(9)).status == 200
    with served(config) as server:
        assert server.rows() == 9


@pytest.mark.slow
def test_kill_nine_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """The command itself, hardened: killed in traffic, started again; every acknowledged batch counts once."""
    write_config(tmp_path)
    (tmp_path / "out").touch()
    acknowledged: set[int] = set()
    producer = ""
    for start in range(0, 60, 20):
        with (tmp_path / "out").open("w") as out:
            command = [sys.executable, "-m", "panstream.cli", "serve", "panstream.toml", "--port", "0"]
            process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=out, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"serving visits on http://127.0.0.1:(\d+)\n", line)
            assert match, line
            server = Live("127.0.0.1", int(match[1]), None)
            if sys.platform == "linux" and os.geteuid() == 0:  # others cannot look into a hardened process
                assert b"MALLOC_PERTURB_" in Path(f"/proc/{process.pid}/environ").read_bytes()
            producer = producer or server.opened("p")
            for number in range(max(0, start - 5), start + 20):
                origin = {"Panstream_Producer": producer, "Panstream_Sequence": str(number + 1)}
                assert server.post(lines(3), LINES, EVENTS, **origin).status == 200
                acknowledged.add(number)
            if start == 40:
                assert server.rows() == 3 * len(acknowledged)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
