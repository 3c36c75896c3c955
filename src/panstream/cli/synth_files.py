"""Files that the synthesiser writes: synthetic rows, and learned networks with what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from panstream.batch.frames import pyarrow
from panstream.errors import InvalidBytes, InvalidParameter
from panstream.networks.files import from_json, read_about, to_json
from panstream.networks.network import BayesianNetwork
from panstream.networks.tree import LearnedNetwork

__all__ = ["read_model", "write_columns", "write_model"]


def write_columns(path: Path, columns: dict[str, list[object]]) -> None:
    """Write columns as CSV or Parquet, by the file's ending."""
    arrow = pyarrow()
    table = arrow.table(columns)
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        parquet.write_table(table, path)
    elif path.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        raise InvalidParameter(f"the output must end in .csv or .parquet, got {path.name}")


def write_model(path: Path, learned: LearnedNetwork) -> None:
    """Write network, claim and noisy one-way tables: everything in the file may be published."""
    one_way: dict[int, list[Any]] = {}
    for table in learned.tables:
        if len(table.attributes) == 1:
            one_way.setdefault(table.attributes[0], [np.asarray(table.counts).tolist(), table.sigma])
    about = {
        "claim": learned.claim.to_json(),
        "words": learned.claim.rows(),
        "records": learned.records,
        "one_way": [one_way.get(at) for at in range(len(learned.network.domain))],
    }
    path.write_text(to_json(learned.network, about), encoding="utf-8")


def read_model(path: Path) -> tuple[BayesianNetwork, dict[str, Any]]:
    """Return a network and the notes written beside it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidParameter(f"the model file {path.name} cannot be read") from None
    network, about = from_json(text), read_about(text)
    if not isinstance(about.get("records"), int) or not isinstance(about.get("words"), list):
        raise InvalidBytes(f"{path.name} is a network, but was not written by panstream synth fit")
    return network, about
