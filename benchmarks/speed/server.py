"""Load on a server and on Redis, side by side on this machine.

    python -m benchmarks.speed.server [--quick] [DIRECTORY]

The server runs hardened, with durability "batch" (an answer means on disk), a step of 10 ms instead of 200, and one
distinct count with a WHERE. Redis runs in memory only, with persistence off, counting all ids with a HyperLogLog.
DIRECTORY is where the store is put: how long its disk takes to confirm a write decides much, so that is measured too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from panstream.algorithms.planning.tables import format_table
from panstream.client.transport import encode

CONFIG = """
[stream]
name = "visits"
user = "user"
[stream.columns]
user = "string"
region = "string"
{columns}
[[query]]
name = "north"
sql = "SELECT COUNT(DISTINCT user) FROM visits WHERE {where}"
epsilon = 1.0
expected = 1000000
[store]
directory = "state"
step = "10 ms"
"""
ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"
LANES = 32
CROWD = 64  # connections of senders that do not wait for each other
SOME = 16  # different bodies
WINDOWS = 9  # of latencies: one is spoilt by a stall of the machine for 1% of its time
STALL = 0.01  # seconds that a process which only sleeps is late: then it is the machine that stands still
QUICK = "--quick" in sys.argv


@contextmanager
def served(directory: Path, config: str, *options: str) -> Iterator[tuple[str, int]]:
    """Run a server; yield its address and its process."""
    (directory / "panstream.toml").write_text(config)
    command = [sys.executable, "-m", "panstream.cli", "serve", "panstream.toml", "--port", "0", *options]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"https?://\S+", process.stdout.readline())
        assert match
        yield match[0], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def server(directory: Path) -> AbstractContextManager[tuple[str, int]]:
    return served(directory, CONFIG.format(columns="", where="region = 'north'"), "--rate", "1e6")


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


def opened(address: tuple[str, int], name: str) -> tuple[str, int]:
    """Open a producer, and return its id and the number of its last batch."""
    connection = http.client.HTTPConnection(*address)
    with contextlib.closing(connection):
        connection.request("POST", f"/v1/producers/{name}")
        said = json.loads(connection.getresponse().read())
        return str(said["id"]), max(int(said["last"]), 0)


class Lane:
    """One connection with one request under way at most: real requests, and the next one only after the answer."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.name, self.sequence = opened(address, name)
        self.answer = b""
        self.left: list[memoryview] = []
        self.due = 0.0

    def start(self, kind: str, body: bytes, due: float = 0.0) -> None:
        self.sequence += 1
        self.answer = b""
        self.due = due
        head = (
            f"POST /v1/streams/visits/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nPanstream-Producer: {self.name}\r\nPanstream-Sequence: "
            f"{self.sequence}\r\n\r\n"
        )
        self.left = [memoryview(head.encode()), memoryview(body)]
        self.send()

    def send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.left:
                done = self.socket.sendmsg(self.left)
                while self.left and done >= len(self.left[0]):
                    done -= len(self.left.pop(0))
                if self.left:
                    self.left[0] = self.left[0][done:]

    def rows(self) -> int | None:
        """Return the rows of a complete answer, which must say that they are new; None if more has to come."""
        with contextlib.suppress(BlockingIOError):
            got = self.socket.recv(65536)
            assert got, "the server closed a connection"
            self.answer += got
        head, found, body = self.answer.partition(b"\r\n\r\n")
        if not found or len(body) < int(re.search(rb"content-length: (\d+)", head)[1]):  # type: ignore[index]
            return None
        assert head.startswith(b"HTTP/1.1 200 "), self.answer
        answer = json.loads(body)
        assert answer["new"]
        return int(answer["rows"])


