"""`panstream web --two-machines`: two machines, a front end that serves, beacons, and answers."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from panstream.cli.commands.web import web
from tests.distributed.two_party.processes import Processes
from tests.waiting import PATIENCE, until

VISITORS = 40
EPSILON = 20.0  # so that one answer in 2e8 is off by one
COLLIDE = 2  # ids that may share a cell of half a million: more do once in 1e9 runs


def ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
        return json.load(answer)


def beacon(address: str, visitor: int, event: str) -> int:
    body = json.dumps({"url": "/blog/a", "referrer": "", "event": event}).encode()
    headers = {"Origin": "https://example.org", "X-Forwarded-For": f"10.0.0.{visitor}", "User-Agent": "Firefox"}
    request = urllib.request.Request(address + "/v1/beacon", body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return int(answer.status)


def total(address: str, query: str) -> float:
    found = ask(address, "/v1/releases?limit=10000")["releases"]
    return float(sum(each["value"] for each in found if each["query"] == query))


@pytest.mark.slow
def test_a_site_is_counted_on_two_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every visitor has one page view, so that both add up to the same over all windows."""
    monkeypatch.chdir(tmp_path)
    trio = Processes(tmp_path, stream="web")
    declared: dict[str, Any] = {
        "site": "example.org",
        "page_view": 10 * EPSILON,
        "trusted_proxy": ["127.0.0.1"],
        "two_machines": Path("panstream.toml"),
    }
    file = tmp_path / "example.org.toml"
    web(**declared, out=file)
    text = re.sub(r'window = "(1 hour|day)"', 'window = "2 seconds"', file.read_text())
    text = re.sub(r'(name = "visitors per day"\n(?:.+\n)*?)epsilon = .*', rf"\1epsilon = {EPSILON}", text)
    file.write_text(re.sub(r"\[stream.budget\]\n(.+\n)+", "", text))  # of windows of a day
    try:
        trio.machine("b")
        trio.machine("a")
        front = trio.start("front", _serve, tmp_path, declared)
        lines: list[str] = []
        while not (found := re.search(r"http://\S+", lines[-1] if lines else "")):
            lines.append(front.stdout.readline())
            assert lines[-1], lines
        address = found[0]
        for visitor in range(VISITORS):
            assert beacon(address, visitor, "view") == 204
            assert beacon(address, visitor, "signup") == 204
        until(lambda: total(address, "page views per hour") >= VISITORS, every=0.1)
        assert total(address, "page views per hour") == VISITORS
        assert total(address, "visitors per day") == pytest.approx(VISITORS, abs=COLLIDE)
        with urllib.request.urlopen(address + "/privacy", timeout=PATIENCE) as answer:
            assert "copies one of the two machines at a time" in answer.read().decode()
        (claim,) = {json.dumps(each["claim"]["intrusions"]) for each in ask(address, "/v1/queries")["queries"]}
        assert json.loads(claim)["machines"] == 2
    finally:
        trio.close()


def _serve(directory: Path, declared: dict[str, Any]) -> None:
    os.chdir(directory)
    web(**declared, listen="127.0.0.1:0", no_hardening=True)
