"""Dask DataFrames in, answers out: nothing of the rows in the task graph, and what needs an order is refused."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client

import panstream.distributed.sharded
from panstream.distributed.sharded._worker_reading import Partition
from panstream.distributed.sharded.dask_setup import SETTINGS, local_cluster
from panstream.distributed.sharded.explain import shard_locations
from panstream.engine.config.config import read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.errors import ConfigError, InvalidParameter
from tests.engine.runtime.streams import question

USERS = 2000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        local_cluster(2, processes=False, security=False) as cluster,
        Client(cluster, direct_to_workers=True) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    for number in range(4):
        ids = [f"user-{i}" for i in range(number * 400, number * 400 + 800)]
        pd.DataFrame({"user": ids, "page": ids, "value": 1.0}).to_parquet(folder / f"part-{number}.parquet")
    return folder


def stream(*queries: dict[str, object]) -> object:
    columns = {"user": "string", "page": "string", "value": "double"}
    return read_config({"stream": {"name": "s", "user": "user", "columns": columns}, "query": list(queries)})


def test_distinct_users_of_a_lake(client: Client, lake: Path) -> None:
    found = panstream.distributed.sharded.distinct(
        dd.read_parquet(lake), "user", epsilon=8.0, expected=USERS, memory=1 << 17, client=client
    )
    assert found.claim.epsilon == 8.0
    assert abs(found.value - USERS) < 6 * found.standard_error + 20


def test_a_configuration_over_a_frame(client: Client, lake: Path) -> None:
    distinct = question("distinct", "SELECT COUNT(DISTINCT user) FROM s", expected=USERS, memory=25_000)
    total = question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1)
    found = panstream.distributed.sharded.run(
        stream(distinct, total),  # type: ignore[arg-type]
        dd.read_parquet(lake),
        client=client,
        zero_noise=True,
    )
    assert found["sum"].record["value"] == 3200
    assert found["distinct"].record["value"] == pytest.approx(USERS, rel=0.05)


def test_names_of_a_lake(client: Client, lake: Path) -> None:
    asked = "SELECT substr(page, 1, 7) AS start, COUNT(*) FROM s GROUP BY start"
    names = question("names", asked, max_item_bytes=8, memory=1_000_000)
    found = panstream.distributed.sharded.run(stream(names), dd.read_parquet(lake), client=client, zero_noise=True)  # type: ignore[arg-type]
    with Engine(stream(names), zero_noise=True) as engine:  # type: ignore[arg-type]
        ingest(engine, [str(lake)])
        engine.finish()
        alone = engine.log.last("names")
    assert alone is not None and alone.record["value"] == 3200
    assert found["names"].record["items"] == alone.record["items"]


def test_windows_of_a_lake_from_a_configuration_file(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(3):
        minutes = pd.to_datetime((pd.Series(range(120)) + 120 * number) * 60, unit="s").dt.as_unit("us")
        pd.DataFrame({"user": range(120), "at": minutes}).to_parquet(folder / f"{number}.parquet", index=False)
    settings = tmp_path / "stream.toml"
    settings.write_text(
        """
[stream]
name = "s"
user = "user"
time = "at"
columns = { user = "int", at = "timestamp" }

[[query]]
name = "users"
sql = "SELECT COUNT(DISTINCT user) FROM s"
universe = 200
window = "1 hour"
epsilon = 1.0

[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM s"
every = "2 hours"
horizon = 10
epsilon = 1.0
"""
    )
    frame = dd.read_parquet(folder)
    found = panstream.distributed.sharded.run(settings, frame, client=client, history=True, zero_noise=True)
    assert [release.record["value"] for release in found["users"]] == pytest.approx([60.0] * 6)
    assert [release.record["value"] for release in found["rows"]] == [120.0, 240.0, 360.0]
    last = panstream.distributed.sharded.run(settings, frame, client=client, zero_noise=True)
    assert last["rows"].record["value"] == 360.0
    with pytest.raises(ConfigError, match="this frame does not tell"):
        panstream.distributed.sharded.run(settings, frame[frame.user > 3], client=client)
    with pytest.raises(ConfigError, match="on_bad_row"):
        other = read_config(tomllib.loads(settings.read_text().replace("[stream]", '[stream]\non_bad_row = "stop"')))
        panstream.distributed.sharded.run(other, frame, client=client)


def test_what_cannot_be_answered_is_refused(client: Client, lake: Path) -> None:
    hourly = question("n", "SELECT COUNT(*) FROM s", every="1 hour", horizon=3)
    with pytest.raises(ConfigError, match="time"):
        panstream.distributed.sharded.run(stream(hourly), dd.read_parquet(lake), client=client)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="no column"):
        panstream.distributed.sharded.distinct(dd.read_parquet(lake), "nobody", epsilon=1.0, client=client)


def test_partitions_are_stretches_of_row_groups(lake: Path) -> None:
    assert [(part.before, part.rows) for part in Partition.of([str(lake)], rows=100)] == [(0, 800)] * 4
    assert Partition.of(["-"], rows=100) == []


def test_where_states_are_is_explained() -> None:
    distinct = question("distinct", "SELECT COUNT(DISTINCT user) FROM s", expected=USERS)
    total = question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1)
    names = question("names", "SELECT page, COUNT(*) FROM s GROUP BY page", max_item_bytes=32)
    plans = plan_all(stream(distinct, total, names))  # type: ignore[arg-type]
    found = shard_locations(plans, 4)
    text = "\n".join(entry["why"] for entry in found)
    assert "no extra noise" in text
    assert "2.5 times the variance, 1.58 times the standard error" in text
    assert [entry["divided"] for entry in found] == [True, False, True]
    tables = found[2]
    assert tables["row_bytes"] == 32 + 7
    assert tables["cells"] / 4 <= tables["cells_per_shard"] < 1.2 * tables["cells"] / 4
    assert tables["extra_noise"] == 0.0


def test_settings() -> None:
    assert SETTINGS["distributed.worker.memory.spill"] is False
