"""The memory drill on two machines: both and a front end as processes, and a search of all three for what was secret.

::

    report = drill_machines(ids=2_000)
    print(report)          # what was handled, and found, in which process
    assert report.ok

Looked for after traffic, answers and idle blindings: ids, their hashes, and the TLS secrets of the drill's own
connections. Seeds, masks and shares are drawn inside the processes, which tell nobody: in a source checkout
``make audit-controls`` records them there and searches for them too. The search counts only if it can fail: rows in
flight must be found in the front end.
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
TLS_LOG = "client.tls"  # of the drill's own connections
SETTLE = 1.0  # seconds that the processes are left alone before a scan
_ROWS_IN_FLIGHT = 1_000
_WAYS = ("csv, plain", "json, gzip", "arrow, zstd", "arrow, many at a time", "bad rows")
_BLIND = 0.5  # seconds between idle blindings
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
class Party:
    """One of the three processes."""

    process: subprocess.Popen[bytes]
    files: tuple[Path, ...]  # what it writes

    def scan(self, needles: Sequence[Needle], options: Mapping[str, Any]) -> ScanReport:
        """Search its memory and files."""
        return scan(self.process.pid, needles, **options, files=self.files)


@dataclass(frozen=True, slots=True)
class Instrument:
    """What a process is started with in addition, so that it records its own secrets."""

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    descriptors: Sequence[int] = ()


InstrumentFor = Callable[[str], AbstractContextManager[Instrument]]


def drill_machines(*, ids: int = 2_000, hardened: bool = True) -> DrillReport:
    """Run the drill with so many ids in all."""
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
        after = {who: party.scan([*needles, *hashes_of(needles), *secrets], options) for who, party in parties.items()}
    kinds = ["ids"] * len(needles) + [HASHES] * len(needles) + [TLS_SECRETS] * len(secrets)
    found_counts = Counter(
        (kinds[needle], who) for who, report in after.items() for needle in {finding.needle for finding in report.found}
    )
    controls = [(f"control: {IN_FLIGHT}, {FRONT_END}", _ROWS_IN_FLIGHT, during.found_needles)]
    lines = ("not searched for: shares, seeds, masks, keys and noise (make audit-controls in a source checkout)",)
    return summarize(Counter(kinds), found_counts, controls, (during,), after, lines)


def summarize(
    handled: Counter[str],
    found_counts: Counter[tuple[str, str]],
    controls: Sequence[tuple[str, int, int]],
    during: Sequence[ScanReport],
    after: Mapping[str, ScanReport],
    lines: Sequence[str] = (),
) -> DrillReport:
    """Return the report of scans during and after traffic; ``controls`` are rows of things that had to be found."""
    megabytes = sum(report.scanned_bytes for report in after.values()) / 1e6
    return DrillReport(
        head=("two machines", "handled"),
        rows=(
            *((kind, count, sum(found_counts[kind, who] for who in PARTIES)) for kind, count in handled.items()),
            *controls,
        ),
        expected_hits=frozenset(what for what, _, _ in controls),
        scans=(*during, *after.values()),
        can_read=all(count for _, _, count in controls),
        after=(
            *(f"  {what} at {who}: {count:,}" for (what, who), count in found_counts.items() if count),
            f"scanned {megabytes:,.0f} MB of memory and files of {len(PARTIES)} processes",
            *lines,
        ),
    )


def scan_options(control: str) -> dict[str, Any]:
    """Return what every scan of the drill gets."""
    return {"control": control.encode(), "encodings": ["raw"], "decoys": make_needles(1_000)}


def send_traffic(peer: DrillClient, ids: int) -> list[str]:
    """Send ids in several ways, with idle blindings in between, ask for answers, and return the ids."""
    share = max(16, ids // len(_WAYS))
    needles = make_needles(share * len(_WAYS))
    for index, way in enumerate(_WAYS):
        send_paths()[way](peer, needles[index * share : (index + 1) * share])
        time.sleep(2 * _BLIND)  # shares are blinded, with nobody's rows
    ask(peer, "people", "visits", "people")
    return needles


def ask(peer: DrillClient, *queries: str) -> None:
    """Have answers released."""
    for query in queries:
        status = peer.post(b"", "application/json", path=f"/v1/queries/{query}/release")
        if status != 200:
            raise PanstreamError(f"the front end answered a request for {query!r} with status {status}")


def tls_secrets(log: Path) -> list[bytes]:
    """Return the secrets of TLS connections, as OpenSSL logs them."""
    lines = log.read_text().splitlines() if log.exists() else []
    return sorted({bytes.fromhex(line.split()[2]) for line in lines if not line.startswith("#")})


def start_parties(
    stack: contextlib.ExitStack,
    directory: Path,
    control: str,
    *,
    hardened: bool,
    instrument_for: InstrumentFor = lambda who: contextlib.nullcontext(Instrument()),
) -> tuple[dict[str, Party], DrillClient]:
    """Start b, a and the front end, before any id is made."""
    ports = {name: _free_port() for name in "ab"}
    (directory / "panstream.toml").write_text(_CONFIG.format(stream=control, **ports))
    token = create_token(directory / "tokens", "drill", ["ingest", "admin"])
    authority = Authority(directory)
    identity = [authority.issue(name) for name in ("a", "b", "front", "localhost")][-1]
    commands: dict[str, Sequence[str]] = {who: _party_command(who, control, ports) for who in "ba"}
    commands[FRONT_END] = [
        *("serve", "panstream.toml", "--port", "0", "--tokens", "tokens"),
        *("--certificate", identity.certificate.name, "--private-key", identity.key.name),
    ]
    parties: dict[str, Party] = {}
    port = 0
    for who, command in commands.items():
        extra = [] if hardened else ["--no-hardening"]
        parties[who] = stack.enter_context(_process(directory, who, [*command, *extra], instrument_for))
        port = find_port(parties[who].process, directory / f"{who}.out", "serving " if who == FRONT_END else "machine ")
    context = ssl.create_default_context(cafile=str(identity.authority))
    context.keylog_filename = str(directory / TLS_LOG)
    peer = DrillClient("localhost", port, control, token, context, 1 << 24, [])
    stack.callback(peer.close)
    return {who: parties[who] for who in PARTIES}, peer


def _party_command(who: str, stream: str, ports: dict[str, int]) -> list[str]:
    other = "a" if who == "b" else "b"
    return [
        *("party", who, "--stream", stream, "--as", who, "--front", "front", "--peer-name", other),
        *("--listen", f"127.0.0.1:{ports[who]}", "--blind", f"{int(1000 * _BLIND)} ms"),
        *("--certificate", f"{who}.pem", "--key", f"{who}.key", "--authority", "authority.pem"),
        *(["--peer", f"https://127.0.0.1:{ports['b']}"] if who == "a" else []),
    ]


@contextlib.contextmanager
def _process(directory: Path, who: str, command: Sequence[str], instrument_for: InstrumentFor) -> Iterator[Party]:
    out = f"{who}.out"
    with instrument_for(who) as instrument:
        environment = {VARIABLE: "0", **instrument.environment}  # a scan is blind to secret memory
        words = [*instrument.arguments, *command]
        with running_process(directory, out, words, environment, instrument.descriptors) as process:
            yield Party(process, (directory / who.partition(" ")[0], directory / out))


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
