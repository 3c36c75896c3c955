"""Rows from Apache Beam's DirectRunner, exactly once: ``python -m benchmarks.soak.beam [ROWS [KILLS]]``.

``make beam`` runs this in an environment with apache-beam; the server runs in the project's own. Drills: every bundle
fails after its part was counted, and the pipeline is run again until it ends (the runner itself does not repeat
bundles); the same with windows; the same with another job name each time, as a control, which counts rows again. Then
the pipeline is killed with SIGKILL at random. Counts have so large an epsilon that they are exact.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
PANSTREAM = os.environ.get("PANSTREAM", str(HERE.parents[2] / ".venv" / "bin" / "panstream"))
PARTS = 4
WINDOWS = 5
REGIONS = [f"region {number}" for number in range(4)]
CONFIG = f"""
[stream]
name = "visits"
user = "user"
columns = {{ user = "string", region = "string" }}
[stream.budget]
event = 1000.0
[[query]]
name = "rows"
sql = "SELECT region, COUNT(*) FROM visits GROUP BY region"
epsilon = 200.0
releases = 1
groups = {{ region = {json.dumps(REGIONS)} }}
[store]
directory = "state"
"""


@contextlib.contextmanager
def server(work: Path) -> Iterator[str]:
    """Serve the stream on loopback, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (work / "panstream.toml").write_text(CONFIG)
    with (work / "server.log").open("w") as log:
        command = [PANSTREAM, "serve", str(work / "panstream.toml"), "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                call(address, "/v1/queries")
                break
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def call(address: str, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(address + path, method=method, data=b"" if method == "POST" else None)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def row(number: int) -> dict[str, str]:
    return {"user": f"u{number * 7919 % 100_003}", "region": REGIONS[number * number % 7 % len(REGIONS)]}


def _count(_: int, rows: Any) -> int:
    return len(list(rows))


def job(url: str, name: str, rows: str, mode: str, flags: str) -> None:
    """Run the pipeline; with ``flags``, a directory, every batch of every part fails once after it was counted."""
    import apache_beam as beam
    from apache_beam.transforms.window import TimestampedValue

    from panstream.client import client
    from panstream.distributed.beam import WriteToPanstream

    if flags != "-":
        send = client.Client.send_numbered

        def send_and_fail(self: Any, rows: Any, sequence: int) -> bool:
            new = send(self, rows, sequence)
            with contextlib.suppress(FileExistsError):
                (Path(flags) / f"{self._numbered._name}-{sequence}").touch(exist_ok=False)
                raise RuntimeError("a bundle that fails after it was counted")
            return new

        client.Client.send_numbered = send_and_fail  # type: ignore[method-assign]
    count = int(rows)
    start = time.perf_counter()
    with beam.Pipeline("DirectRunner") as pipeline:
        numbers = pipeline | beam.Create(range(0, count, 1000)) | beam.FlatMap(lambda n: range(n, min(count, n + 1000)))
        if mode == "windows":
            stamped = numbers | beam.Map(lambda n: TimestampedValue(row(n), 1_000_000 + n % WINDOWS * 100))
            stamped | WriteToPanstream(
                url, "visits", job=name, parts=PARTS, window=100, start=1_000_000, stop=1_000_000 + 100 * WINDOWS
            )
        elif mode == "empty":
            numbers | beam.Map(lambda n: (n % PARTS, row(n))) | beam.GroupByKey() | beam.MapTuple(_count)
        else:
            numbers | beam.Map(row) | WriteToPanstream(url, "visits", job=name, parts=PARTS)
    print(f"ended in {time.perf_counter() - start:.2f} s", flush=True)


def start_job(address: str, work: Path, name: str, rows: int, mode: str, flags: str = "-") -> Any:
    command = [sys.executable, str(HERE), "job", address, name, str(rows), mode, flags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=(work / "job.log").open("a"), text=True, start_new_session=True
    )


def truth(rows: int) -> list[int]:
    counts = dict.fromkeys(REGIONS, 0)
    for number in range(rows):
        counts[row(number)["region"]] += 1
    return list(counts.values())


def counted(address: str) -> list[int]:
    return [round(release["value"]) for release in call(address, "/v1/queries/rows/release", "POST")["releases"]]


def report(name: str, work: Path, counts: list[int], rows: int, what: str, *, exact: bool) -> bool:
    good = (counts == truth(rows)) is exact
    words = "exact in every region" if counts == truth(rows) else "not exact"
    print(f"{name:<44} {what}: {sum(counts):>9,} of {rows:,} rows, {words}   {'pass' if good else 'FAIL'}", flush=True)
    if not good:
        print((work / "job.log").read_text()[-2000:])
    return good


def failures(name: str, mode: str, rows: int, *, renamed: bool = False) -> bool:
    """Run the pipeline until no bundle fails; return whether the counts are as expected."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "flags").mkdir()
        with server(work) as address:
            for attempt in range(PARTS * WINDOWS + 2):
                process = start_job(address, work, f"job-{attempt * renamed}", rows, mode, str(work / "flags"))
                process.communicate()
                if process.returncode == 0 or (renamed and attempt == 2):
                    break
            counts = counted(address)
        return report(name, work, counts, rows, f"run {attempt + 1} times", exact=not renamed)


def kills(rows: int, count: int) -> bool:
    """Kill the pipeline at random, and run it again."""
    chance = random.Random(40)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        with server(work) as address:
            process = start_job(address, work, "warm-up", 0, "sink")
            process.communicate()
            begin = time.monotonic()
            start_job(address, work, "timed", 0, "sink").communicate()
            usual = time.monotonic() - begin
            killed = 0
            while killed < count:
                process = start_job(address, work, "killed", rows, "sink")
                try:
                    process.wait(chance.uniform(0.5, 2.0) * usual)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                killed += 1
            start_job(address, work, "killed", rows, "sink").communicate()
            counts = counted(address)
        return report("killed at random", work, counts, rows, f"{killed} times", exact=True)


def speed(rows: int) -> bool:
    rates: dict[str, float] = {}
    for _ in range(2):
        for mode in ("empty", "sink"):
            with tempfile.TemporaryDirectory() as directory, server(Path(directory)) as address:
                out, _ = start_job(address, Path(directory), "speed", rows, mode).communicate()
                rates[mode] = max(rates.get(mode, 0.0), rows / float(out.rpartition("ended in ")[2].split()[0]))
    print(
        f"{rates['sink']:,.0f} rows a second, {rates['sink'] / rates['empty']:.2f} of a pipeline that groups and sends "
        f"nothing (best of two; DirectRunner; load {os.getloadavg()[0]:.1f})"
    )
    return True


def main() -> int:
    if sys.argv[1:2] == ["job"]:
        job(*sys.argv[2:])
        return 0
    rows, count = ([int(text) for text in sys.argv[1:]] + [50_000, 10][len(sys.argv) - 1 :])[:2]
    good = failures("failed after counting, run again", "sink", rows)
    good = failures("the same, with windows", "windows", rows) and good
    good = failures("control: another job name each time", "sink", rows, renamed=True) and good
    good = kills(rows, count) and good
    return 0 if speed(rows) and good else 1


if __name__ == "__main__":
    sys.exit(main())
