"""What a copy of the memory tells about ids that were sent before: `python -m benchmarks.soak.memory_drill [--quick]`.

The same unguessable ids go to a panstream server, to a Redis set, to a Redis HyperLogLog, and to a plain Python server
that counts with a HyperLogLog. Traffic stops; a process of its own reads all writable memory and the files.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.verdicts import verdict
from panstream.algorithms.planning.tables import format_table
from panstream.audit.memory.drill import CELLS, HASHES, DrillReport, drill
from panstream.testing.memory import make_needles, scan

IDS = 20_000 if "--quick" in sys.argv else 100_000
BATCH = 1_000
NAIVE = """
import json, sys
import uvicorn
from datasketches import hll_sketch
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from panstream.testing.memory import allow_scan
allow_scan()
sketch = hll_sketch(14)
async def events(request):
    for line in (await request.body()).splitlines():
        sketch.update(json.loads(line)["id"])
    return PlainTextResponse("ok")
uvicorn.run(Starlette(routes=[Route("/", events, methods=["POST"])]), port=int(sys.argv[1]), log_level="error")
"""


def batches(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]


def count(pid: int, ids: Sequence[str], files: Sequence[Path] = ()) -> int:
    time.sleep(1.0)
    report = scan(pid, ids, decoys=make_needles(1_000), control=None, files=files)
    assert not report.decoys_found
    return report.found_needles


def redis(command: str) -> int:
    from redis import Redis
    from redis.exceptions import RedisError

    port = 20000 + os.getpid() % 20000
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["redis-server", "--port", str(port), "--dir", folder]
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
        try:
            client = Redis(port=port)
            for _ in range(200):
                try:
                    client.ping()
                    break
                except RedisError:
                    time.sleep(0.05)
            ids = make_needles(IDS)
            for batch in batches(ids):
                client.execute_command(command, "key", *batch)
            return count(process.pid, ids, [Path(folder)])
        finally:
            process.terminate()
            process.wait(30)


def naive() -> int:
    port = 40000 + os.getpid() % 20000
    process = subprocess.Popen([sys.executable, "-c", NAIVE, str(port)])
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(400):
            try:
                connection.connect()
                break
            except OSError:
                time.sleep(0.05)
        ids = make_needles(IDS)
        for batch in batches(ids):
            connection.request("POST", "/", "".join(json.dumps({"id": one}) + "\n" for one in batch))
            connection.getresponse().read()
        return count(process.pid, ids)
    finally:
        process.terminate()
        process.wait(30)


def ids_of(report: DrillReport) -> tuple[int, int]:
    """Ids sent and found after traffic, whichever way they went: the rows before those of their hashes."""
    ways = report.rows[: [what for what, _, _ in report.rows].index(HASHES)]
    return sum(sent for _, sent, _ in ways), sum(found for _, _, found in ways)


def main() -> None:
    ours = drill(ids=IDS)
    bare = drill(ids=IDS, hardened=False)
    rows = [
        ["Redis set (SADD)", f"{IDS:,}", f"{redis('SADD'):,}"],
        ["Redis HyperLogLog (PFADD)", f"{IDS:,}", f"{redis('PFADD'):,}"],
        ["plain Python server, HyperLogLog", f"{IDS:,}", f"{naive():,}"],
        ["panstream serve --no-hardening", *(f"{each:,}" for each in ids_of(bare))],
        ["panstream serve", *(f"{each:,}" for each in ids_of(ours))],
    ]
    print(format_table("ids found in memory and files after traffic", ["system", "sent", "found"], rows, right={1, 2}))
    derived = ours.found(HASHES, CELLS)
    left = ids_of(ours)[1] + derived
    print(f"scans valid: {ours.valid and bare.valid}; hashes and cells found in panstream: {derived}")
    verdict(
        "ids, hashes and runs of cells found after traffic", str(left), "0", left == 0 and ours.valid and bare.valid
    )


if __name__ == "__main__":
    main()
