"""The memory audit of beacons: send random addresses, user agents and pages, then search the server for them.

They are sent as browsers send them and in every form that is rejected. The server's memory and files are searched for
them and for the visitors' ids.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panstream.audit.memory._traffic import DrillClient
from panstream.audit.memory.drill import DrillReport, paused, server_under_test
from panstream.engine.presets.website import propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.presets.website_text import to_toml
from panstream.errors import PanstreamError
from panstream.server.website.beacon_buffer import MAX_BEACON, PATH, PIXEL
from panstream.testing.memory import make_needles, scan

_SITE = "drill.example"
_STEP = 5.0  # seconds
_ORIGIN = f"https://{_SITE}"
_PIPELINED = 50  # beacons in one packet
WAITING = "beacons that wait for their step"  # a row of the report
_MORE = """
step = {step}
[[query]]
name = "control"
sql = "SELECT COUNT(*) FROM web WHERE event <> '{control}'"
epsilon = 1.0
"""


@dataclass(frozen=True, slots=True)
class _Visitor:
    """A visitor with a random address, user agent and page."""

    address: ipaddress.IPv6Address
    token: str  # in the user agent
    page: str

    @property
    def agent(self) -> str:
        return f"Mozilla/5.0 (X11; {self.token}) Gecko"

    def request(self, *, origin: str = _ORIGIN, more: str = "", padding: int = 0) -> bytes:
        """Return the beacon of a page view, as a reverse proxy forwards it."""
        body = json.dumps({"url": f"/{self.page}", "event": "view"}).encode() + b" " * padding
        lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Origin: {origin}", f"User-Agent: {self.agent}"]
        lines += [f"X-Forwarded-For: {self.address}", f"Content-Length: {len(body)}", *([more] if more else [])]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def pixel(self) -> bytes:
        """Return the request of the tracking pixel."""
        lines = [f"GET {PIXEL}?u=/{self.page} HTTP/1.1", "Host: x", f"Referer: {_ORIGIN}/{self.page}"]
        lines += [f"User-Agent: {self.agent}", f"X-Forwarded-For: {self.address}", "", ""]
        return "\r\n".join(lines).encode()


def drill_beacons(*, visitors: int = 50_000, hardened: bool = True, waiting: int = 1_000) -> DrillReport:
    """Run the audit with ``visitors`` visitors in all, and ``waiting`` more whose beacons are not yet committed."""
    control = make_needles(1)[0]
    with tempfile.TemporaryDirectory(prefix="panstream-drill-") as folder:
        directory = Path(folder)
        site = WebsiteSpec(site=_SITE, visitors=50_000, trusted_proxies=("127.0.0.1", "::1"))
        proposed = to_toml(propose_queries(site)).replace("allow_unbounded = [", 'allow_unbounded = ["control", ')
        config = proposed + _MORE.format(control=control, step=_STEP)
        with server_under_test(directory, config, "web", hardened=hardened) as (process, peer):
            senders = _senders()
            sent = {}
            all_visitors = []
            share = visitors // len(senders)
            for path, send in senders.items():
                some = _visitors(share if path != _FIRST else visitors - share * (len(senders) - 1))
                send(peer, some)
                sent[path] = len(some)
                all_visitors += some
            files = [directory / f"{_SITE}-state", directory / "out"]
            time.sleep(2.5 * _STEP)
            late = _visitors(waiting)
            _send_pipelined(peer, late)
            options: dict[str, Any] = {"decoys": make_needles(1_000), "control": control.encode(), "files": files}
            with paused(process):  # so that their step does not end before the scan begins
                during = scan(process, [visitor.token for visitor in late], encodings=["raw"], **options)
            peer.close()
            time.sleep(2.5 * _STEP)
            all_visitors += late
            texts = {
                "addresses": [str(visitor.address) for visitor in all_visitors],
                "user agents": [visitor.token for visitor in all_visitors],
                "pages": [visitor.page for visitor in all_visitors],
            }
            after = [scan(process, needles, **options) for needles in texts.values()]
            options["decoys"] = make_needles(1_000, "bytes")
            packed = scan(process, [visitor.address.packed for visitor in all_visitors], encodings=["raw"], **options)
            ids = scan(process, _ids(all_visitors), encodings=["raw"], **options)
    hit_counts = {kind: report.found_needles for kind, report in zip(texts, after, strict=True)}
    hit_counts["addresses"] += packed.found_needles
    hit_counts["ids"] = ids.found_needles
    return DrillReport(
        head=("what", "sent"),
        rows=(
            *((f"{kind} of visitors, afterwards", len(all_visitors), count) for kind, count in hit_counts.items()),
            (WAITING, waiting, during.found_needles),
        ),
        expected_hits=frozenset({WAITING}),
        scans=(during, *after, packed, ids),
        before=(f"visitors by way: {', '.join(f'{path} {count:,}' for path, count in sent.items())}",),
        after=(f"scanned {ids.scanned_bytes / 1e6:,.0f} MB of memory and {ids.files} files",),
    )


def _visitors(count: int) -> list[_Visitor]:
    addresses = (ipaddress.IPv6Address(b"\x20\x01" + suffix) for suffix in make_needles(count, "bytes", 14))
    return [_Visitor(*parts) for parts in zip(addresses, make_needles(count), make_needles(count), strict=True)]


def _ids(visitors: Sequence[_Visitor]) -> list[bytes]:
    """Return the visitors' ids, hashed as the server does."""
    from panstream.primitives.kernels.sources.visitor_ids import hash_pairs

    out = np.empty(len(visitors), np.uint64)
    parts = []
    for texts in ([f"{_SITE} {visitor.address}" for visitor in visitors], [visitor.agent for visitor in visitors]):
        edges = np.cumsum([0, *map(len, texts)])
        parts.append((np.frombuffer("".join(texts).encode(), np.uint8), edges[:-1], edges[1:]))
    hash_pairs(parts[0], parts[1], np.uint64(0), out)
    return [visitor_id.tobytes() for visitor_id in out]


