"""What `panstream web --check` says of pages, with a real server and with faults of every kind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.server.website.page_check import PageFinding, check_html, check_page
from tests.server.server_live import Live, served, write_config
from tests.server.website.test_beacons import beacon, counted

TAG = '<script defer src="{}/panstream.js"></script>'
CONFIG = """
[web]
site = "127.0.0.1"
origins = ["{origin}"]
[stream]
name = "web"
[stream.columns]
event = "string"
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM web"
epsilon = 200.0
releases = 40
[store]
directory = "state"
step = "5 ms"
"""


@dataclass
class Pages:
    """A web server of the test, with one page under every path."""

    origin: str
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in {"Content-Type": "text/html", **shown.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(shown.text.encode())

        def log_message(self, *said: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        shown = Pages(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield shown
        server.shutdown()


@pytest.fixture(scope="module")
def live(pages: Pages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with served(write_config(tmp_path_factory.mktemp("checked"), CONFIG.format(origin=pages.origin))) as running:
        yield running


@pytest.fixture
def tag(live: Live, pages: Pages) -> str:
    pages.headers = {}
    pages.text = TAG.format(f"http://127.0.0.1:{live.port}")
    return pages.text


def faults(findings: list[PageFinding]) -> list[str]:
    return [finding.text for finding in findings if finding.state == "fault"]


def test_a_page_as_it_should_be(live: Live, pages: Pages, tag: str) -> None:
    before = counted(live)
    done = CliRunner().invoke(app, ["web", "--check", f"{pages.origin}/a"])
    assert done.exit_code == 0, done.output
    assert "test beacon: accepted, and not counted" in done.output
    assert counted(live) == before
    assert beacon(live, {"event": "view"}, Origin=pages.origin).status == 204
    assert counted(live) == before + 1, "without the headers it counts"


def test_a_file_is_checked_before_it_is_served(live: Live, pages: Pages, tag: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f"<!doctype html><head>{tag}</head>")
    done = CliRunner().invoke(app, ["web", "--check", str(tmp_path / "index.html"), "--site", "example.org"])
    assert done.exit_code == 1
    assert "origin https://example.org is not declared" in done.output
    without = CliRunner().invoke(app, ["web", "--check", str(tmp_path / "index.html")])
    assert without.exit_code == 2
    assert "--site" in without.output
    neither = CliRunner().invoke(app, ["web", "--check", "example.org"])
    assert neither.exit_code == 2


@pytest.mark.parametrize(
    ("text", "headers", "wanted"),
    [
        ("<p>nothing</p>", {}, "no tag"),
        ("{tag}{tag}", {}, "2 times"),
        ('<script type="module" src="{server}/panstream.js"></script>', {}, "module"),
        ("{tag}", {"Content-Security-Policy": "default-src 'self'"}, "script-src must allow"),
        ("{tag}", {"Content-Security-Policy": "script-src 'self'; connect-src *"}, "script-src must allow"),
        ('<meta http-equiv="Content-Security-Policy" content="connect-src https:">{tag}', {}, "connect-src must allow"),
        ("{tag}", {"Referrer-Policy": "no-referrer"}, "Referrer-Policy"),
        ('<meta name="referrer" content="no-referrer">{tag}', {}, "Referrer-Policy"),
        ('<script defer src="{server}/elsewhere/panstream.js"></script>', {}, "status 404"),
        ('<script defer src="{page}/panstream.js"></script>', {}, "not panstream's"),
        ('<script defer src="http://127.0.0.1:1/panstream.js"></script>', {}, "cannot be reached"),
    ],
)
def test_faults_are_named(live: Live, pages: Pages, tag: str, text: str, headers: dict[str, str], wanted: str) -> None:
    pages.text = text.format(tag=tag, server=f"http://127.0.0.1:{live.port}", page=pages.origin)
    pages.headers = headers
    (found, *_) = faults(check_page(pages.origin))
    assert wanted in found


@pytest.mark.parametrize(
    "policy", ["default-src {server}", "script-src 'nonce-x'; connect-src {server}/v1/", "img-src 'none'"]
)
def test_policies_that_let_it_through(live: Live, pages: Pages, tag: str, policy: str) -> None:
    pages.headers = {"Content-Security-Policy": policy.format(server=f"http://127.0.0.1:{live.port}")}
    assert faults(check_page(pages.origin)) == []


def test_a_page_that_cannot_be_had() -> None:
    assert "cannot be fetched" in faults(check_page("http://127.0.0.1:1/"))[0]
    assert "https and the script http" in faults(check_html(TAG.format("http://a.invalid"), "https://example.org/"))[0]
