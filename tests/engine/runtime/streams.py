"""Configurations and micro-batches for the tests of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from panstream.engine.arrow import arrow_mask
from panstream.engine.config.config import Config, read_config
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.engine import Engine

COLUMNS = {"user": "int", "name": "string", "value": "double", "region": "string", "w": "int", "at": "timestamp"}


def config(*queries: dict[str, Any], directory: Path | None = None, **settings: Any) -> Config:
    """Return a configuration; ``settings`` belong to [store] or [stream] by their names."""
    store = {
        key: settings.pop(key) for key in ("durability", "interval", "batch_rows", "commit_rows") if key in settings
    }
    stream = {"name": "s", "columns": COLUMNS, "user": "user", **settings}
    if directory is not None:
        store["directory"] = str(directory)
    return read_config({"stream": stream, "query": [dict(query) for query in queries], "store": store})


def question(name: str, sql: str, **settings: Any) -> dict[str, Any]:
    """Return one [[query]] table."""
    return {"name": name, "sql": sql, "epsilon": 1.0, **settings}


DISTINCT = question("distinct", "SELECT COUNT(DISTINCT user) FROM s", universe=1000)
SUM = question("sum", "SELECT SUM(value) FROM s", lower=0, upper=8)
COUNT = question("count", "SELECT COUNT(*) FROM s")


class Clock:
    """A clock that tests set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def answers(engine: Engine, name: str | None = None) -> list[float]:
    """Return the published values of one query, or of all."""
    return [release.record["value"] for release in engine.log.history(name)]


def rows(names: list[str], ids: Any = None, *, count: int | None = None, times: Any = None, **more: Any) -> RowBatch:
    """Return a micro-batch in which every query sees the same columns."""
    names_of = {"chosen": "rows", "values": "values", "weights": "weights", "groups": "groups", "unusable": "unusable"}
    fields = {name: np.asarray(more.pop(key)) for key, name in names_of.items() if key in more}
    size = count if count is not None else len(ids)
    each = QuerySelection.select_all(size, **fields)
    return RowBatch(
        count=size,
        queries=dict.fromkeys(names, each),
        ids=ids,
        times=None if times is None else np.asarray(times, float),
        **more,
    )


def good(batch: Any) -> Any:
    """Return the columns of a micro-batch or piece without the rows that cannot be used."""
    return batch.columns.filter(arrow_mask(~batch.bad))
