"""The values that each attribute of a record can take, declared in advance and never read from the rows.

A domain derived from private rows is itself a leak: that a category occurs reveals that some user has it. So a `Domain`
is written down by hand, or proposed from public metadata by `propose_domain`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.models.networks.bins import Bins, date_edges
from panstream.primitives import validation as checks
from panstream.primitives.toml_config import load_config_file

LARGEST_TABLE = 1 << 27  # cells; a gigabyte of counts
_LARGEST_SIZE = 1 << 16
_FORMAT = "panstream-domain"
_VERSION = 1
_MISSING = "missing"
_OTHER = "other"
_INFINITIES = {"-inf": -math.inf, "inf": math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column: its name, its labels in code order, its bins if it is numeric, and the code for "missing".

    Args:
        name: Name of the column.
        labels: Its categories in the order of their codes.
        bins: Edges of the categories if the column is numeric.
        missing: The code for a missing value; None if every record has a value.
    """

    name: str
    labels: tuple[str, ...]
    bins: Bins | None = None
    missing: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidParameter("the name of an attribute must be a string that is not empty")
        if not 1 <= len(self.labels) <= _LARGEST_SIZE:
            raise InvalidParameter(f"{self.name!r} must have 1..{_LARGEST_SIZE} categories, got {len(self.labels)}")
        if not all(isinstance(label, str) for label in self.labels):
            raise InvalidParameter(f"the categories of {self.name!r} must be strings")
        if len(set(self.labels)) != len(self.labels):
            raise InvalidParameter(f"the categories of {self.name!r} must differ from each other")

    @property
    def size(self) -> int:
        """Return the number of values that the attribute can take, "missing" included."""
        return len(self.labels)


