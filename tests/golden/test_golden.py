"""States and stores that an earlier release wrote are opened for ever, or refused with the way to go on."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from panstream import Monitor
from panstream.algorithms.density.optbern import OptBern
from panstream.distributed.sharded._backend import stored_shards
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._links import LocalLink
from panstream.engine.config.config import load_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import feed
from panstream.errors import PanstreamError
from panstream.primitives.noise import SeededSource
from tests.conformance.specimens import specimens

HERE = Path(__file__).parent
STATES = sorted(HERE.glob("states-*/*.bin"))
STORES = sorted(HERE.glob("store-*"))
CLUSTERS = sorted(HERE.glob("cluster-*"))

# What is no longer opened, by file, and words of the refusal that say how to go on.
REFUSED: dict[str, str] = {
    "states-1/HeavyFraction.bin": "field high_counters does not have the shape",  # two means are no bracket
}


@pytest.mark.parametrize("path", STATES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_old_state_is_opened_and_released(path: Path) -> None:
    data = path.read_bytes()
    name = f"{path.parent.name}/{path.name}"
    if name in REFUSED:
        with pytest.raises(PanstreamError, match=REFUSED[name]):
            Monitor.from_bytes(data)
        return
    monitor = Monitor.from_bytes(data)
    estimate = monitor.tick() if hasattr(monitor.algorithm, "tick") else monitor.release()
    assert estimate.claim.epsilon <= monitor.algorithm.claim().epsilon


def test_old_heavy_hitter_states_are_named_for_what_they_count() -> None:
    """They were drawn for a graded count and lose what was claimed for it: law, sensitivity and quantity stay
    theirs.
    """
    heavy = Monitor.from_bytes((HERE / "states-1" / "HeavyHitterCount.bin").read_bytes())
    assert (heavy.algorithm.graded, heavy.algorithm.least, heavy.algorithm.sensitivity) == (True, 0, 2)
    assert heavy.algorithm.prime == 1019
    heavy.update([1], weight=[-3])
    again = Monitor.from_bytes(heavy.to_bytes())
    assert again.algorithm == heavy.algorithm


@pytest.mark.parametrize("version", [1, 2])
def test_old_user_bits_are_a_count(version: int) -> None:
    monitor = Monitor.from_bytes((HERE / f"states-{version}" / "UserBits.bin").read_bytes(), source=SeededSource(1))
    assert monitor.algorithm == OptBern(universe=400, epsilon=1.0, count=True)
    assert monitor.release().name == "distinct users"


@pytest.mark.parametrize(
    "path",
    [path for path in STATES if "Bitmap" in path.stem],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_a_state_keeps_the_hash_that_it_was_filled_by(path: Path) -> None:
    """Formats 1 and 2 had SipHash only, and did not say so."""
    monitor = Monitor.from_bytes(path.read_bytes())
    assert monitor.algorithm.hash == ("fold" if path.parent.name == "states-3" else "siphash")
    assert Monitor.from_bytes(monitor.to_bytes()).algorithm == monitor.algorithm


def test_there_is_a_state_of_every_algorithm() -> None:
    kept = {path.stem.split("-")[0] for path in STATES}
    assert {type(specimen.algorithm).__name__ for specimen in specimens()} <= kept


def test_there_are_states_of_every_algorithm_of_format_1() -> None:
    assert len({path.stem.split("-")[0] for path in STATES if path.parent.name == "states-1"}) == 30


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_an_old_store_is_opened_and_goes_on(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "store"
    shutil.copytree(store, directory)
    monkeypatch.chdir(HERE)
    with Engine(replace(load_config(HERE / "store.toml"), directory=directory)) as engine:
        before = [(release.query, release.number) for release in engine.log.history()]
        assert ("visitors", 1) in before
        assert engine.made("visitors") == 1
        feed(engine, ["visits.csv"])  # all of it was read
        engine.finish()
        answers = {(release.query, release.number) for release in engine.log.history()}
        assert set(before) < answers
        assert engine.finished("visitors of the day") is False


@pytest.mark.parametrize("store", CLUSTERS, ids=lambda path: path.name)
@pytest.mark.parametrize("shards", [2, 3])
def test_an_old_cluster_is_opened_and_goes_on(
    store: Path, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "store"
    shutil.copytree(store, directory)
    monkeypatch.chdir(HERE)
    config = replace(load_config(HERE / "store.toml"), directory=directory)
    with ClusterEngine(config, LocalLink(shards), positions=True) as engine:
        before = [(release.query, release.number) for release in engine.log.history()]
        assert ("visitors", 1) in before
        assert engine.made("visitors") == 1
        feed(engine, ["visits.csv"])  # all of it was read
        engine.finish()
        answers = {(release.query, release.number) for release in engine.log.history()}
        assert set(before) < answers
        assert engine.finished("visitors of the day") is False
    assert stored_shards(directory) == shards
