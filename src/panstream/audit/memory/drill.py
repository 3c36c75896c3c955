"""The memory audit: start a server, send random ids through every ingest path, and search its memory and files.

::

    report = drill(ids=100_000)
    print(report)          # ids sent and found, by ingest path
    assert report.ok       # nothing found after traffic; during traffic at most the rows in flight

The scan searches for the ids as text in every usual encoding, their prefixes, the 8-byte hashes of both, and their cell
indices as in an array of a batch. One query counts ids as users, one counts them as items of an open domain. The scan
is valid only if it finds a control value that the server has, and none of the decoys that were never sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.audit.memory._traffic import ACCEPTED, DrillClient, body, send_paths
from panstream.errors import PanstreamError
from panstream.primitives.certificates import Authority
from panstream.primitives.hashing import cells_of_strings, hash_strings
from panstream.primitives.hashing.keys import key_words
from panstream.primitives.memory.secret_memory import VARIABLE
from panstream.server.auth import create_token
from panstream.testing.memory import ScanReport, make_needles, scan

_EXPECTED = 100_000
_LIMIT = 4 << 20
_SETTLE_SECONDS = 1.0  # without traffic before a scan
_MAX_ITEM_BYTES = 40
_SYMBOL_BITS = 4
_PREFIX = 20  # characters
_NAME_HASHES = 3  # per id, see `_name_hashes`
_GIVEN_UP = "in flight, then given up"
_RUN = 4  # consecutive cell indices that make a needle: 16 bytes
# Rows of the report
IN_FLIGHT = "in flight"
HASHES = "8-byte keyed hashes"
CELLS = f"cell indices, runs of {_RUN}"
_CONFIG = """
[stream]
name = "drill"
user = "id"
[stream.columns]
id = "string"
kind = "string"
page = "string"
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
[[query]]
name = "names"
sql = "SELECT page, COUNT(*) FROM drill GROUP BY page"
epsilon = 1.0
delta = 1e-6
max_item_bytes = {max_item_bytes}
memory = 4000000
[store]
directory = "state"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """The result of an audit, as ``rows`` of (kind of value, number handled, number found).

    ``expected_hits`` are rows in flight, and positive controls that the scan has to find.
    """

    head: tuple[str, str]  # of the table
    rows: tuple[tuple[str, int, int], ...]
    expected_hits: frozenset[str]
    scans: tuple[ScanReport, ...]
    can_read: bool = True  # whether the positive controls were found
    before: tuple[str, ...] = ()  # lines before the table, and after it
    after: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Return whether every scan is valid and the positive controls were found."""
        return self.can_read and all(report.valid for report in self.scans)

    @property
    def ok(self) -> bool:
        """Return whether the audit is valid and found nothing but the expected hits."""
        return self.valid and not any(count for kind, _, count in self.rows if kind not in self.expected_hits)

    def found(self, *rows: str) -> int:
        """Return the number of values found in some rows."""
        return sum(count for kind, _, count in self.rows if kind in rows)

    def __str__(self) -> str:
        title, handled = self.head
        lines = [*self.before, f"{title:<38}{handled:>9}{'found':>9}"]
        lines += [f"{kind:<38}{handled:>9,}{count:>9,}" for kind, handled, count in self.rows]
        faults = [fault for report in self.scans for fault in report.faults]
        reason = "; ".join(faults) or "what was there was not found"
        lines += self.after
        return "\n".join([*lines, "clean" if self.ok else "NOT CLEAN" if self.valid else f"INVALID: {reason}"])


def drill(*, ids: int = 100_000, hardened: bool = True, in_flight: int = 1_000, secret: bool = False) -> DrillReport:
    """Run the audit with ``ids`` ids in all.

    A scan cannot read secret memory, so states are in ordinary memory unless ``secret``.
    """
    control = make_needles(1, "string")[0]
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder:
        directory = Path(folder)
        with server_under_test(directory, _configuration(control), "drill", hardened=hardened, secret=secret) as (
            process,
            peer,
        ):
            memory = peer.memory()
            senders = send_paths()
            share = max(_RUN, ids // len(senders))
            parts = {path: make_needles(share) for path in senders}
            for path, send in senders.items():
                send(peer, parts[path])
            derived_from = [_cells({path: parts[path] for path in ACCEPTED})]
            parts[_GIVEN_UP] = make_needles(in_flight)
            needles = [needle for some in parts.values() for needle in some]
            options: dict[str, Any] = {"control": control.encode(), "files": [directory / "state", directory / "out"]}
            options["decoys"] = make_needles(1_000)
            time.sleep(_SETTLE_SECONDS)
            with half_sent(peer, parts[_GIVEN_UP]), paused(process):
                during = scan(process, needles, encodings=["raw"], **options)
            peer.close()
            time.sleep(_SETTLE_SECONDS)
            after = scan(process, needles, **options)
            prefixes = [needle[:_PREFIX].encode() for needle in needles]
            derived_from += [hashes_of(needles), _name_hashes(needles), prefixes]
            options["decoys"] = make_needles(1_000, "bytes")
            derived = scan(process, [needle for kind in derived_from for needle in kind], encodings=["raw"], **options)
    path_of = [path for path, some in parts.items() for _ in some]
    hits_by_path = Counter(path_of[needle] for needle in {finding.needle for finding in after.found})
    hits_in_flight = Counter(path_of[needle] for needle in {finding.needle for finding in during.found})
    kinds = [index for index, kind in enumerate(derived_from) for _ in kind]
    hits_derived = Counter(kinds[needle] for needle in {finding.needle for finding in derived.found})
    total = len(needles)
    hidden = derived.secret_bytes
    accepted = sum(len(parts[path]) for path in ACCEPTED)
    return DrillReport(
        head=("route", "sent"),
        rows=(
            *((path, len(some), hits_by_path[path]) for path, some in parts.items()),
            (HASHES, total, hits_derived[1]),
            ("8-byte hashes as names", _NAME_HASHES * total, hits_derived[2]),
            (f"their first {_PREFIX} characters", total, hits_derived[3]),
            (CELLS, accepted // _RUN, hits_derived[0]),
            ("answered, while others are in flight", total, hits_in_flight.total() - hits_in_flight[_GIVEN_UP]),
            (IN_FLIGHT, in_flight, hits_in_flight[_GIVEN_UP]),
        ),
        expected_hits=frozenset({IN_FLIGHT}),
        scans=(during, after, derived),
        after=(
            f"scanned {derived.scanned_bytes / 1e6:,.0f} MB of memory and {derived.files} files, 3 times",
            f"states in {memory} memory" + (f": {hidden / 1e3:,.0f} kB hidden from the scan" if hidden else ""),
        ),
    )


def _configuration(control: str) -> str:
    return _CONFIG.format(control=control, expected=_EXPECTED, max_item_bytes=_MAX_ITEM_BYTES)


@contextlib.contextmanager
def server_under_test(
    directory: Path, config: str, stream: str, *, hardened: bool, secret: bool = False
) -> Iterator[tuple[int, DrillClient]]:
    """Start a server with TLS and a token; call it before any id is made, which the process would inherit."""
    (directory / "panstream.toml").write_text(config)
    token = create_token(directory / "tokens", "drill", ["ingest"])
    identity = Authority(directory).issue("localhost")
    command = ["serve", "panstream.toml", "--port", "0", "--tokens", "tokens", "--max-body", str(_LIMIT)]
    command += ["--certificate", identity.certificate.name, "--private-key", identity.key.name]
    command += [] if hardened else ["--no-hardening"]
    with running_process(directory, "out", command, {VARIABLE: str(int(secret))}) as process:
        port = find_port(process, directory / "out", "serving ")
        context = ssl.create_default_context(cafile=str(identity.authority))
        peer = DrillClient("localhost", port, stream, token, context, _LIMIT, [])
        try:
            yield process.pid, peer
        finally:
            peer.close()


@contextlib.contextmanager
def running_process(
    directory: Path, out: str, command: Sequence[str], more: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command that permits a scan, and stop it when the block ends; ``more`` is added to its environment."""
    with (directory / out).open("w") as text:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "panstream.cli.scannable", *command],
            cwd=directory,
            stdout=text,
            stderr=text,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **more},
            pass_fds=pass_fds,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def find_port(process: subprocess.Popen[bytes], out: Path, first: str) -> int:
    """Return the port in a process's line of output that starts with ``first``; wait for it for 120 seconds."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for line in out.read_text().splitlines():
            if line.startswith(first):
                return int(line.rpartition(":")[2])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise PanstreamError(f"the server did not start: {out.read_text().strip()[-500:]}")


@contextlib.contextmanager
def half_sent(peer: DrillClient, ids: Sequence[str]) -> Iterator[None]:
    """Hold a request open whose body has arrived except for its last byte."""
    data = body("json", ids)
    connection = peer.connect()
    connection.putrequest("POST", f"/v1/streams/{peer.stream}/events")
    connection.putheader("Authorization", f"Bearer {peer.token}")
    connection.putheader("Content-Type", "application/x-ndjson")
    connection.putheader("Content-Length", str(len(data) + 1))
    connection.endheaders(data)
    probe = peer.post(body("csv", []), "text/csv")  # answered only after the server read the half-sent request
    if probe != 200:
        raise PanstreamError(f"the server answered a body without rows with status {probe}")
    yield


@contextlib.contextmanager
def paused(process: int) -> Iterator[None]:
    """Stop a process for the block: the server drops slow senders, and a scan may take longer than its timeout."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def hashes_of(needles: Sequence[str]) -> list[bytes]:
    """Return the keyed 8-byte hashes of the ids, as the distinct count computes them."""
    out = np.empty(len(needles), np.uint64)
    hash_strings(*_strings(needles), 0, out, hash="siphash")
    return [id_hash.tobytes() for id_hash in out]


