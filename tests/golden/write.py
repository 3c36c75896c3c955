"""Writes the golden states and the golden stores that are missing; what it wrote must open for ever and stays.

    python tests/golden/write.py 1 [states|store|cluster ...]

The state files hold one of every algorithm after its specimen's batches, the store a stream that was stopped in the
middle of a window, with releases made, releases open, groups, and a producer. The cluster is the same stream on two
shards.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # the specimens belong to the tests

from panstream.distributed.sharded._coordinator import ClusterEngine  # noqa: E402
from panstream.distributed.sharded._links import LocalLink  # noqa: E402
from panstream.engine.config.config import load_config  # noqa: E402
from panstream.engine.runtime.engine import Engine  # noqa: E402
from panstream.engine.runtime.ingest import feed  # noqa: E402
from tests.conformance.specimens import specimens  # noqa: E402


def write_states(directory: Path) -> None:
    """Write a state of every specimen after its batches, where there is none."""
    for specimen in specimens():
        path = directory / f"{specimen.name.replace(',', '').replace(' ', '-')}.bin"
        if path.exists():
            continue
        monitor = specimen.algorithm.start()
        for batch in specimen.batches:
            keywords = dict(batch)
            ids = [keywords.pop("ids")] if "ids" in keywords else []
            monitor.update(*ids, **keywords)
        path.write_bytes(monitor.to_bytes())


def write_store(directory: Path) -> None:
    """Write the store of an engine that has read visits.csv and was stopped before the end of input."""
    config = replace(load_config(HERE / "store.toml"), directory=directory)
    os.chdir(HERE)
    with Engine(config) as engine:
        feed(engine, ["visits.csv"])
        engine.release("visitors")
    (directory / "lock").unlink()


def write_cluster(directory: Path) -> None:
    """Write the stores of a coordinator and two shards, stopped in the same place."""
    config = replace(load_config(HERE / "store.toml"), directory=directory)
    os.chdir(HERE)
    with ClusterEngine(config, LocalLink(2), positions=True) as engine:
        feed(engine, ["visits.csv"])
        engine.release("visitors")
    for lock in directory.rglob("lock"):
        lock.unlink()


if __name__ == "__main__":
    version, *chosen = sys.argv[1:]
    writers = {"states": write_states, "store": write_store, "cluster": write_cluster}
    for name, write in writers.items():
        if chosen and name not in chosen:
            continue
        directory = HERE / f"{name}-{version}"
        if name == "states" or not directory.exists():
            directory.mkdir(exist_ok=True)
            write(directory)
