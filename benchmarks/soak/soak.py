"""make soak: mixed load on a real server that is killed every 20 seconds; nothing acknowledged is lost or doubled,
memory is flat.

The server runs as in production (hardened, tokens, durability "batch") but without noise, so that every total can be
compared exactly. Producers send all formats and compressions, repeat acknowledged batches on purpose, send nonsense in
between, and retry with the same sequence number until a batch is acknowledged. After every restart they pause, and the
totals must be those of the acknowledged batches, to the unit. The last stretch is one process without kills, for its
memory.
"""

import argparse
import gzip
import http.client
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from panstream.cli.hardening import ENVIRONMENT

UNIVERSE = 400_000
ROWS = 20
PRODUCERS = 4
CONFIG = f"""
[stream]
name = "soak"
columns = {{ user = "int", page = "string", value = "double" }}
user = "user"

[[query]]
name = "distinct"
sql = "SELECT COUNT(DISTINCT user) FROM soak WHERE page = 'a'"
epsilon = 1.0
universe = {UNIVERSE}
releases = 100000

[[query]]
name = "sum"
sql = "SELECT SUM(value) FROM soak"
epsilon = 1.0
lower = 0
upper = 8
releases = 100000

[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM soak"
epsilon = 1.0
every = "1 second"
horizon = 100000

[store]
directory = "state"
"""


def serve(folder: Path) -> None:
    """Run the server without noise: what only a test may do, hence not an option of the command."""
    from panstream.engine.config.config import load_config
    from panstream.engine.runtime.engine import Engine
    from panstream.server.server import ServerSettings, make_server

    config = load_config(folder / "panstream.toml")
    make_server(
        config,
        ServerSettings(port=0, tokens=folder / "tokens"),
        on_started=lambda address: print(address, flush=True),
        engine=lambda publish: Engine(config, zero_noise=True, publish=publish),
    ).run_until_stopped()


class Server:
    """The process under test, started again and again on the same directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        self.start()

    def start(self) -> None:
        begun = time.monotonic()
        command = [sys.executable, "-u", "-m", "benchmarks.soak.soak", "--serve", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT})
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        assert address.startswith("http://"), "the server did not start"
        self.host, self.port = address.removeprefix("http://").rsplit(":", 1)
        self.starts += 1
        self.start_seconds = time.monotonic() - begun

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def memory(self) -> float:
        """Return the process's resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


