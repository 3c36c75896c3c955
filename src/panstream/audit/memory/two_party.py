"""The memory audit of two participants and a front end: start all three as processes and search them for secrets.

::

    report = drill_machines(ids=2_000)
    print(report)          # values handled, and found, by process
    assert report.ok

The scan after traffic, answers and idle re-randomisations searches for ids, their hashes, and the TLS secrets of the
audit's own connections. Seeds, masks and shares are drawn inside the processes and not known to the audit: in a source
checkout ``make audit-controls`` records them there and searches for them too. The audit is valid only if rows in flight
are found in the front end.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.audit.memory._traffic import DrillClient, send_paths
from panstream.audit.memory.drill import (
    HASHES,
    IN_FLIGHT,
    DrillReport,
    find_port,
    half_sent,
    hashes_of,
    paused,
    running_process,
)
from panstream.errors import PanstreamError
from panstream.primitives.certificates import Authority
from panstream.primitives.memory.secret_memory import VARIABLE
from panstream.server.auth import create_token
from panstream.testing.memory import Needle, ScanReport, make_needles, scan

FRONT_END = "front end"
PARTIES = ("a", "b", FRONT_END)
TLS_SECRETS = "TLS secrets"
TLS_LOG = "client.tls"  # of the audit's own connections
SETTLE = 1.0  # seconds without traffic before a scan
_ROWS_IN_FLIGHT = 1_000
_PATHS = ("csv, plain", "json, gzip", "arrow, zstd", "arrow, many at a time", "bad rows")
_BLIND = 0.5  # seconds between idle re-randomisations
_CONFIG = """
[stream]
name = "{stream}"
user = "id"
machines = ["https://127.0.0.1:{a}", "https://127.0.0.1:{b}"]
[stream.columns]
id = "string"
kind = "string"
page = "string"
[two_party]
names = ["a", "b"]
certificate = "front.pem"
key = "front.key"
authority = "authority.pem"
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT id) FROM {stream}"
epsilon = 0.05
releases = 3
[[query]]
name = "visits"
sql = "SELECT COUNT(*) FROM {stream}"
epsilon = 0.05
releases = 3
[store]
directory = "front"
step = "none"
"""


@dataclass(frozen=True, slots=True)
class PartyProcess:
    """One of the three processes, and the files and directories that it writes."""

    process: subprocess.Popen[bytes]
    files: tuple[Path, ...]

    def scan(self, needles: Sequence[Needle], options: Mapping[str, Any]) -> ScanReport:
        """Search the process's memory and files."""
        return scan(self.process.pid, needles, **options, files=self.files)


@dataclass(frozen=True, slots=True)
class Instrument:
    """Additional arguments, environment and descriptors with which a process records its own secrets."""

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    descriptors: Sequence[int] = ()


InstrumentFor = Callable[[str], AbstractContextManager[Instrument]]


def drill_machines(*, ids: int = 2_000, hardened: bool = True) -> DrillReport:
    """Run the audit with ``ids`` ids in all."""
    control = "s" + make_needles(1, "string")[0]
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder, contextlib.ExitStack() as stack:
        directory = Path(folder)
        parties, peer = start_parties(stack, directory, control, hardened=hardened)
        options = scan_options(control)
        needles = send_traffic(peer, ids)
        in_flight = make_needles(_ROWS_IN_FLIGHT)
        front_end = parties[FRONT_END]
        with half_sent(peer, in_flight), paused(front_end.process.pid):
            during = front_end.scan(in_flight, options)
        needles += in_flight
        ask(peer, "people", "visits")
        peer.close()
        time.sleep(SETTLE)
        secrets = tls_secrets(directory / TLS_LOG)
        values: list[Needle] = [*needles, *hashes_of(needles), *secrets]
        after = {name: party.scan(values, options) for name, party in parties.items()}
    kinds = ["ids"] * len(needles) + [HASHES] * len(needles) + [TLS_SECRETS] * len(secrets)
    hit_counts = Counter(
        (kinds[needle], name)
        for name, report in after.items()
        for needle in {finding.needle for finding in report.found}
    )
    controls = [(f"control: {IN_FLIGHT}, {FRONT_END}", _ROWS_IN_FLIGHT, during.found_needles)]
    lines = ("not searched for: shares, seeds, masks, keys and noise (make audit-controls in a source checkout)",)
    return summarize(Counter(kinds), hit_counts, controls, (during,), after, lines)


