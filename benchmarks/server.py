"""Load on a server and on Redis, side by side on this machine: `python benchmarks/server.py [--quick] [DIRECTORY]`.

The server runs as users run it: hardened, durability "batch" (an answer means on disk), one distinct count with a WHERE. Redis runs
in memory only, with persistence off, counting all ids with a HyperLogLog. DIRECTORY is where the store is put: how long its disk
takes to confirm a write decides much, so that is measured too.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from panstream.client import Client
from panstream.client_bodies import encode
from panstream.client_wire import Address, Patience, Wire
from panstream.planning.text import aligned

CONFIG = """
[stream]
name = "visits"
user = "user"
[stream.columns]
user = "string"
region = "string"
[[query]]
name = "north"
sql = "SELECT COUNT(DISTINCT user) FROM visits WHERE region = 'north'"
epsilon = 1.0
expected = 1000000
[store]
directory = "state"
"""
ARROW, LINES = "application/vnd.apache.arrow.stream", "application/x-ndjson"
LANES = 16
SOME = 16  # different bodies
QUICK = "--quick" in sys.argv


@contextmanager
def server(directory: Path) -> Iterator[tuple[str, int]]:
    (directory / "panstream.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "panstream.cli", "serve", "panstream.toml", "--port", "0"]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match
        yield match[0], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def bodies(kind: str, rows: int) -> list[bytes]:
    rng = np.random.default_rng(7)
    made = []
    for _ in range(SOME):
        users = np.char.mod("%012d", rng.integers(0, 10**12, rows))
        regions = np.array(["north", "south"])[rng.integers(0, 2, rows)]
        if kind == ARROW:
            batch = pa.RecordBatch.from_pydict(
                {"user": pa.array(users), "region": pa.array(regions).dictionary_encode()}
            )
            made.append(bytes(encode([batch], None)))
        else:
            pairs = zip(users, regions, strict=True)
            made.append("".join(f'{{"user":"{user}","region":"{region}"}}\n' for user, region in pairs).encode())
    return made


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sync_time(directory: Path) -> float:
    """Return the median time of a small write that is waited for."""
    times = []
    with (directory / "probe").open("wb", buffering=0) as file:
        for _ in range(50):
            start = time.perf_counter()
            file.write(bytes(1000))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def throughput(url: str, pid: int, kind: str, rows: int, seconds: float) -> tuple[float, float]:
    """Return events a second, and the server's CPU seconds for a million of them."""
    made = bodies(kind, rows)
    with Client(url, stream="visits", lanes=LANES, producer="bench") as client:
        for body in made:
            client.send_body(body, kind)
        client.flush()
        before, start, used = client.sent.rows, time.perf_counter(), cpu_seconds(pid)
        while time.perf_counter() - start < seconds:
            for body in made:
                client.send_body(body, kind)
        client.flush()
        events = client.sent.rows - before
        return events / (time.perf_counter() - start), (cpu_seconds(pid) - used) / events * 1e6


def latencies(url: str, rate: float, rows: int, seconds: float) -> list[float]:
    """Send bodies at fixed times, whether or not earlier ones were answered; return times from due to answered."""
    made = bodies(ARROW, rows)
    lanes, count, found = 32, int(rate * seconds), []
    start = time.perf_counter() + 0.2

    def lane(number: int) -> None:
        wire = Wire(Address(url=url), Patience())
        for at in range(number, count, lanes):
            due = start + at / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            headers = {"Content-Type": ARROW, "Panstream-Producer": f"late/{number}", "Panstream-Sequence": str(at + 1)}
            wire.ask("POST", "/v1/streams/visits/events", made[at % SOME], headers)
            found.append(time.perf_counter() - due)
        wire.close()

    threads = [threading.Thread(target=lane, args=(number,)) for number in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found)


@contextmanager
def redis() -> Iterator[int]:
    from redis import Redis
    from redis.exceptions import RedisError

    port = 20000 + os.getpid() % 20000
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--daemonize", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                Redis(port=port).ping()
                break
            except RedisError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def redis_benchmark(port: int, events: int) -> float:
    """PFADD of one random id a command, 100 commands in a pipeline, 50 clients."""
    command = ["redis-benchmark", "-p", str(port), "-P", "100", "-n", str(events), "-r", "1000000000000", "--csv"]
    output = subprocess.run([*command, "PFADD", "hll", "__rand_int__"], capture_output=True, text=True, check=True)
    return float(output.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))


def redis_python(port: int, seconds: float) -> float:
    """PFADD with 1,000 ids a command by redis-py."""
    from redis import Redis

    client = Redis(port=port)
    rng = np.random.default_rng(7)
    batches = [[str(one) for one in rng.integers(10**11, 10**12, 1000)] for _ in range(SOME)]
    start, sent = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for batch in batches:
            client.pfadd("hll2", *batch)
            sent += len(batch)
    return sent / (time.perf_counter() - start)


def main() -> None:
    seconds = 2.0 if QUICK else 6.0
    where = next((given for given in sys.argv[1:] if not given.startswith("-")), None)
    with tempfile.TemporaryDirectory(dir=where) as folder, server(Path(folder)) as (url, pid):
        disk = sync_time(Path(folder))
        arrow, arrow_cpu = throughput(url, pid, ARROW, 10_000, seconds)
        lines, lines_cpu = throughput(url, pid, LINES, 10_000, seconds)
        small, small_cpu = throughput(url, pid, ARROW, 1_000, seconds)
        times = latencies(url, small / 1_000 / 2, 1_000, seconds)
    rows = [
        ["Arrow, 10,000 a post", f"{arrow:,.0f}/s", "2,000,000/s", "yes" if arrow >= 2e6 else "no"],
        ["JSON lines, 10,000 a post", f"{lines:,.0f}/s", "500,000/s", "yes" if lines >= 5e5 else "no"],
        ["Arrow, 1,000 a post", f"{small:,.0f}/s", "", ""],
    ]
    p99 = times[int(len(times) * 0.99)] * 1e3
    rows.append(["p99 of 1,000 at half of that", f"{p99:.1f} ms", "50 ms", "yes" if p99 < 50 else "no"])
    rows.append(["median of the same", f"{statistics.median(times) * 1e3:.1f} ms", "", ""])
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        with redis() as port:
            native, python = redis_benchmark(port, 500_000 if QUICK else 3_000_000), redis_python(port, seconds)
        rows.append(
            [
                "redis-benchmark PFADD -P 100",
                f"{native:,.0f}/s",
                f"{arrow / native:.2f} x",
                "yes" if arrow >= 1.5 * native else "no (1.5 x)",
            ]
        )
        rows.append(
            [
                "redis-py PFADD, 1,000 ids",
                f"{python:,.0f}/s",
                f"{arrow / python:.2f} x",
                "yes" if arrow >= 5 * python else "no (5 x)",
            ]
        )
    print(
        aligned(
            "server and Redis on this machine",
            ["what", "measured", "wanted, or Arrow's ratio", "reached"],
            rows,
            right={1, 2},
        )
    )
    print(
        f"server CPU per million events: Arrow {arrow_cpu:.2f} s, JSON lines {lines_cpu:.2f} s, small posts {small_cpu:.2f} s"
    )
    print(f"the disk confirms a write of 1 kB in {disk * 1e3:.2f} ms (median)")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; posts under way at a time: {LANES}")


if __name__ == "__main__":
    main()
