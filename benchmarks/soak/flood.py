"""One token floods a server, another one sends: `python -m benchmarks.soak.flood [--quick] [DIRECTORY]`.

The server runs as users run it: hardened, TLS, durability "batch", the limits as they are; but with a step of 10 ms
instead of 200, which would hide much of the flood. That comes from a process and an address of its own: posts of bad
rows one after the other, half requests, idle connections and handshakes that are never finished, all of them made anew
as the server ends them. Both cores are the server's and the other token's first. That token's posts are timed from when
they were due; some come on a connection of their own. Windows without and with the flood take turns.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from benchmarks.speed.server import CONFIG, served, witness
from benchmarks.verdicts import verdict
from panstream.primitives.certificates import Authority
from panstream.server.auth import create_token

COLUMNS = """amount = "double"
day = "timestamp"
"""
WHERE = "region = 'north' AND amount < 10 AND day > TIMESTAMP '2020-01-01'"
EVENTS = "/v1/streams/visits/events"
LINES = "application/x-ndjson"
CSV = "text/csv"
POSTERS = 8
HALVES = 20
IDLE = 520
HALF_OPEN = 1_100
MOST = 5.0  # times the quiet p99
# Connections of the other token, and seconds between two posts of one
LANES = 8
PAUSE = 0.25
NEW = 10  # every tenth post comes on a connection of its own
ELSEWHERE = "127.0.0.2"  # where the flood comes from
QUICK = "--quick" in sys.argv


@contextmanager
def server(directory: Path) -> Iterator[int]:
    """Run a server with two tokens; yield its port."""
    identity = Authority(directory).issue("localhost")
    options = ["--tokens", "tokens", "--certificate", str(identity.certificate), "--private-key", str(identity.key)]
    with served(directory, CONFIG.format(columns=COLUMNS, where=WHERE), *options) as (address, _):
        port = urlsplit(address).port
        assert port
        yield port


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def bad_bodies() -> list[tuple[bytes, str]]:
    """About 0.4 MB each: values that do not fit, days and months that changed places, lines that break off."""
    days = "".join(f"u{n},north,1,{13 + n % 15}/{1 + n % 12}/2024\n" for n in range(16_000))
    amounts = "".join(f'{{"user":"u{n}","region":"north","amount":"x{n}"}}\n' for n in range(8_000))
    return [
        (b"user,region,amount,day\n" + days.encode(), CSV),
        (amounts.encode(), LINES),
        (b'{"user": 1\n' * 35_000, LINES),
    ]


class Flood:
    """What one token does to starve the others."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._tls = unverified()
        self._bodies = bad_bodies()

    def run(self) -> None:
        """Flood until the process ends."""
        for number in range(POSTERS):
            threading.Thread(target=self._post, args=[number], daemon=True).start()
        threading.Thread(target=self._hold, args=[HALVES, self._half], daemon=True).start()
        threading.Thread(target=self._hold, args=[IDLE, self._idle], daemon=True).start()
        self._hold(HALF_OPEN, self._connect)

    def _post(self, number: int) -> None:
        where = {"source_address": (ELSEWHERE, 0), "context": self._tls}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60, **where)
        while True:
            body, kind = self._bodies[number % len(self._bodies)]
            number += 1
            try:
                connection.request(
                    "POST", EVENTS, body, {"Content-Type": kind, "Authorization": f"Bearer {self._token}"}
                )
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()

    def _hold(self, count: int, make: Callable[[], socket.socket]) -> None:
        """Keep so many connections, and make those anew that the server ended."""
        held: dict[int, socket.socket] = {}
        poll = select.poll()
        while True:
            for _ in range(min(20, count - len(held))):
                with contextlib.suppress(OSError):
                    made = make()
                    held[made.fileno()] = made
                    poll.register(made, select.POLLIN | select.POLLHUP)
            for number, _ in poll.poll(20):
                poll.unregister(number)
                held.pop(number).close()

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=60, source_address=(ELSEWHERE, 0))

    def _idle(self) -> socket.socket:
        return self._tls.wrap_socket(self._connect())

    def _half(self) -> socket.socket:
        made = self._idle()
        head = f"POST {EVENTS} HTTP/1.1\r\nHost: a\r\nContent-Type: {LINES}\r\nAuthorization: Bearer {self._token}\r\n"
        made.sendall(f"{head}Content-Length: {16 << 20}\r\n\r\n".encode() + b"{" * 1000)
        return made


