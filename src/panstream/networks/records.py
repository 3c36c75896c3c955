"""A table as codes: one contiguous row of small integers per attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from panstream.batch.files import read_columns
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.networks.columns import column_codes, named_columns
from panstream.networks.domain import Domain

__all__ = ["Records"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records:
    """Records over a declared domain; ``codes[i, r]`` is the code of attribute ``i`` in record ``r``.

    >>> domain = Domain({"sex": ["f", "m"], "smokes": ["no", "yes"]})
    >>> records = Records.read({"sex": ["f", "m", "f"], "smokes": ["no", "no", "yes"]}, domain)
    >>> len(records), records.to_columns()["smokes"]
    (3, ['no', 'no', 'yes'])
    """

    domain: Domain
    codes: NDArray[np.uint16]

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 2 or codes.shape[0] != len(self.domain):
            raise InvalidBatch(f"codes must have shape (attributes, records) with {len(self.domain)} attributes")
        if codes.dtype.kind not in "iu":
            raise InvalidBatch(f"codes must be integers, got {codes.dtype}")
        for position, attribute in enumerate(self.domain.attributes):
            row = codes[position]
            if row.size and not 0 <= int(row.min()) <= int(row.max()) < attribute.size:
                first = int(np.argmax((row < 0) | (row >= attribute.size)))
                raise InvalidBatch(f"codes of {attribute.name!r} must be in 0..{attribute.size - 1}", row=first)
        object.__setattr__(self, "codes", np.ascontiguousarray(codes, np.uint16))

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def __repr__(self) -> str:
        return f"Records({len(self.domain)} attributes)"

    @classmethod
    def read(cls, data: Any, domain: Domain) -> Records:
        """Read a mapping of columns, a list of mappings, a pandas or polars frame or an Arrow table.

        Columns that the domain does not name are left alone. A value that is not declared is refused by its row
        number, or becomes the attribute's missing category where one is declared. Whole numbers match categories
        written without a decimal point.
        """
        columns = named_columns(data)
        absent = [name for name in domain.names if name not in columns]
        if absent:
            raise InvalidBatch(f"there is no column {absent[0]!r}")
        codes: NDArray[np.uint16] | None = None
        for position, attribute in enumerate(domain.attributes):
            found = column_codes(columns[attribute.name], attribute)
            if codes is None:
                codes = np.empty((len(domain), found.size), np.uint16)
            if found.size != codes.shape[1]:
                raise InvalidBatch(f"column {attribute.name!r} must be as long as the others")
            codes[position] = found
        assert codes is not None  # a domain has at least one attribute
        return cls(domain, codes)

    @classmethod
    def load(cls, path: Path, domain: Domain) -> Records:
        """Read the declared columns of a CSV (also gzipped) or Parquet file."""
        text = [each.name for each in domain.attributes if each.bins is None]
        return cls.read(read_columns(path, domain.names, text=text), domain)

    def to_columns(self) -> dict[str, list[str]]:
        """Return the labels of every record, one list per attribute; a bin is named by its interval."""
        columns = {}
        for attribute, row in zip(self.domain.attributes, self.codes, strict=True):
            labels = np.array(attribute.labels, object)
            columns[attribute.name] = labels[row].tolist()
        return columns

    def take(self, rows: ArrayLike) -> Records:
        """Return the records of these row numbers (or where a mask is true), in this order."""
        return Records(self.domain, self.codes[:, np.asarray(rows)])

    def select(self, positions: Sequence[int]) -> Records:
        """Return some of the attributes of all records."""
        return Records(self.domain.select(positions), self.codes[list(positions)])

    def split(self, parts: int) -> tuple[Records, ...]:
        """Deal the records round robin into ``parts`` parts whose sizes differ by one at most."""
        if parts < 1:
            raise InvalidParameter(f"parts must be at least 1, got parts={parts}")
        return tuple(Records(self.domain, self.codes[:, start::parts]) for start in range(parts))
