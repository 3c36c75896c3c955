"""Writes the golden files of a version that are missing; what it wrote stays as it is and is read by later releases.

    python tests/golden/write.py 1

The states are one of every algorithm after its specimen's batches. The store is that of a stream that was stopped in
the middle of a window, with releases made, releases open, groups, and a producer; the cluster is the same stream on two
shards, and two-party one on two machines. ``digests.json`` has the SHA-256 of every file.
"""

import contextlib
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # the specimens belong to the tests

from panstream.algorithms.distinct import Sketch, SketchBitmap  # noqa: E402
from panstream.distributed.sharded._coordinator import ClusterEngine  # noqa: E402
from panstream.distributed.sharded._transport import InProcessShardTransport  # noqa: E402
from panstream.distributed.two_party.backend import TwoPartyBackend  # noqa: E402
from panstream.distributed.two_party.local import InProcessTwoPartyTransport as TwoMachines  # noqa: E402
from panstream.engine.config.config import load_config  # noqa: E402
from panstream.engine.planner.query_plan import plan_all  # noqa: E402
from panstream.engine.runtime.engine import Engine  # noqa: E402
from panstream.engine.runtime.ingest import ingest  # noqa: E402
from panstream.engine.storage.ledger_file import charge_ledgers  # noqa: E402
from panstream.models.networks import BayesianNetwork, Bins, Domain, Mixture, to_json  # noqa: E402
from panstream.privacy.claim import Claim  # noqa: E402
from panstream.testing.enumeration import update  # noqa: E402
from tests.conformance.specimens import specimens  # noqa: E402


def write_states(directory: Path) -> None:
    """Write a state of every specimen after its batches, where there is none."""
    directory.mkdir(exist_ok=True)
    for specimen in specimens():
        path = directory / f"{specimen.name.replace(',', '').replace(' ', '-')}.bin"
        if path.exists():
            continue
        monitor = specimen.algorithm.start()
        for batch in specimen.batches:
            update(**batch).call(monitor.update)
        path.write_bytes(monitor.to_bytes())


def _fill(engine: Engine) -> None:
    ingest(engine, ["visits.csv"])
    engine.release("visitors")


def write_store(directory: Path) -> None:
    """Write the store of an engine that has read visits.csv and was stopped before the end of input."""
    config = replace(load_config(HERE / "store.toml"), directory=directory)
    with Engine(config) as engine:
        _fill(engine)


def write_cluster(directory: Path) -> None:
    """Write the stores of a coordinator and two shards, stopped in the same place."""
    config = replace(load_config(HERE / "store.toml"), directory=directory)
    with ClusterEngine(config, InProcessShardTransport(2), positions=True) as engine:
        _fill(engine)


@contextlib.contextmanager
def two_party_engine(directory: Path) -> Iterator[Engine]:
    """Yield an engine on two machines whose directories, as its own, are below this one."""
    config = replace(load_config(HERE / "two_party.toml"), directory=directory / "front")
    statistics = {plan.config.name: plan.algorithm for plan in plan_all(config)}
    with contextlib.ExitStack() as stack:
        machines = stack.enter_context(contextlib.closing(TwoMachines(directory, config.stream.name)))
        backend = TwoPartyBackend(machines, config.stream.name, statistics)
        yield stack.enter_context(Engine(config, backend=backend))


def write_two_party(directory: Path) -> None:
    """Write the stores of a front end and both machines after one release."""
    with two_party_engine(directory) as engine:
        _fill(engine)


def write_ledger(path: Path) -> None:
    """Write the ledger of a file about which two questions were answered."""
    visitors = Claim(epsilon=0.5, unit="user-window", window=86_400.0)
    sections = Claim(epsilon=0.25, delta=1e-9, unit="user-window", window=86_400.0, event_epsilon=0.125)
    charge_ledgers([path], {"visitors of the day": visitors, "sections": sections}, budget=3.0)


def write_sketch(path: Path) -> None:
    """Write the published sketch of a window."""
    monitor = SketchBitmap(epsilon=2.0, buckets=64, levels=8).start()
    monitor.update([f"user {i}" for i in range(100)])
    monitor.release()
    path.write_bytes(Sketch.of(monitor, "visitors", start=1_772_409_600.0, end=1_773_014_400.0).to_bytes())


def write_mixture(path: Path) -> None:
    """Write a mixture with a forest, over categories, bins, dates and missing values."""
    age = Bins([0, 18, 65, math.inf], atoms=[0.5], tail=110)
    day = Bins(["2026-01-01", "2026-07-01", "2027-01-01"], dates=True)
    domain = Domain({"ward": ["a", "b", "?"], "age": age, "day": day}, missing={"ward": "?"})
    flat = [np.full(size, 1 / size) for size in domain.sizes]
    forest = BayesianNetwork(domain, ((), (0,), ()), (flat[0], np.tile(flat[1], (3, 1)), flat[2]))
    mixture = Mixture(domain, np.array([0.25, 0.75]), tuple(np.tile(row, (2, 1)) for row in flat), forest)
    path.write_text(to_json(mixture, {"epsilon": 1.0}), "utf-8")


WRITERS: dict[str, Callable[[Path], None]] = {
    "states-{}": write_states,
    "store-{}": write_store,
    "cluster-{}": write_cluster,
    "two-party-{}": write_two_party,
    "ledger-{}": write_ledger,
    "mixture-{}.json": write_mixture,
    "sketch-{}.bin": write_sketch,
}


def digests() -> dict[str, str]:
    """Return the SHA-256 of every golden file, by its path."""
    folders = [path for path in HERE.glob("*-[0-9]*") if path.is_dir()]
    files = [path for path in HERE.glob("*-[0-9]*") if path.is_file()]
    files += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(HERE).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


if __name__ == "__main__":
    version = sys.argv[1]
    os.chdir(HERE)
    for name, write in WRITERS.items():
        path = HERE / name.format(version)
        if write is write_states or not path.exists():
            write(path)
    for lock in HERE.rglob("lock"):
        lock.unlink()
    (HERE / "digests.json").write_text(json.dumps(digests(), indent=1) + "\n")