def _name_hashes(needles: Sequence[str]) -> list[bytes]:
    """Return the hashes that find equal names in a batch, and those of the cells of names and of their prefixes."""
    from panstream.primitives.kernels.algorithms.name_counts import hash_of_name
    from panstream.primitives.kernels.algorithms.prefix_tables import hash_names

    offsets, data = _strings(needles)
    prefixes = [needle[:_PREFIX] for needle in needles]
    hashes = [int(hash_of_name(data, *ends)) for ends in pairwise(offsets.tolist())]
    for names in (needles, prefixes):
        out = np.empty(len(names), np.uint64)
        # Each symbol is on one level, since the names are longer than half of the longest.
        hash_names(*_strings(names), _MAX_ITEM_BYTES, _SYMBOL_BITS, 1, key_words(0, "names")[0], out)
        hashes += out.tolist()
    return [name_hash.to_bytes(8, "little") for name_hash in hashes]


def _cells(accepted: Mapping[str, Sequence[str]]) -> list[bytes]:
    """Return runs of four cell indices, as they would be in a batch's array."""
    from panstream.engine.config.config import read_config
    from panstream.engine.planner.query_plan import plan_all

    config = read_config(tomllib.loads(_configuration("x")))
    algorithm = plan_all(config)[0].algorithm
    runs: set[bytes] = set()
    for ids in accepted.values():
        out = np.empty(len(ids), np.int32)
        cells_of_strings(*_strings(ids), 0, algorithm.buckets, algorithm.levels, out, hash=algorithm.hash)
        runs |= {out[start : start + _RUN].tobytes() for start in range(0, len(ids) - _RUN + 1, _RUN)}
    return sorted(runs)


def _strings(ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    data = np.frombuffer("".join(ids).encode(), np.uint8)
    return np.arange(len(ids) + 1, dtype=np.int64) * len(ids[0]), data
