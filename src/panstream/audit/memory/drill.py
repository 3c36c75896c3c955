"""The memory drill: start a server, send unguessable ids by every way in, and look for them in its memory and files.

::

    report = drill(ids=100_000)
    print(report)          # ids sent and found, way by way
    assert report.ok       # nothing found after traffic; during traffic at most the rows in flight

Looked for: the ids as text in every usual encoding, their beginnings, their 8-byte hashes, those of their beginnings
too, and their cell indices as they would lie in an array of a batch. One query counts ids as users, one counts them as
names that nobody listed. The scan counts only if it finds a control value that is known to be there, and none of
the decoys that were never sent.
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
_SETTLE = 1.0  # seconds that the server is left alone before a scan
# Bytes of a name, and bits of a symbol
_LONGEST = 40
_STEP = 4
_BEGINNING = 20
_WAYS_TO_HASH = 3
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
    """What was looked for and how much of it was found, as ``rows`` of (what, handled, found).

    What is ``expected_hits`` to be found is in flight, or there to see that the search can find something.
    """

    head: tuple[str, str]  # of the table
    rows: tuple[tuple[str, int, int], ...]
    expected_hits: frozenset[str]
    scans: tuple[ScanReport, ...]
    can_read: bool = True  # whether the search found what was there
    before: tuple[str, ...] = ()  # lines before the table, and after it
    after: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Return whether every scan can be believed."""
        return self.can_read and all(report.valid for report in self.scans)

    @property
    def ok(self) -> bool:
        """Return whether nothing was found that should not be there."""
        return self.valid and not any(count for what, _, count in self.rows if what not in self.expected_hits)

    def found(self, *rows: str) -> int:
        """Return how much was found of some rows."""
        return sum(count for what, _, count in self.rows if what in rows)

    def __str__(self) -> str:
        what, handled = self.head
        lines = [*self.before, f"{what:<38}{handled:>9}{'found':>9}"]
        lines += [f"{what:<38}{handled:>9,}{count:>9,}" for what, handled, count in self.rows]
        faults = [fault for report in self.scans for fault in report.faults]
        unseen = "; ".join(faults) or "what was there was not found"
        lines += self.after
        return "\n".join([*lines, "clean" if self.ok else "NOT CLEAN" if self.valid else f"INVALID: {unseen}"])


def drill(*, ids: int = 100_000, hardened: bool = True, in_flight: int = 1_000, secret: bool = False) -> DrillReport:
    """Run the drill with so many ids in all. A scan is blind to secret memory, so states are kept there only if
    asked.
    """
    control = make_needles(1, "string")[0]
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder:
        directory = Path(folder)
        with server_under_test(directory, _configuration(control), "drill", hardened=hardened, secret=secret) as (
            process,
            peer,
        ):
            memory = peer.memory()
            plan = send_paths()
            share = max(_RUN, ids // len(plan))
            parts = {way: make_needles(share) for way in plan}
            for way, send in plan.items():
                send(peer, parts[way])
            derived_from = [_cells({way: parts[way] for way in ACCEPTED})]
            parts[_GIVEN_UP] = make_needles(in_flight)
            needles = [needle for some in parts.values() for needle in some]
            options: dict[str, Any] = {"control": control.encode(), "files": [directory / "state", directory / "out"]}
            options["decoys"] = make_needles(1_000)
            time.sleep(_SETTLE)
            with half_sent(peer, parts[_GIVEN_UP]), paused(process):
                during = scan(process, needles, encodings=["raw"], **options)
            peer.close()
            time.sleep(_SETTLE)
            after = scan(process, needles, **options)
            derived_from += [hashes_of(needles), _name_hashes(needles), [one[:_BEGINNING].encode() for one in needles]]
            options["decoys"] = make_needles(1_000, "bytes")
            derived = scan(process, [needle for kind in derived_from for needle in kind], encodings=["raw"], **options)
    way_of = [way for way, some in parts.items() for _ in some]
    found_by_way = Counter(way_of[needle] for needle in {finding.needle for finding in after.found})
    flying = Counter(way_of[needle] for needle in {finding.needle for finding in during.found})
    kinds = [index for index, kind in enumerate(derived_from) for _ in kind]
    below = Counter(kinds[needle] for needle in {finding.needle for finding in derived.found})
    total = len(needles)
    hidden = derived.secret_bytes
    accepted = sum(len(parts[way]) for way in ACCEPTED)
    return DrillReport(
        head=("route", "sent"),
        rows=(
            *((way, len(some), found_by_way[way]) for way, some in parts.items()),
            (HASHES, total, below[1]),
            ("8-byte hashes as names", _WAYS_TO_HASH * total, below[2]),
            (f"their first {_BEGINNING} characters", total, below[3]),
            (CELLS, accepted // _RUN, below[0]),
            ("answered, while others are in flight", total, flying.total() - flying[_GIVEN_UP]),
            (IN_FLIGHT, in_flight, flying[_GIVEN_UP]),
        ),
        expected_hits=frozenset({IN_FLIGHT}),
        scans=(during, after, derived),
        after=(
            f"scanned {derived.scanned_bytes / 1e6:,.0f} MB of memory and {derived.files} files, 3 times",
            f"states in {memory} memory" + (f": {hidden / 1e3:,.0f} kB hidden from the scan" if hidden else ""),
        ),
    )


def _configuration(control: str) -> str:
    return _CONFIG.format(control=control, expected=_EXPECTED, max_item_bytes=_LONGEST)


@contextlib.contextmanager
def server_under_test(
    directory: Path, config: str, stream: str, *, hardened: bool, secret: bool = False
) -> Iterator[tuple[int, DrillClient]]:
    """Start a server with TLS and a token, before any id is made."""
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
    """Start a command that a scan may read, and stop it when the block ends; ``more`` is added to its environment."""
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
    """Wait until a process says where it listens, in a line that begins with ``first``."""
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


@contextlib.contextmanager
def paused(process: int) -> Iterator[None]:
    """Stop a process meanwhile: a sender who is slow is given up, and a scan may take longer than that."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def hashes_of(needles: Sequence[str]) -> list[bytes]:
    """Return the keyed 8-byte hashes that the distinct count makes of the ids."""
    out = np.empty(len(needles), np.uint64)
    hash_strings(*_strings(needles), 0, out, hash="siphash")
    return [one.tobytes() for one in out]


def _name_hashes(needles: Sequence[str]) -> list[bytes]:
    """Return the hashes by which equal names of a batch are found, and those of the cells of names and beginnings."""
    from panstream.primitives.kernels.algorithms.name_counts import hash_of_name
    from panstream.primitives.kernels.algorithms.prefix_tables import hash_names

    offsets, data = _strings(needles)
    begun = [one[:_BEGINNING] for one in needles]
    hashes = [int(hash_of_name(data, *ends)) for ends in pairwise(offsets.tolist())]
    for part in (needles, begun):
        out = np.empty(len(part), np.uint64)
        hash_names(*_strings(part), _LONGEST, _STEP, key_words(0, "names")[0], out)
        hashes += out.tolist()
    return [one.to_bytes(8, "little") for one in hashes]


def _cells(accepted: Mapping[str, Sequence[str]]) -> list[bytes]:
    """Return runs of cell indices, as they would lie in a batch's array."""
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
