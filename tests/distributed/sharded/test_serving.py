"""A server whose states are on a cluster: batches that were acknowledged count once, whichever process is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.distributed.sharded.fork_server import SIZE
from tests.distributed.sharded.processes import Processes, processes
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

RETRIED = (httpx.TransportError, AssertionError)


class Sender:
    """Sends batches to the server, wherever it is now, each until it is acknowledged."""

    def __init__(self, cluster: Processes) -> None:
        self._cluster = cluster
        self._address = ""
        self._producer = ""
        self.sent = 0
        self.repeated = 0

    def send(self) -> None:
        """Send the next batch: ten new users, two rows each."""
        first = self.sent * SIZE
        lines = ["user,w", *(f"{user},1" for user in range(first, first + SIZE) for _ in range(2))]
        headers = {
            "Content-Type": "text/csv",
            "Panstream-Producer": self._producer or self._open(),
            "Panstream-Sequence": str(self.sent + 1),
        }
        answer = self.ask("POST", "/v1/streams/s/events", content="\n".join(lines) + "\n", headers=headers)
        self.repeated += not answer["new"]
        self.sent += 1

    def _open(self) -> str:
        self._producer = str(self.ask("POST", "/v1/producers/sender")["id"])
        return self._producer

    def release(self, query: str) -> float:
        """Ask for an answer."""
        found = self.ask("POST", f"/v1/queries/{query}/release")
        return float(found["releases"][0]["value"])

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer to a request that is repeated until there is one."""
        for _ in range(600):
            self._listen(wait=not self._address)
            try:
                answer = httpx.request(method, self._address + path, timeout=PATIENCE, **options)
            except httpx.TransportError:
                self._listen(wait=True)
                continue
            if answer.status_code != 503:
                assert answer.status_code == 200, answer.text
                return answer.json()
        raise AssertionError(f"no answer to {path}\n{self._cluster.log.read_text()[-3000:]}")

    def _listen(self, *, wait: bool) -> None:
        """Learn where the server is from what it says when it starts."""
        while wait or not self._cluster.lines.empty():
            word, *rest = self._cluster.next_said().split()
            if word == "serving":
                self._address = rest[0]
                wait = False


@contextmanager
def serving(tmp_path: Path) -> Iterator[tuple[Processes, Sender]]:
    with processes(tmp_path) as cluster:
        cluster.start_cluster()
        cluster.start("front", "front", cluster.address, str(tmp_path / "state"))
        yield cluster, Sender(cluster)


def test_batches_count_once_whichever_process_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as (cluster, sender):
        for victim in ("worker-0", "front", "worker-1", "scheduler", "front"):
            sender.send()
            sender.send()
            cluster.kill(victim)
            sender.send()
        assert sender.sent == 15
        assert sender.release("distinct") == pytest.approx(15 * SIZE)
        sender.send()
        users = 16 * SIZE
        found = [sender.release(query) for query in ("distinct", "visits", "rows")]
        assert found == [pytest.approx(users), pytest.approx(2 * users), pytest.approx(2 * users)]
        ledger = sender.ask("GET", "/v1/ledger")
        assert sorted(shard.name for shard in (tmp_path / "state" / "shards-2").iterdir()) == ["shard-0", "shard-1"]
        assert ledger


def test_the_command_serves_on_processes_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "panstream.toml").write_text(
        '[stream]\nname = "s"\nuser = "id"\n[stream.columns]\nid = "string"\n[store]\ndirectory = "state"\n'
        '[[query]]\nname = "n"\nsql = "SELECT COUNT(DISTINCT id) FROM s"\nepsilon = 8.0\nexpected = 1000\n'
    )
    command = [sys.executable, "-m", "panstream.cli", "serve", "panstream.toml", "--port", "0", "--workers", "1"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert running.stdout
        said = running.stdout.readline()
        assert said.startswith("serving s on "), said
        address = said.split()[-1]
        body = "\n".join(["id", *(f"user-{number}" for number in range(1000))])
        sent = httpx.post(f"{address}/v1/streams/s/events", content=body, headers={"Content-Type": "text/csv"})
        assert sent.json()["rows"] == 1000
        found = httpx.post(f"{address}/v1/queries/n/release").json()["releases"][0]
        assert 500 < found["value"] < 2000
    finally:
        running.terminate()
        _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 128 + signal.SIGTERM, errors
    assert (tmp_path / "state" / "shards-1" / "shard-0" / "state.sealed").exists()
