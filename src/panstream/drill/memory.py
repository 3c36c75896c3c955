"""The memory drill: start a server, send unguessable ids by every way in, and look for them in its memory and files.

::

    report = drill(ids=100_000)
    print(report)          # ids sent and found, way by way
    assert report.ok       # nothing found after traffic; during traffic at most the rows in flight

Looked for: the ids as text in every usual encoding, their 8-byte keyed hashes, and their cell indices as they would
lie in an array of a batch. The scan counts only if it finds a control value that is known to be there, and none of
the decoys that were never sent.
"""

from __future__ import annotations

import contextlib
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from panstream.drill.traffic import ACCEPTED, Peer, body, ways
from panstream.errors import PanstreamError
from panstream.federated.certificates import Authority
from panstream.hashing import cells_of_strings, hash_strings
from panstream.server.access import create_token
from panstream.testing.memory import Report, make_needles, scan

__all__ = ["drill"]

_EXPECTED = 100_000
_LIMIT = 4 << 20
_SETTLE = 1.0  # seconds that the server is left alone before a scan
_RUN = 4  # consecutive cell indices that make a needle: 16 bytes
_CONFIG = """
[stream]
name = "drill"
user = "id"
[stream.columns]
id = "string"
kind = "string"
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT id) FROM drill WHERE kind <> '{control}'"
epsilon = 1.0
expected = {expected}
releases = 2
[[query]]
name = "visits"
sql = "SELECT COUNT(*) FROM drill WHERE upper(kind) LIKE 'A%'"
epsilon = 1.0
every = "1 second"
horizon = 100000
contributions = 10
[store]
directory = "state"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DrillReport:
    """What was sent and what was found."""

    sent: dict[str, int]
    found: dict[str, int]
    in_flight: int
    found_in_flight: int
    found_before: int  # of rows that were answered while others were in flight
    hashes: int
    cells: int
    scans: tuple[Report, ...]

    @property
    def valid(self) -> bool:
        """Return whether every scan can be believed."""
        return all(report.valid for report in self.scans)

    @property
    def ok(self) -> bool:
        """Return whether nothing was found that should not be there."""
        after = sum(self.found.values()) + self.hashes + self.cells + self.found_before
        return self.valid and after == 0 and self.found_in_flight <= self.in_flight

    def rows(self) -> list[tuple[str, int, int]]:
        """Return (what, sent, found) for a table."""
        ids = [(way, self.sent[way], self.found[way]) for way in self.sent]
        total = sum(self.sent.values())
        accepted = sum(count for way, count in self.sent.items() if way in ACCEPTED)
        return [
            *ids,
            ("8-byte keyed hashes", total, self.hashes),
            ("cell indices, runs of 4", accepted // _RUN, self.cells),
            ("answered, while others are in flight", total, self.found_before),
            ("in flight", self.in_flight, self.found_in_flight),
        ]

    def __str__(self) -> str:
        lines = [f"{'way in':<38}{'sent':>9}{'found':>9}"]
        lines += [f"{what:<38}{sent:>9,}{found:>9,}" for what, sent, found in self.rows()]
        faults = [fault for report in self.scans for fault in report.faults]
        megabytes = self.scans[-1].scanned_bytes / 1e6
        lines.append(f"scanned {megabytes:,.0f} MB of memory and {self.scans[-1].files} files, {len(self.scans)} times")
        lines.append("clean" if self.ok else "NOT CLEAN" if self.valid else "INVALID: " + "; ".join(faults))
        return "\n".join(lines)


def drill(*, ids: int = 100_000, hardened: bool = True, in_flight: int = 1_000) -> _DrillReport:
    """Run the drill with so many ids in all."""
    control = make_needles(1, "string")[0]
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder:
        directory = Path(folder)
        with _server(directory, control, hardened) as (process, peer):
            plan = ways()
            share = max(_RUN, ids // len(plan))
            needles, decoys = make_needles(share * len(plan)), make_needles(1_000)
            parts = {way: needles[at * share : (at + 1) * share] for at, way in enumerate(plan)}
            for way, send in plan.items():
                send(peer, parts[way])
            waiting = make_needles(in_flight)
            time.sleep(_SETTLE)
            where = [directory / "state", directory / "out"]
            with _half_sent(peer, waiting):
                during = scan(
                    process,
                    [*needles, *waiting],
                    decoys=decoys,
                    control=control.encode(),
                    encodings=["raw"],
                    files=where,
                )
            peer.close()
            time.sleep(_SETTLE)
            after = scan(process, [*needles, *waiting], decoys=decoys, control=control.encode(), files=where)
            accepted = {way: parts[way] for way in ACCEPTED}
            derived = scan(
                process,
                [*_hashes(needles), *_cells(accepted)],
                decoys=make_needles(1_000, "bytes"),
                control=control.encode(),
                encodings=["raw"],
                files=where,
            )
    found = {finding.needle for finding in after.found}
    flying = {finding.needle for finding in during.found}
    below = {finding.needle for finding in derived.found}
    count = len(needles)
    return _DrillReport(
        sent={way: share for way in plan} | {"in flight, then given up": in_flight},
        found={way: sum(at * share <= one < (at + 1) * share for one in found) for at, way in enumerate(plan)}
        | {"in flight, then given up": sum(one >= count for one in found)},
        in_flight=in_flight,
        found_in_flight=sum(one >= count for one in flying),
        found_before=sum(one < count for one in flying),
        hashes=sum(one < count for one in below),
        cells=sum(one >= count for one in below),
        scans=(during, after, derived),
    )


@contextlib.contextmanager
def _server(directory: Path, control: str, hardened: bool) -> Iterator[tuple[int, Peer]]:
    """Start a server with TLS and a token, before any id is made."""
    (directory / "panstream.toml").write_text(_CONFIG.format(control=control, expected=_EXPECTED))
    token = create_token(directory / "tokens", "drill", ["ingest"])
    identity = Authority(directory).issue("localhost")
    command = [sys.executable, "-P", "-m", "panstream.cli.scannable", "serve", "panstream.toml", "--port", "0"]
    command += ["--tokens", "tokens", "--certificate", identity.certificate.name, "--private-key", identity.key.name]
    command += ["--max-body", str(_LIMIT)] + ([] if hardened else ["--no-hardening"])
    with (directory / "out").open("w") as out:
        process = subprocess.Popen(command, cwd=directory, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    peer: Peer | None = None
    try:
        port = _port(process, directory / "out")
        context = ssl.create_default_context(cafile=str(identity.authority))
        peer = Peer("localhost", port, "drill", token, context, _LIMIT, [])
        yield process.pid, peer
    finally:
        if peer is not None:
            peer.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], out: Path) -> int:
    """Wait until the server says where it listens."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for line in out.read_text().splitlines():
            if line.startswith("serving "):
                return int(line.rpartition(":")[2])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise PanstreamError(f"the server did not start: {out.read_text().strip()[-500:]}")


