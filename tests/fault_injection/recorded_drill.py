"""The memory drill on two machines whose processes record their own secrets (``secret_recorder``).

Besides what ``panstream audit memory machines`` looks for: keys, what they expand to, messages, noise, X25519 secrets,
TLS secrets of all connections, shares of earlier epochs. While a step is held half-way the search must find such things
in every process, and in the end each machine's share of the present epoch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.audit.memory._traffic import DrillClient, body
from panstream.audit.memory.drill import HASHES, DrillReport, hashes_of
from panstream.audit.memory.two_party import (
    SETTLE,
    TLS_LOG,
    TLS_SECRETS,
    Instrument,
    PartyProcess,
    ask,
    scan_options,
    send_traffic,
    start_parties,
    summarize,
    tls_secrets,
)
from panstream.testing.memory import Needle, ScanReport, make_needles, scan
from tests.fault_injection import secret_recorder
from tests.fault_injection.secret_recorder import HEADER, HELD
from tests.waiting import PATIENCE


@dataclass(slots=True)
class _SecretLog:
    """What the processes record, from their pipes."""

    directory: Path
    pieces: dict[bytes, tuple[str, str, int]] = field(default_factory=dict)  # kind, process, step
    held: threading.Event = field(default_factory=threading.Event)
    _holds: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def instrument(self, who: str) -> Iterator[Instrument]:
        """Read what one process records, until the block ends."""
        records, records_end = os.pipe()
        requests_end, self._holds[who] = os.pipe()
        listener = threading.Thread(target=self._read, args=(who, records), daemon=True)
        listener.start()
        argument = f"{records_end},{requests_end},{self._tls_log(who)}"
        try:
            yield Instrument(
                arguments=["--instrument", f"{secret_recorder.__name__}:{argument}"],
                environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                descriptors=[records_end, requests_end],
            )
        finally:
            os.close(records_end)
            os.close(requests_end)
            listener.join()

    def toggle_hold(self, who: str) -> None:
        """Hold the next exchange of a process, or let a held one go on."""
        os.write(self._holds[who], b"x")

    def close(self) -> None:
        """Let a step that is held go on."""
        for descriptor in self._holds.values():
            os.close(descriptor)

    def add_tls_secrets(self) -> None:
        logs = {"client": self.directory / TLS_LOG} | {who: self._tls_log(who) for who in self._holds}
        for who, log in logs.items():
            for secret in tls_secrets(log):
                self.pieces.setdefault(secret, (TLS_SECRETS, who, 0))

    def _tls_log(self, who: str) -> Path:
        return self.directory / f"{who}.tls"

    def _read(self, who: str, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as pipe:
            while len(head := pipe.read(HEADER.size)) == HEADER.size:
                name, step, size = HEADER.unpack(head)
                kind = name.rstrip(b"\0").decode()
                piece = pipe.read(size)
                if kind == HELD:
                    self.held.set()
                elif _is_unguessable(kind, piece):
                    self.pieces.setdefault(piece, (kind, who, step))


def drill_recorded_machines(*, ids: int = 2_000, hardened: bool = True) -> DrillReport:
    """Run the drill with so many ids in all."""
    control = "s" + make_needles(1, "string")[0]
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder, contextlib.ExitStack() as stack:
        log = _SecretLog(Path(folder))
        parties, peer = start_parties(stack, log.directory, control, hardened=hardened, instrument_for=log.instrument)
        stack.callback(log.close)
        options = scan_options(control)
        needles = send_traffic(peer, ids)
        during = _scan_held_step(parties, peer, log, options)
        ask(peer, "people", "visits")
        peer.close()
        log.toggle_hold("a")  # no more idle blindings
        time.sleep(SETTLE)
        log.add_tls_secrets()
        newest = {who: max(step for _, by, step in log.pieces.values() if by == who) for who in "ab"}
        present = [piece for piece, (kind, who, step) in log.pieces.items() if kind == "share" and step == newest[who]]
        secrets = sorted(log.pieces.keys() - set(present))
        searched: list[Needle] = [*needles, *hashes_of(needles), *secrets, *present]
        after = {who: party.scan(searched, options) for who, party in parties.items()}
    kinds = ["ids"] * len(needles) + [HASHES] * len(needles) + [log.pieces[secret][0] for secret in secrets]
    found_counts: Counter[tuple[str, str]] = Counter()
    present_found: Counter[str] = Counter()
    for who, report in after.items():
        hits = {finding.needle for finding in report.found}
        found_counts.update((kinds[hit], who) for hit in hits if hit < len(kinds))
        shares = sum(hit >= len(kinds) for hit in hits)
        if who in newest:
            present_found[who] = shares  # where nobody came, both machines' shares are alike
        else:
            found_counts["share", who] += shares
    controls = [(f"control: in a step, {who}", len(kinds), report.found_needles) for who, report in during.items()]
    controls += [(f"control: the present share, {who}", len(present), present_found[who]) for who in newest]
    handled = Counter(kinds)
    handled["share"] += 0  # a row of its own even if none was recorded
    return summarize(handled, found_counts, controls, [*during.values()], after)


def _scan_held_step(
    parties: dict[str, PartyProcess], peer: DrillClient, log: _SecretLog, options: dict[str, Any]
) -> dict[str, ScanReport]:
    """Hold a step while machine a has everything in hand, and search all three for what was recorded."""
    log.toggle_hold("a")
    sender = threading.Thread(target=peer.post, args=(body("csv", make_needles(100)), "text/csv"))
    sender.start()
    assert log.held.wait(PATIENCE), "no step came to the exchange of the machines"
    held_options = {**options, "decoys": make_needles(1_000, "bytes")}
    reports = {who: scan(party.process.pid, [*log.pieces], **held_options) for who, party in parties.items()}
    log.toggle_hold("a")
    sender.join()
    return reports


def _is_unguessable(kind: str, piece: bytes) -> bool:
    """Return whether a piece is not found by chance."""
    size = 8 if kind == "noise" else 1
    return len({piece[offset : offset + size] for offset in range(0, len(piece), size)}) > (6 if size == 8 else 8)