@dataclass(frozen=True, slots=True, init=False)
class Domain:
    """The attributes of a table, in order, with every value each of them can take.

    ``attributes`` maps a name to its categories or to `Bins`. ``missing`` names the attributes where "no value"
    is a category of its own: as a mapping it gives the category's label, which is added at the end unless it is
    declared; nulls and undeclared values then become that category instead of an error.

    Args:
        attributes: For each name its categories, or the bins of its numbers.
        missing: Names of attributes that may have no value; as a mapping, with the label of that category.

    >>> domain = Domain({"sex": ["f", "m"], "age": Bins([0, 18, 65, 120])}, missing={"sex": "?"})
    >>> domain.names, domain.sizes
    (('sex', 'age'), (3, 3))
    >>> Domain.from_json(domain.to_json()) == domain
    True
    """

    attributes: tuple[Attribute, ...]

    def __init__(
        self, attributes: Mapping[str, Sequence[str] | Bins], *, missing: Mapping[str, str] | Iterable[str] = ()
    ) -> None:
        if not isinstance(attributes, Mapping):
            raise InvalidParameter("attributes must map names to categories or Bins")
        labels = dict(missing) if isinstance(missing, Mapping) else dict.fromkeys(missing, _MISSING)
        stray = [name for name in labels if name not in attributes]
        if stray:
            raise InvalidParameter(f"missing names an attribute that is not declared: {stray[0]!r}")
        object.__setattr__(
            self, "attributes", tuple(_attribute(name, values, labels.get(name)) for name, values in attributes.items())
        )
        if not self.attributes:
            raise InvalidParameter("a domain must have at least one attribute")

    def __len__(self) -> int:
        return len(self.attributes)

    def __repr__(self) -> str:
        return f"Domain({', '.join(f'{attribute.name}: {attribute.size}' for attribute in self.attributes)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the attributes, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of categories of each attribute, in order."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """Return the number of cells of the full joint table."""
        return math.prod(self.sizes)

    def position(self, name: str) -> int:
        """Return the position of the attribute called ``name``; raise InvalidParameter if there is none."""
        for index, attribute in enumerate(self.attributes):
            if attribute.name == name:
                return index
        raise InvalidParameter(f"there is no attribute {name!r}; the domain has {', '.join(self.names)}")

    def labels(self, position: int) -> tuple[str, ...]:
        """Return the categories of the attribute at ``position``, in the order of their codes."""
        return self.attributes[position].labels

    def code(self, position: int, label: str) -> int:
        """Return the code of a ``label`` of the attribute at ``position``; raise InvalidParameter if there is none."""
        attribute = self.attributes[position]
        try:
            return attribute.labels.index(label)
        except ValueError:
            raise InvalidParameter(f"{attribute.name!r} has no category of this name") from None

    def shape(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the table of the attributes at ``positions``; raise InvalidParameter above 2^27 cells."""
        if len(set(positions)) != len(positions) or not all(0 <= position < len(self) for position in positions):
            raise InvalidParameter(f"attributes must be distinct positions below {len(self)}, got {tuple(positions)}")
        shape = tuple(self.attributes[position].size for position in positions)
        if math.prod(shape) > LARGEST_TABLE:
            raise InvalidParameter(f"a table of {math.prod(shape)} cells is above the limit of {LARGEST_TABLE}")
        return shape

    def select(self, positions: Sequence[int]) -> Domain:
        """Return the domain of some of the attributes, in the order of ``positions``."""
        return _domain_from(tuple(self.attributes[position] for position in positions))

    def preceded_by(self, name: str, labels: Sequence[str]) -> Domain:
        """Return the domain with one more attribute, ``name`` with ``labels``, before all others."""
        return _domain_from((Attribute(name=name, labels=tuple(labels)), *self.attributes))

    def to_dict(self) -> dict[str, Any]:
        """Return the domain as dictionaries, lists, strings and numbers."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "attributes": [_plain(attribute) for attribute in self.attributes],
        }

    @classmethod
    def from_dict(cls, plain: Any) -> Domain:
        """Rebuild a domain from the ``plain`` values of `to_dict`; raise InvalidBytes if they are damaged."""
        if not isinstance(plain, dict) or plain.get("format") != _FORMAT:
            raise InvalidBytes("this is not a domain of panstream")
        if plain.get("version") != _VERSION:
            raise InvalidBytes(f"domain version {plain.get('version')!r} is not known; this release reads {_VERSION}")
        try:
            return _domain_from(tuple(_rich(attribute) for attribute in plain["attributes"]))
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise InvalidBytes(f"the domain is damaged: {error}") from None

    def digest(self) -> str:
        """Return the SHA-256 of the domain's names, categories, their order and bins."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def to_json(self) -> str:
        """Return the domain as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Domain:
        """Read the ``text`` that `to_json` wrote."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidBytes("the domain is not valid JSON") from None
        return cls.from_dict(plain)

    @classmethod
    def load(cls, path: str | Path) -> Domain:
        """Read the file ``path``: what `to_json` wrote, or declarations for `propose_domain` in TOML or JSON."""
        plain = load_config_file(Path(path), "domain file")
        declared = isinstance(plain, dict) and plain.get("format") == _FORMAT
        return cls.from_dict(plain) if declared else propose_domain(plain)


def _attribute(name: str, values: Sequence[str] | Bins, missing: str | None) -> Attribute:
    if isinstance(values, str):
        raise InvalidParameter(f"the categories of {name!r} must be a sequence of strings, not one string")
    bins = values if isinstance(values, Bins) else None
    labels = bins.labels if bins else tuple(values)  # type: ignore[arg-type]
    if missing is None:
        return Attribute(name=name, labels=labels, bins=bins)
    if missing not in labels:
        labels = (*labels, missing)
    return Attribute(name=name, labels=labels, bins=bins, missing=labels.index(missing))


def _domain_from(attributes: tuple[Attribute, ...]) -> Domain:
    """Return the domain of existing `Attribute` values, without reading categories and bins again."""
    names = [attribute.name for attribute in attributes]
    if not names or len(set(names)) != len(names):
        raise InvalidParameter("a domain must have at least one attribute, and names must differ from each other")
    domain = object.__new__(Domain)
    object.__setattr__(domain, "attributes", attributes)
    return domain


def _plain(attribute: Attribute) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": attribute.name}
    if attribute.bins is None:
        plain["categories"] = list(attribute.labels)
    else:
        bins = attribute.bins
        plain["edges"] = [edge if math.isfinite(edge) else str(edge) for edge in bins.edges]
        plain["clip"] = bins.clip
        plain["whole"] = bins.whole
        if bins.atoms:
            plain["atoms"] = list(bins.atoms)
        if bins.tail is not None:
            plain["tail"] = bins.tail
        if bins.dates:
            plain["edges"] = [date.fromordinal(int(edge)).isoformat() for edge in bins.edges]
            plain["dates"] = True
    if attribute.missing is not None:
        plain["missing"] = attribute.labels[attribute.missing]
    return plain


def _edge(edge: Any) -> float:
    return _INFINITIES.get(edge, math.nan) if isinstance(edge, str) else float(edge)


def _rich(plain: Any) -> Attribute:
    values: Sequence[str] | Bins
    if "edges" in plain:
        dates = plain.get("dates") is True
        tail = plain.get("tail")
        edges = plain["edges"] if dates else [_edge(edge) for edge in plain["edges"]]
        values = Bins(
            edges,
            clip=plain["clip"] is True,
            whole=plain["whole"] is True,
            atoms=plain.get("atoms", ()),
            tail=None if tail is None else float(tail),
            dates=dates,
        )
    else:
        values = plain["categories"]
        if not isinstance(values, list):
            raise InvalidParameter("categories must be a list")
    missing = plain.get("missing")
    if not (missing is None or isinstance(missing, str)):
        raise InvalidParameter("missing must be a label")
    return _attribute(plain["name"], values, missing)


def propose_domain(metadata: Mapping[str, Any], *, bins: int = 16, missing: str = _MISSING) -> Domain:
    """Propose a domain from public metadata: category lists, sizes, types and ranges. It never reads a row.

    Per attribute: a list of categories; a number of categories (they are called "0", "1", …); or a mapping with
    ``enum`` or ``categories``, or ``type`` ("boolean", "integer", "number") with ``minimum`` and ``maximum`` and
    optionally ``bins``, or ``edges``; numbers may have ``atoms`` and a ``tail`` (see `Bins`). ``type`` "date"
    has ``minimum``, ``maximum`` and ``step`` ("day", "week", "month", "quarter", "year"). ``nullable: true`` adds a
    category for missing values, ``missing: "?"`` one with this label, ``other: true`` one called "other"; each takes
    nulls and all values that are not declared. A Table Schema
    (``{"fields": [{"name": …, "type": …, "constraints": {…}}]}``) is accepted as well. Integers with at most ``bins``
    values get a category each; wider ranges get ``bins`` bins of equal width.

    Args:
        metadata: Public description of the columns, or a Table Schema.
        bins: Number of bins of a numeric column that declares none.
        missing: Label of the category for missing values.

    >>> propose_domain({"sex": ["f", "m"], "stay": {"type": "integer", "minimum": 1, "maximum": 14}})
    Domain(sex: 2, stay: 14)
    """
    checks.require_at_least(1, bins=bins)
    attributes: dict[str, Sequence[str] | Bins] = {}
    nullable: dict[str, str] = {}
    for name, declared in _fields(metadata).items():
        attributes[name] = _proposed(name, declared, bins)
        if isinstance(declared, Mapping) and "other" in declared:
            if "missing" in declared:
                raise InvalidParameter(f"{name!r}: give missing or other: both are one category, of undeclared values")
            nullable[name] = _OTHER if declared["other"] is True else str(declared["other"])
        elif isinstance(declared, Mapping) and "missing" in declared:
            nullable[name] = str(declared["missing"])
        elif isinstance(declared, Mapping) and declared.get("nullable") is True:
            nullable[name] = missing
    return Domain(attributes, missing=nullable)


_DECLARED = {
    *("type", "enum", "categories", "minimum", "maximum", "bins", "edges", "atoms", "tail", "clip", "step"),
    *("nullable", "missing", "other"),
}
_OF_TABLE_SCHEMA = {  # of a field, which say nothing about its values
    *("name", "title", "description", "format", "constraints", "example", "examples", "rdfType", "required", "unique"),
    *("minLength", "maxLength", "pattern", "trueValues", "falseValues", "bareNumber", "decimalChar", "groupChar"),
}


def _fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InvalidParameter("metadata must map names to what is declared about them")
    fields = metadata.get("fields")
    if not (isinstance(fields, list) and fields and all(isinstance(field, Mapping) for field in fields)):
        return dict(metadata)
    return {field.get("name", ""): {**field, **field.get("constraints", {})} for field in fields}


def _proposed(name: str, declared: Any, bins: int) -> Sequence[str] | Bins:
    if isinstance(declared, Bins):
        return declared
    if isinstance(declared, int) and not isinstance(declared, bool):
        return [str(code) for code in range(declared)]
    if isinstance(declared, list | tuple):
        return [str(label) for label in declared]
    if not isinstance(declared, Mapping):
        raise InvalidParameter(f"{name!r} must be declared by a list, a number of categories or a mapping")
    if unknown := sorted(declared.keys() - _DECLARED - _OF_TABLE_SCHEMA):
        near = difflib.get_close_matches(unknown[0], _DECLARED, 1)
        hint = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(_DECLARED))}"
        raise InvalidParameter(f"{name!r}: unknown key {unknown[0]!r}{hint}")
    for key in ("enum", "categories"):
        if key in declared:
            return [str(label) for label in declared[key] if label is not None]
    is_integer = declared.get("type") == "integer"
    if declared.get("type") == "date":
        return _dates(name, declared)
    options: dict[str, Any] = {key: declared[key] for key in ("atoms", "tail") if key in declared}
    options["clip"] = declared.get("clip") is True
    if "edges" in declared:
        return Bins(map(_edge, declared["edges"]), whole=is_integer, **options)
    if declared.get("type") == "boolean":
        return ["False", "True"]
    return _range(name, declared, int(declared.get("bins", bins)), is_integer, options)


def _dates(name: str, declared: Mapping[str, Any]) -> Bins:
    clip = declared.get("clip") is True
    if "edges" in declared:
        return Bins(declared["edges"], clip=clip, dates=True)
    if not all(key in declared for key in ("minimum", "maximum")):
        raise InvalidParameter(f"{name!r} needs a minimum and a maximum, or edges; rows are not looked at")
    step = declared.get("step", "month")
    return Bins(date_edges(declared["minimum"], declared["maximum"], step), clip=clip, dates=True)


def _range(
    name: str, declared: Mapping[str, Any], bins: int, is_integer: bool, options: dict[str, Any]
) -> Sequence[str] | Bins:
    if not all(isinstance(declared.get(key), int | float) for key in ("minimum", "maximum")):
        raise InvalidParameter(f"{name!r} needs categories, edges, or a minimum and a maximum; rows are not looked at")
    low = declared["minimum"]
    high = declared["maximum"]
    if not low < high:
        raise InvalidParameter(f"the minimum of {name!r} must be below its maximum, got {low} and {high}")
    if not is_integer:
        return Bins(np.linspace(low, high, bins + 1), **options)
    count = int(high) - int(low) + 1
    if count <= bins and options["clip"]:  # a bin for every number, the last one of the maximum alone
        return Bins([*range(int(low), int(high) + 1), int(high) + 0.5], whole=True, **options)
    if count <= bins:
        more = [atom for atom in options.get("atoms", ()) if not low <= atom <= high]
        return [str(value) for value in (*range(int(low), int(high) + 1), *more)]
    width = -(-count // bins)
    starts = range(int(low), int(high), width)  # the last bin is closed, so it takes the maximum itself
    return Bins([*starts, int(high)], whole=True, **options)
