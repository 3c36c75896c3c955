"""A front end as a process of its own: apply batch after batch, then answer. For tests that kill it."""

import json
import os
import sys
from pathlib import Path

import numpy as np

from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import load_config
from panstream.errors import PanstreamError
from tests.engine.runtime.streams import rows

SIZE = 20


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def main(directory: Path, batches: int) -> int:
    config = load_config(directory / "panstream.toml")
    names = [query.name for query in config.queries]
    try:
        with open_engine(config, zero_noise=True) as engine:
            say("open")
            for number in range(engine.last_sequence("load") + 1, batches):
                ids = np.arange(number * SIZE, (number + 1) * SIZE)
                engine.apply(rows(names, ids, producer="load", sequence=number))
                say(f"applied {number}")
            found = {}
            for name in names:
                if not engine.running_query(name).finished:
                    engine.release(name)
                found[name] = [each.record["value"] for each in engine.log.history(name)]
            say("answers " + json.dumps(found))
    except PanstreamError as error:
        say(f"stopped {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