def summarize(
    handled: Counter[str],
    hit_counts: Counter[tuple[str, str]],
    controls: Sequence[tuple[str, int, int]],
    during: Sequence[ScanReport],
    after: Mapping[str, ScanReport],
    lines: Sequence[str] = (),
) -> DrillReport:
    """Return the report of scans during and after traffic; ``controls`` are rows that had to be found."""
    megabytes = sum(report.scanned_bytes for report in after.values()) / 1e6
    return DrillReport(
        head=("two machines", "handled"),
        rows=(
            *((kind, count, sum(hit_counts[kind, name] for name in PARTIES)) for kind, count in handled.items()),
            *controls,
        ),
        expected_hits=frozenset(kind for kind, _, _ in controls),
        scans=(*during, *after.values()),
        can_read=all(count for _, _, count in controls),
        after=(
            *(f"  {kind} at {name}: {count:,}" for (kind, name), count in hit_counts.items() if count),
            f"scanned {megabytes:,.0f} MB of memory and files of {len(PARTIES)} processes",
            *lines,
        ),
    )


def scan_options(control: str) -> dict[str, Any]:
    """Return the options of every scan: the control, decoys, and the raw encoding only."""
    return {"control": control.encode(), "encodings": ["raw"], "decoys": make_needles(1_000)}


def send_traffic(peer: DrillClient, ids: int) -> list[str]:
    """Send ids through several ingest paths, with idle steps between them, release answers, and return the ids."""
    share = max(16, ids // len(_PATHS))
    needles = make_needles(share * len(_PATHS))
    for index, path in enumerate(_PATHS):
        send_paths()[path](peer, needles[index * share : (index + 1) * share])
        time.sleep(2 * _BLIND)  # an idle step re-randomises the shares without rows
    ask(peer, "people", "visits", "people")
    return needles


def ask(peer: DrillClient, *queries: str) -> None:
    """Release an answer of each query; raise PanstreamError unless the front end accepts it."""
    for query in queries:
        status = peer.post(b"", "application/json", path=f"/v1/queries/{query}/release")
        if status != 200:
            raise PanstreamError(f"the front end answered a request for {query!r} with status {status}")


def tls_secrets(log: Path) -> list[bytes]:
    """Return the distinct secrets in a key log of OpenSSL; none if there is no log."""
    lines = log.read_text().splitlines() if log.exists() else []
    return sorted({bytes.fromhex(line.split()[2]) for line in lines if not line.startswith("#")})


def start_parties(
    stack: contextlib.ExitStack,
    directory: Path,
    control: str,
    *,
    hardened: bool,
    instrument_for: InstrumentFor = lambda name: contextlib.nullcontext(Instrument()),
) -> tuple[dict[str, PartyProcess], DrillClient]:
    """Start b, a and the front end; call it before any id is made, which the processes would inherit."""
    ports = {name: _free_port() for name in "ab"}
    (directory / "panstream.toml").write_text(_CONFIG.format(stream=control, **ports))
    token = create_token(directory / "tokens", "drill", ["ingest", "admin"])
    authority = Authority(directory)
    identity = [authority.issue(name) for name in ("a", "b", "front", "localhost")][-1]
    commands: dict[str, Sequence[str]] = {name: _party_command(name, control, ports) for name in "ba"}
    commands[FRONT_END] = [
        *("serve", "panstream.toml", "--port", "0", "--tokens", "tokens"),
        *("--certificate", identity.certificate.name, "--private-key", identity.key.name),
    ]
    parties: dict[str, PartyProcess] = {}
    port = 0
    for name, command in commands.items():
        extra = [] if hardened else ["--no-hardening"]
        parties[name] = stack.enter_context(_process(directory, name, [*command, *extra], instrument_for))
        first = "serving " if name == FRONT_END else "machine "
        port = find_port(parties[name].process, directory / f"{name}.out", first)
    context = ssl.create_default_context(cafile=str(identity.authority))
    context.keylog_filename = str(directory / TLS_LOG)
    peer = DrillClient("localhost", port, control, token, context, 1 << 24, [])
    stack.callback(peer.close)
    return {name: parties[name] for name in PARTIES}, peer


def _party_command(name: str, stream: str, ports: dict[str, int]) -> list[str]:
    other = "a" if name == "b" else "b"
    return [
        *("party", name, "--stream", stream, "--as", name, "--front", "front", "--peer-name", other),
        *("--listen", f"127.0.0.1:{ports[name]}", "--blind", f"{int(1000 * _BLIND)} ms"),
        *("--certificate", f"{name}.pem", "--key", f"{name}.key", "--authority", "authority.pem"),
        *(["--peer", f"https://127.0.0.1:{ports['b']}"] if name == "a" else []),
    ]


@contextlib.contextmanager
def _process(
    directory: Path, name: str, command: Sequence[str], instrument_for: InstrumentFor
) -> Iterator[PartyProcess]:
    out = f"{name}.out"
    with instrument_for(name) as instrument:
        environment = {VARIABLE: "0", **instrument.environment}  # a scan cannot read secret memory
        words = [*instrument.arguments, *command]
        with running_process(directory, out, words, environment, instrument.descriptors) as process:
            yield PartyProcess(process, (directory / name.partition(" ")[0], directory / out))


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
