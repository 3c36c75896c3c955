"""Run the product on one input, through ``run``, ``query`` or ``serve``, and return everything that can be observed.

What remains on disk is returned field by field: file sizes, metadata, public fields of states, and the release log.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from panstream.audit.product import _sending_client
from panstream.audit.product._neighbouring_inputs import MEDIA_TYPES
from panstream.audit.product._stored_fields import observe_releases, observe_store
from panstream.audit.product.fork_server_client import ForkServer
from panstream.errors import PanstreamError
from panstream.primitives.durations import parse_duration
from panstream.primitives.toml_config import toml_lines
from panstream.server.auth import create_token

Fields = dict[str, str]

_TIMEOUT = 120.0  # seconds
_IDLE_READS = 4  # reads of a followed file without new data, after which all of it was read
_EXTRA_COMMITS = 3  # after which every beacon has been applied
_PATHS = ("/healthz", "/metrics", "/v1/queries", "/v1/releases", "/v1/ledger", "/v1/intrusions")
_ENDINGS = {"json": "jsonl", "beacon": "jsonl"}
_VISITOR = re.compile(rb'"visitor": ([0-9]{1,5})\b')
_OPTIONS = ("epsilon", "lower", "upper", "universe", "expected", "contributions", "delta", "max_item_bytes", "window")
_BY_CLOCK = (": commits", "meta: step", "field step")
BACK = (3.0, 12.0, 3_600.0, 86_400.0)  # seconds by which the clock is set back, for streams by arrival time
_SHORTEST_WINDOW = 10.0  # seconds
_CLOCK_STEP = "50 ms"  # of a server's clock, for which each post waits; the number of steps is not compared
_UNSTABLE = ("date",)  # response headers with the time


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPath:
    """One way that events enter the product: the command, the format, and the number of worker processes."""

    command: str  # "run", "query", "serve", or "follow" for serve --follow
    format: str  # or which of the clients that number rows sends them, one of _sending_client.SENDERS
    workers: int = 0

    @property
    def has_client(self) -> bool:
        """Return whether a client that numbers rows sends them."""
        return self.format in _sending_client.SENDERS

    @property
    def encoding(self) -> str:
        """Return the format of the rows before they are sent."""
        return "csv" if self.has_client else self.format

    @property
    def file(self) -> str:
        """Return the name of the input file."""
        return f"rows.{_ENDINGS.get(self.encoding, self.encoding)}"

    @property
    def is_live(self) -> bool:
        """Return whether a server takes the events, in steps of the clock."""
        return self.command in ("serve", "follow")

    def __str__(self) -> str:
        return f"{self.command} {self.format}" + (f" --workers {self.workers}" if self.workers else "")


@dataclass(slots=True)
class ProductDriver:
    """The shipped commands with one configuration, run in forks, with a clock that only the audit moves."""

    directory: Path
    config: dict[str, Any]
    stream: str
    now: float
    fork_server: ForkServer
    injected_leaks: tuple[str, ...] = ()
    exact: bool = False  # without noise and masks
    _runs: int = 0

    def warm(self, inputs: dict[str, bytes]) -> None:
        """Load everything that a run needs in the fork server, by one run on each input whose result is ignored."""
        directory = self.directory / "warm"
        directory.mkdir()
        (directory / "audit.toml").write_text(_dump_toml(self.config | {"store": {}}))
        for format, data in inputs.items():
            (directory / f"rows.{_ENDINGS.get(format, format)}").write_bytes(data)
        self._move_clock(0.0)
        self.fork_server.ask({"warm": str(directory)})

    def _move_clock(self, seconds: float) -> None:
        """Set the time of all processes, in seconds after the start of the audit."""
        self.fork_server.set_clock(self.now + seconds)

    def observe(
        self,
        ingest_path: IngestPath,
        bodies: Sequence[bytes],
        *,
        after: bytes | None = None,
        batch_rows: int | None = None,
        pause: float = 0.0,
    ) -> Fields:
        """Send an input through an ingest path, as one file or as several posts, and return all observable fields.

        ``after`` is sent to a server each time its clock was set back. ``batch_rows`` splits files into small steps.
        The clock moves by ``pause`` seconds between posts.
        """
        self._runs += 1
        directory = self.directory / f"{self._runs:04}"
        directory.mkdir()
        store = {**self.config.get("store", {}), "directory": "state", "durability": "batch"}
        if batch_rows is not None:
            store["batch_rows"] = batch_rows
        if ingest_path.is_live and store.get("step") != "none":
            store["step"] = _CLOCK_STEP
        (directory / "audit.toml").write_text(_dump_toml({**self.config, "store": store}))
        if ingest_path.is_live:
            return self._serve(directory, ingest_path, bodies, after, pause)
        return (self._run if ingest_path.command == "run" else self._query)(directory, ingest_path, bodies[0])

    def _run(self, directory: Path, ingest_path: IngestPath, data: bytes) -> Fields:
        (directory / ingest_path.file).write_bytes(data)
        argv = ["run", "audit.toml", ingest_path.file, "--no-hardening", "--out", "answers.csv"]
        pid = self._start(directory, ingest_path, argv)
        code = self.fork_server.ask({"wait": pid})["code"]
        answers = directory / "answers.csv"
        return {
            "exit code": str(code),
            **_observe_text("stdout", _read(directory / "stdout")),
            **_observe_text("stderr", _read(directory / "stderr")),
            **_observe_text("answers file", _read(answers) if answers.exists() else ""),
            **_observe_directory(directory / "state"),
        }

    def _query(self, directory: Path, ingest_path: IngestPath, data: bytes) -> Fields:
        """Run every query of the configuration separately, as an ad-hoc query of the file."""
        file = ingest_path.file
        (directory / file).write_bytes(data)
        stream = self.config["stream"]
        observed = Fields()
        roles = [f"--{role}={stream[role]}" for role in ("user", "time") if role in stream]
        types = [f"--type={column}={kind}" for column, kind in stream["columns"].items()]
        for number, query in enumerate(self.config["query"], 1):
            sql = re.sub(rf"\bFROM {stream['name']}\b", f"FROM '{file}'", query["sql"])
            settings = [f"--{key}={query[key]}" for key in _OPTIONS if key in query]
            settings += [
                f"--groups={column}={','.join(map(str, keys))}" for column, keys in query.get("groups", {}).items()
            ]
            argv = ["query", sql, *roles, *types, *settings, "--json", "--no-hardening"]
            pid = self._start(directory, ingest_path, argv)
            observed[f"query {number}: exit code"] = str(self.fork_server.ask({"wait": pid})["code"])
            for name in ("stdout", "stderr"):
                observed |= _observe_text(f"query {number}: {name}", _read(directory / name))
        return {"exit code": "0", **observed, **_observe_text("ledger", _read(directory / f"{file}.ledger"))}

    def _serve(
        self, directory: Path, ingest_path: IngestPath, bodies: Sequence[bytes], late_body: bytes | None, pause: float
    ) -> Fields:
        tokens = {
            name: create_token(directory / "tokens", name, [scope])
            for name, scope in (("owner", "ingest"), ("other", "ingest"), ("reader", "read"))
        }
        argv = ["serve", "audit.toml", "--port", "0", "--tokens", "tokens", "--no-hardening"]
        file = directory / ingest_path.file
        if ingest_path.command == "follow":
            argv += ["--follow", file.name]
        pid = self._start(directory, ingest_path, argv)
        observed: Fields = {}
        try:
            port = self._port(directory, pid)
            path = f"/v1/streams/{self.stream}/events"
            media = MEDIA_TYPES.get(ingest_path.format, "")
            empty = bodies[0].split(b"\n", 1)[0] + b"\n" if ingest_path.format == "csv" else b""
            other = {"Content-Type": "text/csv" if empty else "application/x-ndjson"}
            observed |= _response("other sender, before", _ask(port, "POST", path, tokens["other"], empty, other))

            def send(body: bytes) -> None:
                if ingest_path.command == "follow":
                    self._append(file, body)
                elif ingest_path.format == "beacon":
                    self._send_beacons(port, body)
                elif ingest_path.has_client:
                    self._send_by_client(directory, ingest_path, port, tokens["owner"], body)
                else:  # the response goes to the owner of the rows, so it may depend on them
                    _ask(port, "POST", path, tokens["owner"], body, {"Content-Type": media})

            elapsed = 0.0
            for number, body in enumerate(bodies):
                if number and pause:
                    elapsed += pause
                    self._move_clock(elapsed)
                    _ask(port, "POST", path, tokens["other"], empty, other)  # a step at the new time
                send(body)
            is_delayed = ingest_path.format == "beacon" or ingest_path.command == "follow"
            for _ in range(_EXTRA_COMMITS if is_delayed else 0):  # each post is answered after a commit
                _ask(port, "POST", path, tokens["other"], empty, other)
            observed |= _response("other sender, after", _ask(port, "POST", path, tokens["other"], empty, other))
            for step in (0, 1):
                self._move_clock(elapsed + step * 86_400.0)
                _ask(port, "POST", path, tokens["other"], empty, other)  # a step at the new time
                for page in (*_PATHS, *self._counts):
                    observed |= _response(f"{page}, look {step + 1}", _ask(port, "GET", page, tokens["reader"]))
            # One second into a window, so that each setback leaves it.
            later = (self.now + elapsed + 86_400.0) // _SHORTEST_WINDOW * _SHORTEST_WINDOW + 1.0 - self.now
            for back in BACK if late_body is not None else ():
                for seconds in (later, later - back):
                    self._move_clock(seconds)
                    _ask(port, "POST", path, tokens["other"], empty, other)
                assert late_body is not None
                send(late_body)
                _ask(port, "POST", path, tokens["other"], empty, other)
                look = _ask(port, "GET", "/v1/releases", tokens["reader"])
                observed |= _response(f"/v1/releases, clock set back by {back:g} s", look)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            observed["exit code"] = str(self.fork_server.ask({"wait": pid})["code"])
            self._move_clock(0.0)
        output = _read(directory / "stdout").replace(f":{port}", ":PORT")
        stored = _relative_to_clock(_observe_directory(directory / "state"), int(_read(directory / "steps") or 0))
        if ingest_path.command == "follow":  # a followed file is identified by its inode, which differs in every run
            inode = f"-{file.stat().st_ino:x}"
            stored = {name.replace(inode, ""): value.replace(inode, "") for name, value in stored.items()}
        return {
            **observed,
            **_observe_text("stdout", output),
            **_observe_text("log", _read(directory / "stderr")),
            **stored,
        }

    def _append(self, file: Path, lines: bytes) -> None:
        """Append to a followed file, and wait until the server has read all of it."""
        with file.open("ab") as open_file:
            open_file.write(lines)
        idle_reads = int(_read(file.with_name("looks")) or 0)
        deadline = time.monotonic() + _TIMEOUT
        while int(_read(file.with_name("looks")) or 0) < idle_reads + _IDLE_READS:
            if time.monotonic() > deadline:
                raise PanstreamError("the audited server does not read the file that it should follow")
            time.sleep(0.02)

    def _send_beacons(self, port: int, lines: bytes) -> None:
        """Send every line as the beacon of a browser, on one connection; the visitor's address encodes the id."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
        with contextlib.closing(connection):
            for line in lines.splitlines():
                match = _VISITOR.search(line)
                number = 0 if match is None else int(match[1])
                headers = {
                    "Origin": f"https://{self.config['web']['site']}",
                    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0",
                    "X-Forwarded-For": f"203.0.{number >> 8 & 255}.{number & 255}",
                }
                connection.request("POST", "/v1/beacon", line, headers)
                connection.getresponse().read()

    def _send_by_client(self, directory: Path, ingest_path: IngestPath, port: int, token: str, body: bytes) -> None:
        """Send the rows in two runs of a client, which has only its file of counts to know of the first."""
        folder = directory / "sender"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token)
        windows = sorted({parse_duration(query["window"], name="window") for query in self.config["query"]})
        for part in _sending_client.halves(body):
            (folder / "rows.csv").write_bytes(part)
            call = (f"http://127.0.0.1:{port}", self.stream, "rows.csv", windows)
            sends = ingest_path.format == "send"
            argv = _sending_client.command(*call) if sends else []
            pid = self._start(folder, ingest_path, argv, client=None if sends else [ingest_path.format, *call])
            if code := self.fork_server.ask({"wait": pid})["code"]:
                raise PanstreamError(f"the audited client ended with code {code}: {_read(folder / 'stderr')[-300:]}")

    @property
    def _counts(self) -> list[str]:
        """Return the addresses of point queries; those of queries without items are answered with an error."""
        return [f"/v1/queries/{quote(query['name'])}/counts?name=12" for query in self.config["query"]]

    def _start(self, directory: Path, ingest_path: IngestPath, argv: list[str], client: list[Any] | None = None) -> int:
        job = {
            "client": client,
            "argv": argv + (["--workers", str(ingest_path.workers)] if ingest_path.workers else []),
            "real_clock": ingest_path.workers > 0,
            "directory": str(directory),
            "stdout": str(directory / "stdout"),
            "stderr": str(directory / "stderr"),
            "plants": self.injected_leaks,
            "exact": self.exact,
        }
        return int(self.fork_server.ask(job)["pid"])

    def _port(self, directory: Path, pid: int) -> int:
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            text = _read(directory / "stdout")
            for line in text.splitlines():
                if line.startswith("serving ") and text.endswith("\n"):
                    return int(line.rpartition(":")[2])
            if not Path(f"/proc/{pid}").exists() or _read(Path(f"/proc/{pid}/stat")).split(")")[-1].split()[0] == "Z":
                break
            time.sleep(0.02)
        raise PanstreamError(f"the audited server did not start: {_read(directory / 'stderr')[-300:]}")