class Load:
    """Some lanes, served by one thread that sleeps until a socket is ready."""

    def __init__(self, url: str, lanes: int, name: str) -> None:
        parts = urlsplit(url)
        self.lanes = [Lane((parts.hostname or "", parts.port or 0), f"{name}.{at}") for at in range(lanes)]
        self.poll = select.epoll()
        self.by_number = {lane.socket.fileno(): lane for lane in self.lanes}
        for number in self.by_number:
            self.poll.register(number, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        self.free = deque(self.lanes)
        self.under_way = 0

    def start(self, kind: str, body: bytes, due: float = 0.0) -> None:
        self.under_way += 1
        self.free.popleft().start(kind, body, due)  # in turn: none is idle for so long that the server closes it

    def answered(self, wait: float) -> Iterator[tuple[Lane, int]]:
        """Yield lanes whose request was answered, and the rows taken; wait for so many seconds at most."""
        for number, _ in self.poll.poll(wait):
            lane = self.by_number[number]
            lane.send()
            if lane not in self.free and (rows := lane.rows()) is not None:
                self.free.append(lane)
                self.under_way -= 1
                yield lane, rows

    def close(self) -> None:
        self.poll.close()
        for lane in self.lanes:
            lane.socket.close()


def throughput(url: str, pid: int, kind: str, rows: int, seconds: float) -> tuple[float, float]:
    """Return events a second, and the server's CPU seconds for a million of them."""
    made = bodies(kind, rows)
    with contextlib.closing(Load(url, LANES, f"bench-{os.getpid()}")) as load:
        for _ in range(2):  # the first round is not counted
            sent = 0
            events = 0
            start = time.perf_counter()
            used = cpu_seconds(pid)
            limit = seconds if _ else 0.5
            while (running := time.perf_counter() - start < limit) or load.under_way:
                while running and load.free:
                    load.start(kind, made[sent % SOME])
                    sent += 1
                for _, taken in load.answered(1.0):
                    events += taken
        return events / (time.perf_counter() - start), (cpu_seconds(pid) - used) / events * 1e6


def latencies(url: str, rate: float, rows: int, seconds: float) -> list[float]:
    """Send bodies at fixed times, whether or not earlier ones were answered; return times from due to answered, in
    order.
    """
    made = bodies(ARROW, rows)
    count = int(rate * seconds)
    found = []
    sent = 0
    with contextlib.closing(Load(url, CROWD, f"late-{os.getpid()}")) as load:
        start = time.perf_counter() + 0.1
        while len(found) < count:
            now = time.perf_counter()
            while sent < count and load.free and start + sent / rate <= now:
                load.start(ARROW, made[sent % SOME], start + sent / rate)
                sent += 1
            next_due = start + sent / rate - time.perf_counter() if sent < count and load.free else 1.0
            for lane, _ in load.answered(max(0.0, next_due)):
                found.append(time.perf_counter() - lane.due)
    return sorted(found)


@contextmanager
def witness() -> Iterator[list[float]]:
    """Have a process that only sleeps tell, at the end, how late it woke up, where that was a stall of the machine."""
    code = f"""
import sys, time
last = time.perf_counter()
while True:
    time.sleep(0.001)
    now = time.perf_counter()
    if now - last > {STALL}:
        print(now - last, flush=True)
    last = now
"""
    found: list[float] = []
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        yield found
    finally:
        process.terminate()
        found += [float(line) for line in process.communicate()[0].splitlines()]


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
    start = time.perf_counter()
    sent = 0
    while time.perf_counter() - start < seconds:
        for batch in batches:
            client.pfadd("hll2", *batch)
            sent += len(batch)
    return sent / (time.perf_counter() - start)


def verdict(good: bool) -> str:
    return "pass" if good else "FAIL"


def main() -> None:
    seconds = 2.0 if QUICK else 6.0
    where = next((given for given in sys.argv[1:] if not given.startswith("-")), None)
    with tempfile.TemporaryDirectory(dir=where) as folder, server(Path(folder)) as (url, pid):
        disk = sync_time(Path(folder))
        arrow, arrow_cpu = throughput(url, pid, ARROW, 10_000, seconds)
        lines, lines_cpu = throughput(url, pid, LINES, 10_000, seconds)
        windows = []
        stalls = []
        loads = []
        for _ in range(WINDOWS):  # how fast the machine is changes by the minute, and with it what half load is
            small, small_cpu = throughput(url, pid, ARROW, 1_000, seconds / 2)
            with witness() as late:
                windows.append(latencies(url, small / 1_000 / 2, 1_000, seconds))
            stalls.append(sum(late) * 1e3)
            loads.append(small)
    each = [times[int(len(times) * 0.99)] * 1e3 for times in windows]
    p99 = statistics.median(each)
    middle = statistics.median(time for times in windows for time in times) * 1e3
    rows = [
        ["Arrow, 10,000 events a post", f"{arrow:,.0f}/s", "2,000,000/s", verdict(arrow >= 2e6)],
        ["JSON lines, 10,000 events a post", f"{lines:,.0f}/s", "500,000/s", verdict(lines >= 5e5)],
        ["p99 of 1,000-event posts at half load", f"{p99:.1f} ms", "< 50 ms", verdict(p99 < 50)],
    ]
    notes = [
        f"1,000-event posts: {statistics.median(loads):,.0f} events/s at full load (before every window anew: "
        f"{min(loads):,.0f} to {max(loads):,.0f}); at half of that the median is {middle:.1f} ms",
        f"p99 is the median of {WINDOWS} windows of {seconds:.0f} s: {', '.join(f'{one:.1f}' for one in each)} ms",
        "stalls of the machine in them, as seen by a process that only sleeps: "
        f"{', '.join(f'{one:.0f}' for one in stalls)} ms",
    ]
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        with redis() as port:
            native = redis_benchmark(port, 500_000 if QUICK else 3_000_000)
            python = redis_python(port, seconds)
        ratios = arrow / native, arrow / python
        rows.append(["Arrow against redis-benchmark", f"{ratios[0]:.2f} x", "1.5 x", verdict(ratios[0] >= 1.5)])
        rows.append(["Arrow against redis-py", f"{ratios[1]:.2f} x", "5 x", verdict(ratios[1] >= 5)])
        notes.append(
            f"redis-benchmark PFADD, pipeline of 100: {native:,.0f}/s; redis-py, 1,000 ids a command: {python:,.0f}/s"
        )
    else:
        notes.append("redis-server is not installed: not compared")
    print(
        format_table("server and Redis on this machine", ["what", "measured", "wanted", "reached"], rows, right={1, 2})
    )
    notes += [
        f"server CPU per million events: Arrow {arrow_cpu:.2f} s, JSON lines {lines_cpu:.2f} s, small posts "
        f"{small_cpu:.2f} s",
        f"the disk confirms a write of 1 kB in {disk * 1e3:.2f} ms (median)",
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; posts under way at a time: {LANES}",
    ]
    print("\n".join(notes))


if __name__ == "__main__":
    main()