@contextmanager
def flooding(port: int, token: str) -> Iterator[None]:
    """Have the flood run in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak.flood", "--flood", str(port), token], stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


class Sender:
    """The other token: posts at fixed times, whether the server is slow or not."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._tls = unverified()
        self._headers = {"Content-Type": LINES, "Authorization": f"Bearer {token}"}
        rng = np.random.default_rng(7)
        more = '"region":"north","amount":1,"day":"2024-05-06 07:08:09"'
        rows = [f'{{"user":"{user}",{more}}}\n' for user in rng.integers(0, 10**12, 100)]
        self._body = "".join(rows).encode()
        self.refused: list[str] = []

    def times(self, seconds: float) -> list[float]:
        """Return how long every post took, in seconds from when it was due."""
        found: list[float] = []
        begin = time.perf_counter() + 0.2
        lanes = [threading.Thread(target=self._lane, args=[at, begin, seconds, found]) for at in range(LANES)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        return sorted(found)

    def _lane(self, at: int, begin: float, seconds: float, found: list[float]) -> None:
        kept = self._connection()
        for number in range(int(seconds / PAUSE)):
            due = begin + PAUSE * (number + at / LANES)
            time.sleep(max(0.0, due - time.perf_counter()))
            connection = self._connection() if number % NEW == NEW - 1 else kept
            try:
                connection.request("POST", EVENTS, self._body, self._headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.refused.append(str(answer.status))
            except (OSError, http.client.HTTPException) as error:
                self.refused.append(type(error).__name__)
                connection.close()
            found.append(time.perf_counter() - due)
            if connection is not kept:
                connection.close()
        kept.close()

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._tls)


def p99(times: list[float]) -> float:
    return times[int(0.99 * len(times))] * 1e3


def main() -> int:
    seconds, windows = (5.0, 2) if QUICK else (12.0, 4)
    where = next((given for given in sys.argv[1:] if not given.startswith("-")), None)
    quiet = []
    flooded = []
    stalls = []
    with tempfile.TemporaryDirectory(dir=where) as folder:
        tokens = [create_token(Path(folder) / "tokens", name, ["ingest"]) for name in ("sender", "flood")]
        with server(Path(folder)) as port:
            sender = Sender(port, tokens[0])
            sender.times(2.0)
            for number in range(windows):
                time.sleep(8.0 * (number > 0))  # until nothing is left of the last flood: quiet means quiet
                with witness() as late:
                    quiet.append(sender.times(seconds))
                stalls.append(sum(late))
                with flooding(port, tokens[1]), witness() as late:
                    time.sleep(3.0)  # until all of its connections are there
                    flooded.append(sender.times(seconds))
                stalls.append(sum(late))
    before, after = (statistics.median(map(p99, found)) for found in (quiet, flooded))
    posts = sum(map(len, quiet + flooded))
    good = verdict(
        "posts refused or cut beside a flood", f"{len(sender.refused)} of {posts:,}", "0", not sender.refused
    )
    figure = f"{before:.1f} -> {after:.1f} ms: {after / before:.1f} x"
    good &= verdict("p99 of a token's posts, quiet and beside a flood", figure, f"< {MOST:g} x", after < MOST * before)
    print(f"p99 by window, quiet: {', '.join(f'{p99(each):.1f}' for each in quiet)} ms")
    print(f"p99 by window, flood: {', '.join(f'{p99(each):.1f}' for each in flooded)} ms")
    middles = [statistics.median(time for each in found for time in each) * 1e3 for found in (quiet, flooded)]
    print(
        f"medians {middles[0]:.1f} and {middles[1]:.1f} ms; refused: "
        f"{', '.join(sorted(set(sender.refused))) or 'nothing'}"
    )
    print(f"stalls of the machine, quiet and flood in turn: {', '.join(f'{one * 1e3:.0f}' for one in stalls)} ms")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if good else 1


if __name__ == "__main__":
    if "--flood" in sys.argv:
        os.nice(19)
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        Flood(int(sys.argv[-2]), sys.argv[-1]).run()
    sys.exit(main())