def _ask(
    port: int, method: str, path: str, token: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    try:
        connection.request(method, path, body or None, {"Authorization": f"Bearer {token}", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.getheaders(), response.read()
    finally:
        connection.close()


def _response(name: str, response: tuple[int, list[tuple[str, str]], bytes]) -> Fields:
    status, headers, body = response
    shown = {f"{name}: status": str(status), f"{name}: size": str(len(body))}
    shown |= {f"{name}: header {key}": value for key, value in headers if key.lower() not in _UNSTABLE}
    return {**shown, **_observe_text(name, body.decode(errors="replace"))}


def _relative_to_clock(fields: Fields, steps: int) -> Fields:
    """Return the fields with clock-driven counters relative to the number of steps, which depends on the machine.

    The size of the store's file, which has space for two states, is dropped for the same reason; the sizes of its parts
    are compared.
    """
    return {
        name: f"{int(value) - steps} beyond the steps of the clock" if name.endswith(_BY_CLOCK) else value
        for name, value in fields.items()
        if not name.endswith("state.sealed: size")
    }


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _dump_toml(data: dict[str, Any]) -> str:
    """Return a configuration as TOML: tables one level deep, everything below inline."""
    lines: list[str] = []
    for name, value in data.items():
        for table in value if isinstance(value, list) else [value]:
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += toml_lines(table)
    return "\n".join(lines) + "\n"


def _observe_directory(directory: Path, name: str = "store") -> Fields:
    """Return everything that an attacker who copies the directory sees, except for noised numbers."""
    observed: Fields = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            label = f"{name}/{path.relative_to(directory).as_posix()}"
            observed[f"{label}: size"] = str(path.stat().st_size)
            if path.name == "state.sealed":
                observed |= dict(observe_store(path.parent, label))
            elif path.suffix == ".sqlite":
                observed |= dict(observe_releases(path, label))
    return observed


def _observe_text(name: str, text: str) -> Fields:
    """Return the number of lines, and each line as a field."""
    lines = text.splitlines()
    return {
        f"{name}: lines": str(len(lines)),
        **{f"{name}: line {number}": line for number, line in enumerate(lines, 1)},
    }