_Send = Callable[[DrillClient, Sequence[_Visitor]], None]
_FIRST = "kept connection"


def _senders() -> dict[str, _Send]:
    def one_by_one(build: Callable[[_Visitor], bytes], *statuses: int) -> _Send:
        def send(peer: DrillClient, visitors: Sequence[_Visitor]) -> None:
            for visitor in visitors:
                _expect(peer, [build(visitor)], *statuses)

        return send

    return {
        _FIRST: _send_pipelined,
        "picture": one_by_one(_Visitor.pixel, 200),
        "in pieces": _in_pieces,
        "other site": one_by_one(lambda visitor: visitor.request(origin="https://evil.example"), 403),
        "asks not to be counted": one_by_one(lambda visitor: visitor.request(more="Sec-GPC: 1"), 204),
        "robot": one_by_one(lambda visitor: visitor.request().replace(b"Mozilla", b"Googlebot"), 204),
        "too large": one_by_one(lambda visitor: visitor.request(padding=MAX_BEACON), 413),
        "unusual head": one_by_one(lambda visitor: visitor.request(more="Connection: close"), 204),
    }


def _send_pipelined(peer: DrillClient, visitors: Sequence[_Visitor]) -> None:
    """Send all beacons on one persistent connection, 50 in one packet."""
    for start in range(0, len(visitors), _PIPELINED):
        _expect(peer, [visitor.request() for visitor in visitors[start : start + _PIPELINED]], 204)


def _in_pieces(peer: DrillClient, visitors: Sequence[_Visitor]) -> None:
    for visitor in visitors:
        data = visitor.request()
        _expect(peer, [data], 204, pieces=[data[:100], data[100:-20], data[-20:]])


def _expect(peer: DrillClient, requests: list[bytes], *statuses: int, pieces: list[bytes] | None = None) -> None:
    """Send requests on the last open connection, or on a new one if that is closed; check the statuses."""
    connection = peer.open_connections[-1] if peer.open_connections else None
    for _ in range(2):
        if connection is None:
            connection = peer.connect()
            connection.connect()
        with contextlib.suppress(OSError):
            for piece in pieces or [b"".join(requests)]:
                connection.sock.sendall(piece)
            received = b""
            while received.count(b"HTTP/1.1 ") < len(requests) and (some := connection.sock.recv(1 << 16)):
                received += some
            if received:
                received_statuses = {
                    int(line[9:12]) for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")
                }
                if not received_statuses <= set(statuses):
                    raise PanstreamError(f"a beacon was answered with status {max(received_statuses)}")
                return
        connection = None
    raise PanstreamError("a beacon was not answered")