@contextlib.contextmanager
def _half_sent(peer: Peer, ids: Sequence[str]) -> Iterator[None]:
    """Hold a request open whose body has arrived but for its last bytes."""
    data = body("json", ids)
    connection = peer.connect()
    connection.putrequest("POST", f"/v1/streams/{peer.stream}/events")
    connection.putheader("Authorization", f"Bearer {peer.token}")
    connection.putheader("Content-Type", "application/x-ndjson")
    connection.putheader("Content-Length", str(len(data) + 1))
    connection.endheaders(data)
    probe = peer.post(body("csv", []), "text/csv")  # answered after what was sent before it
    if probe != 200:
        raise PanstreamError(f"the server answered a body without rows with status {probe}")
    yield


def _hashes(needles: Sequence[str]) -> list[bytes]:
    """Return the keyed 8-byte hashes that the distinct count makes of the ids."""
    out = np.empty(len(needles), np.uint64)
    hash_strings(*_strings(needles), 0, out)
    return [one.tobytes() for one in out]


def _cells(accepted: Mapping[str, Sequence[str]]) -> list[bytes]:
    """Return runs of cell indices, as they would lie in a batch's array."""
    from panstream.engine.config import read_config
    from panstream.engine.plan import plan_all

    config = read_config(tomllib.loads(_CONFIG.format(control="x", expected=_EXPECTED)))
    algorithm = plan_all(config)[0].algorithm
    runs: set[bytes] = set()
    for ids in accepted.values():
        out = np.empty(len(ids), np.int32)
        cells_of_strings(*_strings(ids), 0, algorithm.buckets, algorithm.levels, out)
        runs |= {out[at : at + _RUN].tobytes() for at in range(0, len(ids) - _RUN + 1, _RUN)}
    return sorted(runs)


def _strings(ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    data = np.frombuffer("".join(ids).encode(), np.uint8)
    return np.arange(len(ids) + 1, dtype=np.int64) * len(ids[0]), data
