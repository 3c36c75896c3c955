"""Files of version 1 are read by every release from 0.1.0 on, and written back as they were."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from panstream import Monitor
from panstream.algorithms.distinct import Sketch
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._resharding import read_shard_count
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.engine.config.config import load_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.storage.ledger_file import charge_ledgers
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.models.networks import load, to_json
from panstream.models.networks.serialization import read_metadata
from panstream.privacy.claim import Claim
from tests.conformance.specimens import specimens
from tests.golden.write import digests, two_party_engine

HERE = Path(__file__).parent
STATES = sorted(HERE.glob("states-*/*.bin"))
STORES = sorted(HERE.glob("store-*"))
CLUSTERS = sorted(HERE.glob("cluster-*"))
FROZEN = json.loads((HERE / "digests.json").read_text())


def test_no_golden_file_was_changed() -> None:
    assert digests() == FROZEN


@pytest.mark.parametrize("path", STATES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_state_is_written_back_as_it_was_and_released(path: Path) -> None:
    data = path.read_bytes()
    monitor = Monitor.from_bytes(data)
    assert monitor.to_bytes() == data
    estimate = monitor.tick() if hasattr(monitor.algorithm, "tick") else monitor.release()
    assert estimate.claim.epsilon <= monitor.algorithm.claim().epsilon


def test_a_published_sketch_is_read_and_written_back() -> None:
    data = (HERE / "sketch-1.bin").read_bytes()
    sketch = Sketch.from_bytes(data)
    assert sketch.to_bytes() == data
    assert (sketch.name, sketch.buckets, sketch.levels, sketch.hash) == ("visitors", 64, 8, "fold")
    assert sketch.count().interval(0.9999)[0] <= 100 <= sketch.count().interval(0.9999)[1]


def test_there_is_a_state_of_every_algorithm() -> None:
    algorithms = {path.stem.split("-")[0] for path in STATES}
    assert {type(specimen.algorithm).__name__ for specimen in specimens()} <= algorithms


def continue_after_restart(engine: Engine) -> None:
    """Earlier releases are known, the file is not read twice, and the open windows are answered."""
    published = {(release.query, release.number) for release in engine.log.history()}
    assert ("visitors", 1) in published
    assert engine.release_count("visitors") == 1
    ingest(engine, ["visits.csv"])  # all of it was read
    engine.finish()
    assert published < {(release.query, release.number) for release in engine.log.history()}
    assert engine.running_query("visitors of the day").finished is False


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_a_store_is_opened_and_goes_on(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "store"
    shutil.copytree(store, directory)
    with SnapshotStore(directory) as snapshot:
        before = snapshot.load()
    assert before is not None
    monkeypatch.chdir(HERE)
    with Engine(replace(load_config(HERE / "store.toml"), directory=directory)) as engine:
        now = engine._checkpoint.parts(engine._queries, engine._checkpoint.unpublished)
        meta = json.loads(now.pop("meta"))
        assert [query["query"] for query in meta.pop("asked")] == [plan.config.name for plan in engine.plans]
        assert meta == json.loads(before.pop("meta"))  # which has no history of what was asked
        assert now == before
        continue_after_restart(engine)


@pytest.mark.parametrize("store", CLUSTERS, ids=lambda path: path.name)
@pytest.mark.parametrize("shards", [2, 3])
def test_a_cluster_is_opened_and_goes_on(
    store: Path, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "store"
    shutil.copytree(store, directory)
    monkeypatch.chdir(HERE)
    config = replace(load_config(HERE / "store.toml"), directory=directory)
    with ClusterEngine(config, InProcessShardTransport(shards), positions=True) as engine:
        continue_after_restart(engine)
    assert read_shard_count(directory) == shards


@pytest.mark.parametrize("store", sorted(HERE.glob("two-party-*")), ids=lambda path: path.name)
def test_two_machines_are_opened_and_go_on(store: Path, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    shutil.copytree(store, directory)
    with two_party_engine(directory) as engine:
        assert engine.release_count("visitors") == 1
        (release,) = engine.release("visitors")
    assert release.number == 2


@pytest.mark.parametrize("path", sorted(HERE.glob("ledger-*")), ids=lambda path: path.name)
def test_a_ledger_is_read_and_charged(path: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    shutil.copy(path, ledger)
    spent = charge_ledgers([ledger], {"again": Claim(epsilon=0.5, unit="user-window", window=86_400.0)})
    assert spent is not None
    assert spent.total("user-window", window=86_400.0) == (1.25, 1e-9)
    assert ledger.read_bytes().startswith(path.read_bytes())


@pytest.mark.parametrize("path", sorted(HERE.glob("*-[0-9].json")), ids=lambda path: path.name)
def test_a_model_is_written_back_as_it_was(path: Path) -> None:
    text = path.read_text("utf-8")
    assert to_json(load(path), read_metadata(text)) == text