@dataclass
class Load:
    """Shared by all threads."""

    server: Server
    token: str
    acknowledged: int = 0
    repeated: int = 0
    refused: int = 0
    retried: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    published: dict[tuple[str, int], float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: threading.Event = field(default_factory=threading.Event)  # cleared: pause
    ended: threading.Event = field(default_factory=threading.Event)
    idle: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Send one request on a connection of its own; OSError or HTTPException if the server goes away."""
        connection = http.client.HTTPConnection(self.server.host, int(self.server.port), timeout=30)
        try:
            given = {
                "Authorization": f"Bearer {self.token}",
                **{key.replace("_", "-"): v for key, v in headers.items()},
            }
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else None
        finally:
            connection.close()

    def problem(self, text: str) -> None:
        with self.lock:
            self.problems.append(text)
        print(f"PROBLEM: {text}", flush=True)

    def note(self, releases: list[dict[str, Any]]) -> None:
        """Remember what was published, and see that it never changes."""
        for each in releases:
            key = each["series"], each["number"]
            if self.published.setdefault(key, each["value"]) != each["value"]:
                self.problem(f"answer {key} changed")


def encoded(users: list[int], kind: str) -> tuple[bytes, dict[str, str]]:
    """Return a body: one new user, and rows of value 1, as one of the formats."""
    name, _, packed = kind.partition("+")
    pages = ["a"] * len(users)
    if name == "json":
        text = "".join(f'{{"user": {u}, "page": "a", "value": 1.0}}\n' for u in users).encode()
        media = "application/x-ndjson"
    elif name == "csv":
        text = ("user,page,value\n" + "".join(f"{u},a,1.0\n" for u in users)).encode()
        media = "text/csv"
    else:
        table = pa.table({"user": users, "page": pages, "value": [1.0] * len(users)})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        text = sink.getvalue()
        media = "application/vnd.apache.arrow.stream"
    if packed == "gzip":
        return gzip.compress(text), {"Content_Type": media, "Content_Encoding": "gzip"}
    if packed == "zstd":
        return pa.compress(text, codec="zstd", asbytes=True), {"Content_Type": media, "Content_Encoding": "zstd"}
    return text, {"Content_Type": media}


KINDS = [f"{name}{packed}" for name in ("json", "csv", "arrow") for packed in ("", "+gzip", "+zstd")]
NONSENSE = [
    (b"\xff\xfe{]", "application/x-ndjson"),
    (b"not a stream", "application/vnd.apache.arrow.stream"),
    (b"", "x/y"),
]


def produce(load: Load, number: int, pace: float) -> None:
    """Send numbered batches, each until it is acknowledged; batch k of producer p brings the user k·PRODUCERS + p."""
    draw = random.Random(number)
    path = "/v1/streams/soak/events"
    me = open_producer(load, f"producer-{number}")
    for sequence in itertools.count():
        if not load.running.is_set():
            load.idle.release()
            load.running.wait()
        if load.ended.is_set():
            return
        kind = draw.choice(KINDS)
        user = sequence * PRODUCERS + number
        if user >= UNIVERSE:
            load.problem("the universe is too small for this load")
            return
        body, headers = encoded([user] + [user % 1000] * (ROWS - 1) if user >= 1000 else [user] * ROWS, kind)
        origin = {"Panstream_Producer": me, "Panstream_Sequence": str(sequence + 1)}
        send(load, path, body, {**headers, **origin}, first=True)
        with load.lock:
            load.acknowledged += 1
            load.formats[kind] = load.formats.get(kind, 0) + 1
        if draw.random() < 0.05:
            send(load, path, body, {**headers, **origin}, first=False)
        if draw.random() < 0.03:
            text, media = draw.choice(NONSENSE)
            answer = attempt(load, path, text, {"Content_Type": media})
            taken = answer is not None and answer[0] == 200 and answer[1]["skipped"]["count"] < answer[1]["rows"]
            if answer is not None and (taken or answer[0] not in (200, 400, 415, 503)):
                load.problem(f"nonsense was answered {answer[0]}")
            load.refused += 1
        threading.Event().wait(draw.expovariate(1.0 / pace))


def open_producer(load: Load, name: str) -> str:
    """Return the id under which batches are sent."""
    while (answer := attempt(load, f"/v1/producers/{name}", b"", {})) is None or answer[0] != 200:
        threading.Event().wait(0.1)
    return str(answer[1]["id"])


def attempt(load: Load, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any] | None:
    try:
        return load.ask("POST", path, body, **headers)
    except (OSError, http.client.HTTPException, ValueError):
        return None


def send(load: Load, path: str, body: bytes, headers: dict[str, str], *, first: bool) -> None:
    """Send until acknowledged."""
    tries = 0
    while True:
        answer = attempt(load, path, body, headers)
        if answer is not None and answer[0] == 200:
            said = answer[1]
            if said["skipped"]["count"] or said["late"]["count"]:
                load.problem("good rows were skipped")
            if tries == 0 and said["new"] != first:
                load.problem(
                    "an acknowledged batch was taken again" if said["new"] else "a new batch was taken for an old one"
                )
            load.repeated += not first
            return
        if answer is not None and answer[0] not in (429, 503):
            load.problem(f"a good batch was answered {answer[0]} {answer[1]}")
        tries += 1
        load.retried += 1
        threading.Event().wait(0.1)


def listen(load: Load) -> None:
    """Follow the stream of answers, as a dashboard does, over all restarts."""
    while not load.ended.is_set():
        connection = http.client.HTTPConnection(load.server.host, int(load.server.port), timeout=30)
        try:
            wanted = {"Authorization": f"Bearer {load.token}", "Accept": "text/event-stream"}
            connection.request("GET", "/v1/releases", headers=wanted)
            answer = connection.getresponse()
            kind = b""
            for line in answer:
                if line.startswith(b"event:"):
                    kind = line.split(b":", 1)[1].strip()
                elif line.startswith(b"data:") and kind == b"release":
                    load.note([json.loads(line[5:])])
                if load.ended.is_set():
                    break
        except (OSError, http.client.HTTPException, ValueError):
            threading.Event().wait(0.2)
        finally:
            connection.close()


def pause(load: Load) -> None:
    """Wait until no batch is under way."""
    load.running.clear()
    for _ in range(PRODUCERS):
        if not load.idle.acquire(timeout=120):
            load.problem("a producer hangs")


def check(load: Load) -> None:
    """Compare the totals with what was acknowledged, exactly, while nothing is under way."""
    for name, exact in (("distinct", load.acknowledged), ("sum", load.acknowledged * ROWS)):
        status, said = load.ask("POST", f"/v1/queries/{name}/release")
        if status != 200:
            load.problem(f"the release of {name} was answered {status}")
            continue
        load.note(said["releases"])
        value = said["releases"][0]["value"]
        if abs(value - exact) > 1e-6 * max(exact, 1):
            load.problem(f"{name} is {value}, and {exact} was acknowledged")
    status, said = load.ask("GET", "/v1/releases?limit=10000")
    load.note(said["releases"] if status == 200 else [])


def soak(folder: Path, minutes: float, kills: int, life: float, pace: float, steady: float) -> int:
    """Run the whole thing, for so long and at least so many kills; return the number of problems."""
    from panstream.server.auth import create_token

    (folder / "panstream.toml").write_text(CONFIG)
    token = create_token(folder / "tokens", "soak", ["ingest", "read", "admin"])
    server = Server(folder)
    load = Load(server, token)
    load.running.set()
    threads = [threading.Thread(target=produce, args=(load, p, pace), daemon=True) for p in range(PRODUCERS)]
    threads.append(threading.Thread(target=listen, args=(load,), daemon=True))
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    lives: list[float] = []
    draw = random.Random(1)
    while len(lives) < kills or time.monotonic() - begun < minutes * 60 - steady:
        threading.Event().wait(max(life - server.start_seconds, 5) - 2 + 4 * draw.random())  # from kill to kill
        lives.append(server.memory())
        server.kill()
        server.start()
        pause(load)
        check(load)
        load.running.set()
        print(
            f"{time.monotonic() - begun:6.0f} s: {server.starts - 1} kills, {load.acknowledged:,} batches, "
            f"{lives[-1]:.0f} MiB",
            flush=True,
        )
    samples: list[float] = []
    quiet = time.monotonic()
    while time.monotonic() - quiet < steady:
        threading.Event().wait(0.5)
        samples.append(server.memory())
    pause(load)
    check(load)
    if server.stop() != 0:
        load.problem("SIGTERM did not end the server in order")
    server.start()
    check(load)
    load.ended.set()
    load.running.set()
    for thread in threads[:PRODUCERS]:
        thread.join(60)
    server.stop()
    return report(load, lives, samples, time.monotonic() - begun)


def report(load: Load, lives: list[float], samples: list[float], seconds: float) -> int:
    """Print the figures."""
    third = max(1, len(samples) // 3)
    early = median(samples[third : 2 * third])
    late = median(samples[-third:])
    half = max(1, len(lives) // 2)
    first = median(lives[:half])
    last = median(lives[-half:])
    # What the allocator's rounding and the compiler move by themselves; a leak of a 2 KB body a batch is ten times that
    # in half an hour. A short run sees a process only while it warms up.
    factor, spare = (1.03, 4) if seconds >= 1200 else (1.15, 16)
    for name, before, after in (("one process", early, late), ("restarted processes", first, last)):
        if after > before * factor + spare:
            load.problem(f"memory of {name} grew from {before:.1f} to {after:.1f} MiB")
    kills = len(lives)
    print(f"minutes                         {seconds / 60:.1f}")
    print(f"kill -9                         {kills}")
    print(
        f"batches acknowledged            {load.acknowledged:,} ({load.acknowledged * ROWS:,} rows), "
        + ", ".join(sorted(load.formats))
    )
    print(f"sent again: after a failure     {load.retried:,} tries")
    print(f"sent again: on purpose          {load.repeated:,}, nonsense {load.refused:,}")
    print(f"answers followed                {len(load.published):,}")
    print(f"memory of restarted processes   {first:.1f} MiB in the first half, {last:.1f} MiB in the second")
    print(f"memory of one process           {early:.1f} MiB, then {late:.1f} MiB")
    print(f"lost or doubled, other problems {len(load.problems)}")
    return len(load.problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kills", type=int, default=2, help="at least so many, however long they take")
    parser.add_argument("--life", type=float, default=20, help="seconds from kill to kill")
    parser.add_argument("--pace", type=float, default=0.04, help="seconds between a producer's batches")
    parser.add_argument("--steady", type=float, default=120, help="seconds without kills at the end")
    parser.add_argument("--serve", type=Path)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return 1 if soak(Path(folder), given.minutes, given.kills, given.life, given.pace, given.steady) else 0


if __name__ == "__main__":
    sys.exit(main())
