"""The memory drill on two machines: both and a front end as processes, and a search of all three for what was secret.

::

    report = drill_machines(ids=2_000)
    print(report)          # what was told, and found, in which process
    assert report.ok

Looked for after traffic, answers and idle blindings: ids and their hashes; and what the processes themselves told
(``drill.tap``): keys, what they expand to, messages, noise, X25519 secrets, TLS secrets, shares of earlier epochs. The
search counts only if it can fail: while a step is held half-way it must find such things in every process, and in the
end each machine's share of the present epoch.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.audit.memory._traffic import Peer, body, ways
from panstream.audit.memory.drill import HASHES, DrillReport, find_port, hashes_of, started
from panstream.audit.memory.secret_recorder import HEADER, HELD, TAP
from panstream.errors import PanstreamError
from panstream.primitives.certificates import Authority
from panstream.primitives.memory.secret_memory import VARIABLE
from panstream.server.auth import create_token
from panstream.testing.memory import Needle, Report, make_needles, scan

PARTIES = ("a", "b", "front end")
_SETTLE = 1.0  # seconds that the processes are left alone before a scan
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
[machines]
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


@dataclass(slots=True)
class _Told:
    """What the processes tell, from their pipes."""

    pieces: dict[bytes, tuple[str, str, int]] = field(default_factory=dict)  # what, who, the step
    held: threading.Event = field(default_factory=threading.Event)

    def listen(self, who: str, descriptor: int) -> None:
        """Take in what one process tells, until it ends."""
        with os.fdopen(descriptor, "rb") as pipe:
            while len(head := pipe.read(HEADER.size)) == HEADER.size:
                name, step, size = HEADER.unpack(head)
                kind, piece = name.rstrip(b"\0").decode(), pipe.read(size)
                if kind == HELD:
                    self.held.set()
                elif _unguessable(kind, piece):
                    self.pieces.setdefault(piece, (kind, who, step))


@dataclass(frozen=True, slots=True)
class _Party:
    """One of the three processes."""

    process: subprocess.Popen[bytes]
    hold: int  # descriptor: a byte holds its next exchange, another lets it go on
    folder: Path
    secrets: Path

    def push(self) -> None:
        """Hold the next exchange, or let a held one go on."""
        os.write(self.hold, b"x")


def drill_machines(*, ids: int = 2_000, hardened: bool = True) -> DrillReport:
    """Run the drill with so many ids in all."""
    control = "s" + make_needles(1, "string")[0]
    told = _Told()
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder, contextlib.ExitStack() as stack:
        directory = Path(folder)
        parties, peer = _started(stack, directory, control, told, hardened)
        share = max(16, ids // len(_WAYS))
        needles = make_needles(share * len(_WAYS))
        options: dict[str, Any] = {"control": control.encode(), "encodings": ["raw"], "decoys": make_needles(1_000)}
        for at, way in enumerate(_WAYS):
            ways()[way](peer, needles[at * share : (at + 1) * share])
            time.sleep(2 * _BLIND)  # shares are blinded, with nobody's rows
        for name in ("people", "visits", "people"):
            _ask(peer, name)
        during = _held_scans(parties, peer, told, options)
        for name in ("people", "visits"):
            _ask(peer, name)
        peer.close()
        parties["a"].push()  # no more idle blindings
        time.sleep(_SETTLE)
        _take_secrets(parties, told)
        now = {who: max(step for _, by, step in told.pieces.values() if by == who) for who in "ab"}
        present = [piece for piece, (kind, who, step) in told.pieces.items() if kind == "share" and step == now[who]]
        secret = sorted(told.pieces.keys() - set(present))
        looked: list[Needle] = [*needles, *hashes_of(needles), *secret, *present]
        after = {
            who: scan(party.process.pid, looked, **options, files=[party.folder, directory / f"{who}.out"])
            for who, party in parties.items()
        }
    kinds = ["ids"] * len(needles) + [HASHES] * len(needles) + [told.pieces[each][0] for each in secret]
    found: Counter[tuple[str, str]] = Counter()
    shown: Counter[str] = Counter()
    for who, report in after.items():
        hits = {each.needle for each in report.found}
        found.update((kinds[hit], who) for hit in hits if hit < len(kinds))
        shares = sum(hit >= len(kinds) for hit in hits)
        if who in now:
            shown[who] = shares  # where nobody came, both machines' shares are alike
        else:
            found["share", who] += shares
    controls = [(f"control: in a step, {who}", len(kinds), report.found_needles) for who, report in during.items()]
    controls += [(f"control: the present share, {who}", len(present), shown[who]) for who in now]
    megabytes = sum(report.scanned_bytes for report in after.values()) / 1e6
    handled = Counter(kinds)
    handled["share"] += 0  # a row of its own even if none was told
    return DrillReport(
        head=("two machines", "handled"),
        rows=(
            *((kind, count, sum(found[kind, who] for who in PARTIES)) for kind, count in handled.items()),
            *controls,
        ),
        meant=frozenset(what for what, _, _ in controls),
        scans=(*during.values(), *after.values()),
        sees=all(count for _, _, count in controls),
        after=(
            *(f"  {what} at {who}: {count:,}" for (what, who), count in found.items() if count),
            f"scanned {megabytes:,.0f} MB of memory and files of {len(PARTIES)} processes, twice",
        ),
    )


def _held_scans(parties: dict[str, _Party], peer: Peer, told: _Told, options: dict[str, Any]) -> dict[str, Report]:
    """Hold a step while machine a has everything in hand, and search all three for what was told."""
    parties["a"].push()
    sent = threading.Thread(target=peer.post, args=(body("csv", make_needles(100)), "text/csv"))
    sent.start()
    if not told.held.wait(60):
        raise PanstreamError("no step came to the exchange of the machines")
    options = {**options, "decoys": make_needles(1_000, "bytes"), "files": []}
    found = {who: scan(party.process.pid, [*told.pieces], **options) for who, party in parties.items()}
    parties["a"].push()
    sent.join()
    return found


def _take_secrets(parties: dict[str, _Party], told: _Told) -> None:
    """Take in the secrets of all TLS connections, as OpenSSL logs them."""
    for who, party in parties.items():
        for line in party.secrets.read_text().splitlines() if party.secrets.exists() else ():
            if not line.startswith("#"):
                told.pieces.setdefault(bytes.fromhex(line.split()[2]), ("TLS secrets", who, 0))


def _unguessable(kind: str, piece: bytes) -> bool:
    """Return whether a piece is not found by chance."""
    size = 8 if kind == "noise" else 1
    return len({piece[at : at + size] for at in range(0, len(piece), size)}) > (6 if size == 8 else 8)


def _ask(peer: Peer, query: str) -> None:
    status = peer.post(b"", "application/json", path=f"/v1/queries/{query}/release")
    if status != 200:
        raise PanstreamError(f"the front end answered a request for {query!r} with status {status}")


def _started(
    stack: contextlib.ExitStack, directory: Path, control: str, told: _Told, hardened: bool
) -> tuple[dict[str, _Party], Peer]:
    """Start b, a and the front end, before any id is made."""
    ports = {name: _free_port() for name in "ab"}
    (directory / "panstream.toml").write_text(_CONFIG.format(stream=control, **ports))
    token = create_token(directory / "tokens", "drill", ["ingest", "admin"])
    authority = Authority(directory)
    identity = [authority.issue(name) for name in ("a", "b", "front", "localhost")][-1]
    commands: dict[str, Sequence[str]] = {who: _share(who, control, ports) for who in "ba"}
    commands["front end"] = [
        *("serve", "panstream.toml", "--port", "0", "--tokens", "tokens"),
        *("--certificate", identity.certificate.name, "--private-key", identity.key.name),
    ]
    parties, port = {}, 0
    for who, command in commands.items():
        extra = [] if hardened else ["--no-hardening"]
        parties[who] = stack.enter_context(_process(directory, who, [*command, *extra], told))
        port = find_port(
            parties[who].process, directory / f"{who}.out", "serving " if who == "front end" else "machine "
        )
    context = ssl.create_default_context(cafile=str(identity.authority))
    peer = Peer("localhost", port, control, token, context, 1 << 24, [])
    stack.callback(peer.close)
    for party in parties.values():
        stack.callback(os.close, party.hold)  # lets a step that is held go on
    return {who: parties[who] for who in PARTIES}, peer


def _share(who: str, stream: str, ports: dict[str, int]) -> list[str]:
    other = "a" if who == "b" else "b"
    return [
        *("share", who, "--stream", stream, "--as", who, "--front", "front", "--peer-name", other),
        *("--listen", f"127.0.0.1:{ports[who]}", "--blind", f"{int(1000 * _BLIND)} ms"),
        *("--certificate", f"{who}.pem", "--key", f"{who}.key", "--authority", "authority.pem"),
        *(["--peer", f"https://127.0.0.1:{ports['b']}"] if who == "a" else []),
    ]


@contextlib.contextmanager
def _process(directory: Path, who: str, command: Sequence[str], told: _Told) -> Iterator[_Party]:
    tells, out = os.pipe()
    hears, hold = os.pipe()
    secrets = directory / f"{who}.secrets"
    more = {VARIABLE: "0", TAP: f"{out},{hears},{secrets}"}  # a scan is blind to secret memory
    listener = threading.Thread(target=told.listen, args=(who, tells), daemon=True)
    with started(directory, f"{who}.out", command, more, [out, hears]) as process:
        os.close(out)
        os.close(hears)
        listener.start()
        yield _Party(process, hold, directory / who.partition(" ")[0], secrets)
    listener.join()


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
