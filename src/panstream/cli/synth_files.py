"""Files of the synthesiser: domains, tables of rows, and learned networks with what they cost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from panstream.batch.arrow import pyarrow
from panstream.errors import InvalidBatch, InvalidBytes, InvalidParameter
from panstream.networks.domain import Domain, propose_domain
from panstream.networks.files import from_json, read_about, to_json
from panstream.networks.learned import LearnedNetwork
from panstream.networks.network import BayesianNetwork
from panstream.networks.records import Records

__all__ = ["read_domain", "read_model", "read_rows", "write_columns", "write_model"]


def read_domain(path: Path) -> Domain:
    """Return the declared domain: panstream's JSON, or declarations of attributes in TOML or JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidParameter(f"the domain file {path.name} cannot be read") from None
    try:
        plain = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise InvalidParameter(f"the domain file {path.name} is not valid {path.suffix[1:]}: {error}") from None
    if isinstance(plain, dict) and plain.get("format") == "panstream-domain":
        return Domain.from_plain(plain)
    return propose_domain(plain)


def read_rows(path: Path, domain: Domain) -> Records:
    """Read the declared columns of a CSV (also gzipped) or Parquet file. Messages never quote a row."""
    arrow = pyarrow()
    names = list(domain.names)
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as parquet

            table = parquet.read_table(
                path, columns=[name for name in parquet.read_schema(path).names if name in names]
            )
        else:
            from pyarrow import csv

            text = {each.name: arrow.string() for each in domain.attributes if each.bins is None}
            with csv.open_csv(path) as reader:
                present = [name for name in names if name in reader.schema.names]
            options = csv.ConvertOptions(include_columns=present, column_types=text)
            table = csv.read_csv(path, convert_options=options)
    except FileNotFoundError:
        raise InvalidParameter(f"there is no file {path}") from None
    except (arrow.ArrowInvalid, arrow.ArrowKeyError, OSError):
        raise InvalidBatch(f"{path.name} cannot be read as a table") from None
    return Records.read(table, domain)


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
