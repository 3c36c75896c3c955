"""The proxies' files as shipped: real ones pass on what they should, for two sites with tokens of their own."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from panstream.primitives.certificates import Authority
from panstream.server.auth import create_token
from tests.browser.serving import Serving, serving
from tests.conftest import SEARCH_PATH
from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow
PACKAGING = Path(__file__).parents[2] / "packaging"
WEB = PACKAGING.parent / "docs" / "howto" / "web-analytics.md"
SITES = ("stats.example.org", "stats.example.net")
NGINX = shutil.which("nginx", path=SEARCH_PATH) or "nginx"
# Caddy is not among the packages that make test installs: it is tested where it is there.
PROXIES = ("nginx", "caddy") if shutil.which("caddy", path=SEARCH_PATH) else ("nginx",)
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
CONFIG = """
[web]
site = "{site}"
origins = ["https://{site}"]
trusted_proxies = ["127.0.0.1"]
[stream]
name = "web"
user = "visitor"
[stream.columns]
visitor = "int"
event = "string"
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT visitor) FROM web"
epsilon = 1000.0
expected = 100
releases = 40
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM web"
epsilon = 200.0
releases = 40
[store]
directory = "state"
"""


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class Proxy:
    """A proxy in front of two sites' servers, and how to reach it."""

    port: int
    plain_port: int
    trusted: ssl.SSLContext
    servers: dict[str, Serving]
    tokens: dict[str, str]
    errors: Path

    def connect(self, site: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        connection.sock = self.trusted.wrap_socket(plain, server_hostname=site)
        return connection

    def ask(self, site: str, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = self.connect(site)
        sent = {"Host": site, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        connection.close()
        return answer

    def beacon(self, site: str, agent: str = AGENT, **headers: str) -> Answer:
        body = b'{"url": "/", "event": "view"}'
        given = {"Origin": f"https://{site}", "Content_Type": "text/plain", "User_Agent": agent, **headers}
        return self.ask(site, "POST", "/v1/beacon", body, **given)

    def counted(self, site: str, query: str) -> int:
        headers = {"Authorization": f"Bearer {self.tokens[f'{site} admin']}"}
        return round(
            json.loads(self.ask(site, "POST", f"/v1/queries/{query}/release", **headers).body)["releases"][0]["value"]
        )


def nginx_file(ports: dict[str, int], port: int, plain_port: int, folder: Path, identity: Any) -> list[str]:
    """Write the shipped file for both sites, with other addresses; return the command."""
    shipped = (PACKAGING / "nginx.conf").read_text()
    blocks = []
    for site in SITES:
        block = shipped.replace("stats.example.org", site).replace("127.0.0.1:8080", f"127.0.0.1:{ports[site]}")
        block = re.sub(r"listen \[::\].*\n", "", block)  # not every machine has IPv6
        block = block.replace("listen 80;", f"listen 127.0.0.1:{plain_port};")
        block = block.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        block = re.sub(r"(?<=ssl_certificate )[^;]+", str(identity.certificate), block)
        blocks.append(re.sub(r"(?<=ssl_certificate_key )[^;]+", str(identity.key), block))
    paths = [f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; worker_processes 1; pid {folder}/pid; events {{}}\n"
        f"http {{ access_log {folder}/access.log; {' '.join(paths)}\n{''.join(blocks)} }}\n"
    )
    return [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")]


def caddy_file(ports: dict[str, int], port: int, plain_port: int, folder: Path, identity: Any) -> list[str]:
    shipped = (PACKAGING / "Caddyfile").read_text()
    options, _, block = shipped.partition("stats.example.org {")
    options = options.replace("{\n", f"{{\n\tadmin off\n\thttps_port {port}\n\thttp_port {plain_port}\n", 1)
    blocks = [
        f"{site} {{\n\ttls {identity.certificate} {identity.key}{block}".replace(
            "127.0.0.1:8080", f"127.0.0.1:{ports[site]}"
        )
        for site in SITES
    ]
    (folder / "Caddyfile").write_text(options + "\n".join(blocks))
    return ["caddy", "run", "--config", str(folder / "Caddyfile")]


@contextmanager
def site_servers(folder: Path) -> Iterator[tuple[dict[str, Serving], dict[str, str]]]:
    servers = {}
    tokens = {}
    with ExitStack() as stack:
        for site in SITES:
            (folder / site).mkdir()
            for scope in ("read", "admin"):
                tokens[f"{site} {scope}"] = create_token(folder / site / "tokens", scope, [scope])
            options = ("--tokens", str(folder / site / "tokens"), "--no-hardening", "--address-connections", "512")
            servers[site] = stack.enter_context(serving(folder / site, *options, config=CONFIG.format(site=site)))
        yield servers, tokens


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp(request.param)
    authority = folder / "authority"
    authority.mkdir()
    identity = Authority(authority).issue("proxy", hosts=SITES)
    with site_servers(folder) as (servers, tokens):
        ports = {site: int(server.address.rpartition(":")[2]) for site, server in servers.items()}
        port = free_port()
        plain_port = free_port()
        write = nginx_file if request.param == "nginx" else caddy_file
        command = write(ports, port, plain_port, folder, identity)
        environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        errors = folder / "stderr"
        with errors.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, env=environment) as process:
            try:
                until = time.monotonic() + PATIENCE
                while process.poll() is None and time.monotonic() < until:
                    try:
                        socket.create_connection(("127.0.0.1", port), timeout=1).close()
                        break
                    except OSError:
                        threading.Event().wait(0.02)
                assert process.poll() is None, errors.read_text()
                trusted = ssl.create_default_context(cafile=str(identity.authority))
                yield Proxy(port, plain_port, trusted, servers, tokens, errors)
            finally:
                process.terminate()
                process.wait(PATIENCE)


def test_it_passes_on_what_a_site_s_visitors_need(proxy: Proxy) -> None:
    site = SITES[0]
    script = proxy.ask(site, "GET", "/panstream.js")
    assert script.status == 200
    assert b"v1/beacon" in script.body
    assert proxy.ask(site, "GET", "/privacy").status == 200
    asked = proxy.ask(site, "OPTIONS", "/v1/beacon", Origin=f"https://{site}", Access_Control_Request_Method="POST")
    assert asked.headers["Access-Control-Allow-Origin"] == f"https://{site}"
    assert script.headers["Strict-Transport-Security"]
    plain = http.client.HTTPConnection("127.0.0.1", proxy.plain_port, timeout=PATIENCE)
    plain.request("GET", "/privacy", headers={"Host": site})
    moved = plain.getresponse()
    assert moved.status in (301, 308)
    assert moved.headers["Location"].startswith(f"https://{site}")
    plain.close()


def test_a_visitor_has_the_address_that_the_proxy_saw(proxy: Proxy) -> None:
    """Whatever address a visitor claims, and whichever proxy there is: one address and agent is one visitor."""
    site = SITES[0]
    for number in range(5):
        assert proxy.beacon(site, X_Forwarded_For=f"203.0.113.{number}").status == 204
    assert proxy.beacon(site, AGENT + " other").status == 204
    assert proxy.beacon(site, Origin="https://evil.example").status == 403
    while proxy.counted(site, "rows") < 6:
        pass  # each waits for a commit
    assert proxy.counted(site, "people") == 2
    assert proxy.counted(SITES[1], "rows") == 0, "sites have states of their own"


def test_the_dashboard_and_shared_links_need_a_site_s_own_token(proxy: Proxy) -> None:
    first, second = SITES
    assert b"dashboard/app.js" in proxy.ask(first, "GET", "/").body
    assert proxy.ask(first, "GET", "/dashboard/app.js").status == 200
    assert proxy.ask(first, "GET", "/v1/queries").status == 401
    headers = {"Authorization": f"Bearer {proxy.tokens[f'{first} read']}"}
    named = json.loads(proxy.ask(first, "GET", "/v1/queries", **headers).body)
    assert named["web"]["site"] == first
    assert proxy.ask(second, "GET", "/v1/queries", **headers).status == 401
    assert proxy.ask(first, "POST", "/v1/queries/rows/release", **headers).status == 403
    assert b"panstream_failed 0" in proxy.ask(first, "GET", "/metrics", **headers).body


def test_new_answers_reach_an_open_page_at_once(proxy: Proxy) -> None:
    site = SITES[0]
    connection = proxy.connect(site)
    token = proxy.tokens[f"{site} read"]
    headers = {"Host": site, "Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
    connection.request("GET", "/v1/releases?limit=1", headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    proxy.counted(site, "rows")
    seen = b""
    while b'"query":"rows"' not in seen.replace(b" ", b""):
        piece = response.read1(65536)
        assert piece, seen
        seen += piece
    connection.close()


def test_no_log_has_an_address(proxy: Proxy) -> None:
    """Not even when panstream is gone, which is an error of the proxy's."""
    second = SITES[1]
    proxy.servers[second].kill()
    assert proxy.beacon(second).status == 502
    logs = [path for path in proxy.errors.parent.glob("*") if path.is_file() and path.suffix not in (".conf", ".toml")]
    written = {path.name: path.read_text("utf-8", "replace") for path in logs if path.name != "Caddyfile"}
    for name, text in written.items():
        assert not re.search(r"remote_ip|client: |203\.0\.113|/v1/beacon", text), (name, text)
    assert not written.get("access.log")


def test_the_guide_shows_the_files_that_are_tested() -> None:
    text = WEB.read_text()
    for name in ("nginx.conf", "Caddyfile"):
        comment, _, rest = (PACKAGING / name).read_text().partition("\n")
        assert comment.startswith("# ")
        assert rest[rest.index("{") - len("server ") if name == "nginx.conf" else 0 :].strip() in text, name
