"""Beacons a second on a server with all questions of a site.

    python -m benchmarks.speed.beacons [--quick] [--out FILE]

The server runs hardened on one core with the configuration that `panstream web --visitors-per-day 100000` writes, and
one exact count besides; the generator runs on another core. First 64 kept connections send as fast as they are
answered; then 5,000 a second are sent by the clock, and times are counted from when each was due; then, apart, every
beacon comes on a new connection with TLS. Every 204 is counted, and compared with what the server counted.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from panstream.algorithms.planning.tables import format_table
from panstream.engine.presets.website import propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.presets.website_text import to_toml
from panstream.primitives.certificates import Authority

SITE = "example.org"
ORIGIN = "https://example.org"
CONNECTIONS = 64
RATE = 5_000
AGENT = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{} Safari/537.36"
PAGES = ("/", "/blog/hello", "/docs/start", "/shop/mug")
EXACT = """
[[query]]
name = "exact"
sql = "SELECT COUNT(*) FROM web WHERE event = 'view'"
epsilon = 200.0
releases = 4
"""


def requests(count: int) -> list[bytes]:
    """Return beacons of different visitors, as a proxy passes them on."""
    made = []
    for number in range(count):
        body = json.dumps({"url": PAGES[number % 4], "referrer": "https://search.example/", "event": "view"}).encode()
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        head = [
            *("POST /v1/beacon HTTP/1.1", "Host: stats.example.org", f"Origin: {ORIGIN}"),
            *(f"User-Agent: {AGENT.format(number % 40)}", "Accept: */*", "Accept-Language: de-DE,de;q=0.9"),
            *("Content-Type: text/plain;charset=UTF-8", f"X-Forwarded-For: {address}", f"Content-Length: {len(body)}"),
        ]
        made.append("\r\n".join([*head, "", ""]).encode() + body)
    return made


@contextlib.contextmanager
def served(directory: Path, core: int, *options: str) -> Iterator[tuple[int, int]]:
    """Run a server on a core; yield its port and process."""
    site = WebsiteSpec(site=SITE, visitors=100_000, trusted_proxies=("127.0.0.1",))
    proposed = to_toml(propose_queries(site)).replace("allow_unbounded = [", 'allow_unbounded = ["exact", ')
    (directory / "site.toml").write_text(proposed + EXACT)
    command = [sys.executable, "-m", "panstream.cli", "serve", "site.toml", "--port", "0", *options]
    command += ["--address-connections", "512"]
    pin = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True, preexec_fn=pin)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found
        yield int(found[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kept(port: int, bodies: list[bytes], seconds: float, rate: float | None) -> np.ndarray:
    """Send on kept connections, as fast as answers come or by the clock; return how long every 204 took."""
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    poll = select.epoll()
    idle = []
    due = {}
    times = []
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(connection.fileno(), select.EPOLLIN)
    by_number = {connection.fileno(): connection for connection in connections}
    idle = list(by_number)
    start = time.perf_counter()
    sent = 0
    while True:
        now = time.perf_counter() - start
        open_ = now < seconds
        while open_ and idle and (rate is None or sent / rate <= now):
            number = idle.pop(0)  # in turn: the server ends connections that nobody uses
            due[number] = now if rate is None else sent / rate
            by_number[number].sendall(bodies[sent % len(bodies)])
            sent += 1
        if not open_ and not due:
            break
        for number, _ in poll.poll(0.001 if rate else 0.1):
            answer = by_number[number].recv(65536)
            if not answer.startswith(b"HTTP/1.1 204"):
                raise SystemExit(f"refused: {answer[:100]!r}")
            times.append(time.perf_counter() - start - due.pop(number))
            idle.append(number)
    for connection in connections:
        connection.close()
    return np.array(times)


def anew(port: int, bodies: list[bytes], seconds: float, context: ssl.SSLContext) -> np.ndarray:
    """Send every beacon on a connection of its own, one after the other; return how long each took with handshake."""
    times = []
    start = time.perf_counter()
    while (began := time.perf_counter()) - start < seconds:
        with context.wrap_socket(socket.create_connection(("localhost", port)), server_hostname="localhost") as one:
            one.sendall(bodies[len(times) % len(bodies)])
            assert one.recv(65536).startswith(b"HTTP/1.1 204")
        times.append(time.perf_counter() - began)
    return np.array(times)


def counted(port: int, context: ssl.SSLContext | None = None) -> int:
    """Return what the server counted; steps are a few seconds long at most."""
    time.sleep(15)
    connection = (
        http.client.HTTPConnection("localhost", port)
        if context is None
        else http.client.HTTPSConnection("localhost", port, context=context)
    )
    with contextlib.closing(connection):
        connection.request("POST", "/v1/queries/exact/release")
        return round(json.loads(connection.getresponse().read())["releases"][0]["value"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seconds = 3.0 if given.quick else 20.0
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two cores are needed: one for the server, one for the generator")
    bodies = requests(20_000)
    head = ("way", "204s", "counted", "a second", "p50 ms", "p99 ms", "CPU us each")
    rows: list[tuple[str, ...]] = []

    def note(way: str, times: np.ndarray, seen: int, cpu: float) -> None:
        p50, p99 = 1e3 * np.quantile(times, [0.5, 0.99])
        speed = f"{len(times) / seconds:,.0f}"
        rows.append((way, f"{len(times):,}", f"{seen:,}", speed, f"{p50:.1f}", f"{p99:.1f}", f"{1e6 * cpu:.0f}"))

    with tempfile.TemporaryDirectory() as folder, served(Path(folder), cores[0]) as (port, pid):
        os.sched_setaffinity(0, {cores[1]})
        kept(port, bodies, 1.0, None)
        before = counted(port)
        for way, rate in (("as fast as answered", None), (f"{RATE:,} a second by the clock", float(RATE))):
            spent = cpu_seconds(pid)
            times = kept(port, bodies, seconds, rate)
            cpu = (cpu_seconds(pid) - spent) / len(times)
            after = counted(port)
            note(way, times, after - before, cpu)
            before = after
    with tempfile.TemporaryDirectory() as folder:
        identity = Authority(Path(folder)).issue("localhost")
        options = ("--certificate", identity.certificate.name, "--private-key", identity.key.name)
        context = ssl.create_default_context(cafile=str(identity.authority))
        with served(Path(folder), cores[0], *options) as (port, pid):
            spent = cpu_seconds(pid)
            times = anew(port, bodies, seconds, context)
            cpu = (cpu_seconds(pid) - spent) / len(times)
            note("TLS, a new connection each", times, counted(port, context), cpu)
    lost = sum(int(row[1].replace(",", "")) != int(row[2].replace(",", "")) for row in rows)
    load = f"load average at the end {os.getloadavg()[0]:.1f} on {len(cores)} cores"
    table = format_table("beacons, and what the server counted", head, rows, right=range(1, len(head)))
    text = f"{table}\n\n{load}; " + ("nothing was lost" if not lost else "SOME WERE LOST")
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")
    raise SystemExit(bool(lost))


if __name__ == "__main__":
    main()
