"""The first five minutes of somebody new: in an empty home, clone, ``make run``, and the four ways from there.

``python -m benchmarks.release.first_steps [SOURCE] [--transcript FILE]``: SOURCE is what to clone, this repository by
default. Every command is timed and written down as it was typed and answered. It ends with 1 if a command fails or
prints a traceback, if all of it takes longer than five minutes, or if the environment is larger than it may be. Needs
the package index and Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Seconds, megabytes
TIME_LIMIT = 300.0
SIZE_LIMIT = 700.0
SHOWN = 14  # lines of an answer that are written down
PAGES = ("/", "/news", "/help", "/cart")
DOMAIN = """\
page = ["/", "/news", "/help", "/cart"]
status = [200, 404]
bytes = { type = "integer", minimum = 0, maximum = 5000 }
"""


class Walk:
    """Commands in a home of their own, their transcript, and what went wrong."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.here = home
        kept = ("PATH", "LANG", "TERM", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
        self.environment = {key: value for key, value in os.environ.items() if key in kept or key.startswith("PIP_")}
        self.environment |= {"HOME": str(home), "NO_COLOR": "1"}
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        self.lines.append(text)
        print(text, flush=True)

    def do(self, command: str) -> str:
        """Run a command as a shell would, and return what it printed."""
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.here, env=self.environment, capture_output=True, text=True, check=False
        )
        self.note(command, done.stdout + done.stderr, done.returncode, time.monotonic() - began)
        return done.stdout

    def note(self, command: str, printed: str, code: int, seconds: float) -> None:
        """Write a command down, and whether it failed."""
        self.say(f"\n$ {command}    # {seconds:.1f} s" + (f", exit code {code}" if code else ""))
        answer = printed.rstrip().splitlines()
        cut = [f"... {len(answer) - SHOWN} more lines"] if len(answer) > SHOWN else []
        for line in answer[:SHOWN] + cut:
            self.say(f"  {line}")
        if code or "Traceback" in printed:
            self.failures.append(command)

    def serve(self, config: str) -> tuple[subprocess.Popen[str], str]:
        """Start a server and return it with its address."""
        began = time.monotonic()
        command = f"panstream serve {config} --port 0"
        process = subprocess.Popen(
            command.split(), cwd=self.here, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if found := re.search(r"https?://\S+", line):
                self.note(f"{command} &", printed, 0, time.monotonic() - began)
                return process, found.group()
        self.note(command, printed, process.wait(), time.monotonic() - began)
        sys.exit("the server did not start")


def visits(path: Path) -> None:
    """Write a file of one's own: 30,000 requests of 6,000 hosts."""
    with path.open("w") as file:
        file.write("time,host,page,status,bytes\n")
        for at in range(30_000):
            host = (at * 7919) % 6_000
            page = PAGES[(at * at) % 7 % 4]
            file.write(f"2026-03-{1 + at // 10_000:02d}T{at // 420 % 24:02d}:00:00Z,h{host},{page},")
            file.write(f"{404 if at % 17 == 0 else 200},{at * 31 % 5_000}\n")


def megabytes(folder: Path) -> float:
    found = (path.lstat() for path in folder.rglob("*"))
    return sum(each.st_blocks * 512 for each in found) / 2**20


def walk(source: str, home: Path) -> Walk:
    steps = Walk(home)
    steps.do(f"git clone --quiet {source} panstream")
    steps.here = home / "panstream"
    steps.do("make run")
    clone = steps.here
    steps.environment["PATH"] = f"{clone / '.venv' / 'bin'}:{steps.environment['PATH']}"
    steps.here = home / "own"
    steps.here.mkdir()
    visits(steps.here / "access.csv")
    steps.do("""panstream query "SELECT COUNT(DISTINCT host) FROM 'access.csv'" --user host --epsilon 1""")
    steps.do("panstream init access.csv --user host")
    steps.do("panstream explain panstream.toml")
    steps.do("panstream run panstream.toml access.csv --plot visits.png")
    shutil.rmtree(steps.here / "state")
    server, address = steps.serve("panstream.toml")
    try:
        steps.do(f"panstream send {address} access access.csv")
        steps.do(f"curl --silent --show-error -X POST {address}/v1/queries/users/release")
        browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "chromium")
        shot = "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,900"
        steps.do(f"{browser} {shot} --virtual-time-budget=8000 --screenshot=dashboard.png {address}/ 2>/dev/null")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    if server.returncode != 128 + signal.SIGTERM or not (steps.here / "dashboard.png").stat().st_size > 20_000:
        steps.failures.append("the server's end, or an empty picture of its page")
    steps.do("panstream synth init access.csv")
    (steps.here / "domain.toml").write_text(DOMAIN)
    steps.say("\n(domain.toml filled in: pages, status codes, bytes from 0 to 5000)")
    steps.do("panstream synth fit access.csv --domain domain.toml --epsilon 1 --out model.json")
    steps.do("panstream synth sample model.json --out synthetic.csv && head -3 synthetic.csv")
    steps.do("panstream synth evaluate model.json synthetic.csv --html report.html")
    steps.do("panstream statement panstream.toml --html statement.html && head -c 60 statement.html")
    return steps


def absent(steps: Walk) -> None:
    """What make run does not bring says with which command it comes; nothing ends in a traceback."""
    for command in ("panstream audit", "panstream audit system", "panstream run panstream.toml access.csv --workers 2"):
        done = subprocess.run(
            command.split(), cwd=steps.here, env=steps.environment, capture_output=True, text=True, check=False
        )
        steps.say(f"\n$ {command}    # exit code {done.returncode}\n  {(done.stdout + done.stderr).strip()[-300:]}")
        if done.returncode != 2 or "-m pip install '" not in done.stderr or "Traceback" in done.stderr:
            steps.failures.append(command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=str(ROOT), help="what to clone")
    parser.add_argument("--transcript", type=Path, help="file for the transcript, and pictures beside it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-steps-") as home:
        steps = walk(given.source, Path(home))
        used = os.times()
        processor = used.children_user + used.children_system
        seconds = time.monotonic() - steps.began
        size = megabytes(Path(home) / "panstream" / ".venv")
        absent(steps)
        steps.say(
            f"\n{seconds:.0f} s in all (at most {TIME_LIMIT:.0f}), {processor:.0f} s of them on the processor; "
            f"environment {size:.0f} MB (at most {SIZE_LIMIT:.0f})"
        )
        if seconds > TIME_LIMIT:
            steps.failures.append("five minutes")
        if size > SIZE_LIMIT:
            steps.failures.append("the environment's size")
        steps.say("failed: " + "; ".join(steps.failures) if steps.failures else "no command failed, no traceback")
        if given.transcript is not None:
            given.transcript.parent.mkdir(parents=True, exist_ok=True)
            given.transcript.write_text("\n".join(steps.lines) + "\n")
            for picture in ("dashboard.png", "visits.png"):
                shutil.copy(Path(home) / "own" / picture, given.transcript.with_name(picture))
    sys.exit(bool(steps.failures))


if __name__ == "__main__":
    main()
