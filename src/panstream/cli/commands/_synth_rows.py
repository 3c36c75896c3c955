"""The rows of ``panstream synth``: one table, and as many rows of a person as the claim is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from panstream.errors import InvalidBatch
from panstream.models.networks.person_rows import rows_of_persons
from panstream.models.networks.records import Records
from panstream.primitives.inputs.table_files import read_columns
from panstream.primitives.noise import NoiseSource

ONE_TABLE = (
    "a model is fitted to one table. Put related tables into one first: a row for every patient with the columns of "
    "her first visits, or a row for every visit with the patient's columns (then with --person and --contributions); "
    "the how-to about synthetic tables shows both"
)


def text_columns(rows: Path, names: list[str]) -> Any:
    """Return an Arrow table of columns as text.

    Args:
        rows: The file.
        names: Its columns.

    Raises:
        InvalidBatch: There is no such column.
    """
    table = read_columns(rows, names, text=names)
    absent = [name for name in names if name not in table.schema.names]
    if absent:
        raise InvalidBatch(f"there is no column {absent[0]!r}")
    return table


def records_of_persons(records: Records, rows: Path, person: str, contributions: int) -> Records:
    """Return the records that count if every person has as many at most, chosen at random.

    Args:
        records: All records of the file, in their order.
        rows: The file.
        person: The column that says whose a record is.
        contributions: Records of one person at most.

    Raises:
        InvalidBatch: A row does not say whose it is, or the file has other rows by now.
    """
    column = text_columns(rows, [person]).column(person)
    if len(column) != len(records):
        raise InvalidBatch(f"{rows.name} was changed while it was read")
    with NoiseSource() as rng:
        return records.take(rows_of_persons(column, contributions, rng))
