"""Both machines and the front end as processes on this host, with certificates made on the spot; for killing."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from panstream.cli.commands.party import party
from panstream.primitives.certificates import Authority
from tests.distributed.two_party.front_child import main as front
from tests.ports import free_port

FORKS = multiprocessing.get_context("forkserver")  # children need not import everything again
FORKS.set_forkserver_preload(
    [
        *(
            f"panstream.{name}"
            for name in (
                "cli.commands.party",
                "distributed.two_party.https",
                "distributed.two_party.session",
                "primitives.kernels.algorithms.secret_shares",
            )
        ),
        *(
            "panstream.engine.rows.arrow_predicates",
            "panstream.engine.sql.parser",
            "sqlglot.expressions",
            "sqlglot.dialects.duckdb",
        ),
    ]
)

CONFIG = """
[stream]
name = "s"
columns = {{ user = "int" }}
user = "user"
machines = ["https://127.0.0.1:{a}", "https://127.0.0.1:{b}"]

[two_party]
names = ["a", "b"]
certificate = "certificates/front.pem"
key = "certificates/front.key"
authority = "certificates/authority.pem"

[store]
directory = "front"

[[query]]
name = "share"
sql = "SELECT COUNT(DISTINCT user) FROM s"
universe = 100000
epsilon = 1.0

[[query]]
name = "count"
sql = "SELECT COUNT(*) FROM s"
epsilon = 1.0
"""


@dataclass(frozen=True, slots=True)
class Child:
    """A process and what it says."""

    process: Any
    stdout: TextIO

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.stdout.close()


def _said(pipe: Connection, main: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    os.dup2(pipe.fileno(), 1)
    main(*arguments, **options)


class Processes:
    """Three processes whose state is below ``directory``; any of them may be killed and started again."""

    def __init__(self, directory: Path, stream: str = "s") -> None:
        self.directory = directory
        self.stream = stream
        self.ports = {"a": free_port(), "b": free_port()}
        authority = Authority(directory / "certificates")
        for name in ("a", "b", "front"):
            authority.issue(name)
        (directory / "panstream.toml").write_text(CONFIG.format(**self.ports))
        self.running: dict[str, Child] = {}

    def machine(self, name: str) -> Child:
        """Start machine a or b, and wait until it answers."""
        folder = self.directory / "certificates"
        other = "b" if name == "a" else "a"
        made = self.start(
            name,
            party,
            directory=self.directory / name,
            stream=self.stream,
            role=name,
            front="front",
            peer_name=other,
            listen=f"127.0.0.1:{self.ports[name]}",
            certificate=folder / f"{name}.pem",
            key=folder / f"{name}.key",
            authority=folder / "authority.pem",
            no_hardening=True,
            peer=f"https://127.0.0.1:{self.ports['b']}" if name == "a" else None,
        )
        line = made.stdout.readline()
        assert "answers at" in line, line
        return made

    def front(self, batches: int) -> Child:
        """Start a front end that applies batches and then answers."""
        return self.start("front", front, self.directory, batches)

    def start(self, name: str, main: Callable[..., Any], *arguments: Any, **options: Any) -> Child:
        """Start what ``main`` does."""
        ours, theirs = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=_said, args=(theirs, main, arguments, options))  # type: ignore[attr-defined]
        process.start()
        theirs.close()
        self.running[name] = made = Child(process, os.fdopen(os.dup(ours.fileno())))
        ours.close()
        return made

    def kill(self, name: str) -> None:
        """Kill one of them at once."""
        self.running.pop(name).end()

    def close(self) -> None:
        for name in [*self.running]:
            self.kill(name)
