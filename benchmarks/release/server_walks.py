"""Two more walks of somebody new, in an empty home: the owner of a site, and an engineer with a queue.

``python -m benchmarks.release.server_walks [SOURCE] [--walk site|engineer] [--transcript FILE]``: SOURCE is what to
clone, this repository by default. Each command is timed and written down, as in `first_steps`; at the end stands how
long it took until the first private answer, with and without the installation. It ends with 1 if a command fails or
prints a traceback. Needs the package index; the site's walk needs Chromium, the engineer's Redis and systemd-analyze.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.release.first_steps import ROOT, Walk
from tests.chromium import PROGRAM
from tests.ports import free_port

PATIENCE = 60.0
ORDERS = """\
[stream]
name = "orders"
user = "customer"

[stream.columns]
customer = "string"
shop = "string"

[[query]]
name = "customers"
sql = "SELECT COUNT(DISTINCT customer) FROM orders"
epsilon = 1.0
expected = 1000

[store]
directory = "state"
"""


class ServerWalk(Walk):
    """A walk that knows when it was installed, and when its first private answer came."""

    installed = 0.0
    answered = 0.0

    def install(self, source: str) -> None:
        """Clone and install, as the README says."""
        self.do(f"git clone --quiet {source} panstream")
        self.here = self.home / "panstream"
        self.do("make run")
        self.environment["PATH"] = f"{self.here / '.venv' / 'bin'}:{self.environment['PATH']}"
        self.installed = time.monotonic() - self.began

    def expect(self, text: str, wanted: str, what: str) -> None:
        """Note a failure if a text does not hold what it should."""
        if wanted not in text:
            self.failures.append(f"{what}: no {wanted!r}")

    def first_answer(self) -> None:
        """Note the time of the first private answer."""
        self.answered = time.monotonic() - self.began

    @contextmanager
    def serving(self, words: str) -> Iterator[str]:
        """Serve for a while; yield the address."""
        process, address = self.serve(words)
        try:
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        if process.returncode != 128 + signal.SIGTERM:
            self.failures.append(f"the end of: panstream serve {words}")


def walk_site(steps: ServerWalk) -> None:
    """docs/tutorial/my-site.md: replay a log, then a page of one's own with the tag, a check, a visit, a report."""
    log = "examples/data/nasa_19950801.log.gz"
    steps.do(f"panstream web --site nasa.example --visitors-per-day 2000 --logs {log} --out nasa.toml")
    steps.expect(
        steps.do(f"panstream run nasa.toml {log} --out answers.csv && cat answers.csv"), "visitors per day", "run"
    )
    steps.first_answer()
    steps.expect(steps.do("panstream report nasa.toml --period day"), "| page views |", "report")
    with steps.serving("nasa.toml") as address:
        steps.expect(steps.do(f"curl --silent {address}/privacy"), "What your browser sends", "/privacy")
        shot(steps, f"{address}/", "site.png")
    pages = steps.home / "pages"
    pages.mkdir()
    with page_server(pages) as origin:
        steps.do(f"panstream web --site 127.0.0.1 --origin {origin} --out own.toml")
        with steps.serving("own.toml") as address:
            tag = f'<script defer src="{address}/panstream.js"></script>'
            (pages / "index.html").write_text(f"<!doctype html><title>mine</title>{tag}<p>Hello")
            steps.expect(steps.do(f"panstream web --check {origin}/"), "test beacon: taken, and not counted", "check")
            shot(steps, f"{origin}/", "visit.png")
            described = json.loads(ask(f"{address}/v1/queries"))
            if not all(query["next_answer"] for query in described["queries"]):
                steps.failures.append("a card does not say when its first answer comes")


def walk_engineer(steps: ServerWalk) -> None:
    """A stream in Redis, read by the server itself, with its metrics; then the unit file."""
    (steps.here / "orders.toml").write_text(ORDERS)
    steps.do("panstream check orders.toml && panstream explain orders.toml")
    port = free_port()
    redis = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
        cwd=steps.home,
    )
    try:
        steps.do(f"for i in $(seq 50); do redis-cli -p {port} ping 2>/dev/null && break; sleep .1; done")
        steps.do(
            f"for i in $(seq 2000); do echo XADD orders '*' customer c$((i % 700)) shop north; done"
            f" | redis-cli -p {port} > /dev/null"
        )
        with steps.serving(f"orders.toml --follow redis://127.0.0.1:{port}/0#orders") as address:
            until = time.monotonic() + PATIENCE
            while "panstream_source_up" not in ask(f"{address}/metrics") and time.monotonic() < until:
                pass
            steps.expect(steps.do(f"curl --silent {address}/metrics | grep source_up"), " 1.0", "/metrics")
            steps.expect(steps.do(f"curl --silent {address}/healthz"), '"ok"', "/healthz")
            while (
                int(subprocess.check_output(["redis-cli", "-p", str(port), "XLEN", "orders"]))
                and time.monotonic() < until
            ):
                threading.Event().wait(0.2)  # read, stored, and deleted there
            released = steps.do(f"curl --silent --fail -X POST {address}/v1/queries/customers/release")
            steps.first_answer()
            (answer,) = json.loads(released)["releases"]
            low, high = answer["interval"]
            if not low <= 700 <= high:
                steps.say(f"the interval {low:.0f} to {high:.0f} does not hold 700, as one of 20 does not")
    finally:
        redis.terminate()
        redis.wait(PATIENCE)
    unit = steps.home / "panstream.service"
    program = steps.home / "panstream" / ".venv" / "bin" / "panstream"
    shipped = (steps.home / "panstream" / "packaging" / "panstream.service").read_text()
    unit.write_text(shipped.replace("/opt/panstream/bin/panstream", str(program)))
    steps.do(f"systemd-analyze verify --man=no {unit}")


def ask(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def shot(steps: ServerWalk, url: str, name: str) -> None:
    """Visit an address with a browser, and keep a picture."""
    options = (
        "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,900 --virtual-time-budget=8000"
    )
    steps.do(f"{PROGRAM} {options} --screenshot={name} {url} 2>/dev/null")


@contextmanager
def page_server(folder: Path) -> Iterator[str]:
    """Serve the pages of a site; yield their origin."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


WALKS: dict[str, Callable[[ServerWalk], None]] = {"site": walk_site, "engineer": walk_engineer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=str(ROOT), help="what to clone")
    parser.add_argument("--walk", choices=sorted(WALKS), action="append", help="which; all by default")
    parser.add_argument("--transcript", type=Path, help="folder for transcripts and pictures")
    given = parser.parse_args()
    failures = list[str]()
    with tempfile.TemporaryDirectory(prefix="walks-") as home:
        steps = ServerWalk(Path(home))
        steps.install(given.source)
        clone = steps.here
        for name in given.walk or sorted(WALKS):
            steps.here = clone
            steps.lines = []
            steps.failures = []
            steps.began = time.monotonic()
            WALKS[name](steps)
            steps.say(
                f"\n{name}: first private answer {steps.answered:.0f} s after the installation, which took "
                f"{steps.installed:.0f} s; failed: {'; '.join(steps.failures) or 'nothing'}"
            )
            failures += steps.failures
            if given.transcript is not None:
                given.transcript.mkdir(parents=True, exist_ok=True)
                (given.transcript / f"{name}.txt").write_text("\n".join(steps.lines) + "\n")
                for picture in clone.glob("*.png"):
                    shutil.copy(picture, given.transcript)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
