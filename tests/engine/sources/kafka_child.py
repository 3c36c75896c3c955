"""A process that counts a topic without noise, and says after every tick how many rows it has taken in."""

import os
import sys
from pathlib import Path

from panstream.engine.config.config import Config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from tests.engine.runtime.streams import config, question

USERS = 20_000


def counting(directory: Path) -> Config:
    """Return the settings: how many users, and how many rows of value 1."""
    return config(
        question("distinct", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS),
        question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1),
        directory=directory / "state",
        batch_rows=100,
    )


def main(directory: str, url: str) -> None:
    """Fork a process for every line on standard input: a fork saves the time to import everything anew."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                with Engine(counting(Path(directory)), zero_noise=True) as engine:
                    say("open")
                    ingest(engine, [url], on_batch=lambda rows, _: say(f"fed {rows}"))
            except Exception as error:
                say(f"failed {error}")
            finally:
                os._exit(1)
        say(f"child {child}")
        os.waitpid(child, 0)
        say("end")


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
