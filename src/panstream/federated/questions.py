"""What an analyst may ask a holder. A question is a frozen value; its digest is its name in every ledger.

``run`` is the analyst's label: the same question under the same label is the same question, whenever it is asked, and gets
the same answer for free. Another label is another question, with fresh noise and a fresh charge.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from panstream import checks
from panstream.errors import InvalidBytes, InvalidParameter
from panstream.federated.wire import Message, decode, encode

__all__ = [
    "CountTables",
    "Introduce",
    "LocalModel",
    "LocalScores",
    "Question",
    "Table",
    "Vote",
    "digest",
    "read_question",
    "write_question",
]

Noise: TypeAlias = Literal["laplace", "gaussian"]
Groups: TypeAlias = tuple[int, ...] | None
_LARGEST_TABLES = 1 << 20
_LARGEST_DEGREE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of counts: its attributes, its share of the budget, and optionally coarser categories.

    ``budget`` is epsilon for Laplace noise and rho for Gaussian noise. ``groups[a][code]`` is the group that a code of the
    a-th attribute falls into; ``None`` keeps the attribute's own categories.
    """

    attributes: tuple[int, ...]
    budget: float
    groups: tuple[Groups, ...] = ()

    def __post_init__(self) -> None:
        _positive("budget", self.budget)
        if not self.attributes or len(set(self.attributes)) != len(self.attributes) or min(self.attributes) < 0:
            raise InvalidParameter("the attributes of a table must be distinct positions, at least one")
        if self.groups and len(self.groups) != len(self.attributes):
            raise InvalidParameter("groups must be empty or have one entry per attribute")
        for group in self.groups:
            if group is not None and (not group or set(group) != set(range(max(group) + 1))):
                raise InvalidParameter("groups must be numbered from 0 without gaps")

    def group(self, axis: int) -> Groups:
        """Return the grouping of one axis."""
        return self.groups[axis] if self.groups else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduce:
    """Who are you? Name, number of records (public), the domain's digest, the budget and what is left of it. Free."""

    kind: ClassVar[str] = "introduce"
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTables:
    """Noisy tables of counts, unclipped; the cost is the sum of the tables' budgets."""

    kind: ClassVar[str] = "count-tables"
    run: str
    domain: str
    noise: Noise
    tables: tuple[Table, ...]

    def __post_init__(self) -> None:
        if self.noise not in ("laplace", "gaussian"):
            raise InvalidParameter(f"noise must be laplace or gaussian, got noise={self.noise!r}")
        if not 1 <= len(self.tables) <= _LARGEST_TABLES:
            raise InvalidParameter(f"tables must be 1..{_LARGEST_TABLES}, got {len(self.tables)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """Which attribute, with which ``min(degree, placed)`` of the placed ones as parents, would you add next?"""

    kind: ClassVar[str] = "vote"
    run: str
    domain: str
    placed: tuple[int, ...]
    degree: int
    epsilon: float

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)
        _degree(self.degree)
        if not self.placed or len(set(self.placed)) != len(self.placed) or min(self.placed) < 0:
            raise InvalidParameter("placed must hold distinct positions, at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A whole network learned by the holder alone: structure by votes with itself, tables with Laplace noise."""

    kind: ClassVar[str] = "local-model"
    run: str
    domain: str
    degree: int
    root: int
    structure: float
    parameters: float

    def __post_init__(self) -> None:
        _positive("structure", self.structure)
        _positive("parameters", self.parameters)
        _degree(self.degree)
        if self.root < 0:
            raise InvalidParameter(f"root must be a position, got root={self.root}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalScores:
    """The local mutual information of each family ``(*parents, child)``, with Laplace noise."""

    kind: ClassVar[str] = "local-scores"
    run: str
    domain: str
    families: tuple[tuple[int, ...], ...]
    epsilon: float

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)
        if not 1 <= len(self.families) <= _LARGEST_TABLES:
            raise InvalidParameter(f"families must be 1..{_LARGEST_TABLES}, got {len(self.families)}")
        for family in self.families:
            if not 2 <= len(set(family)) == len(family) <= _LARGEST_DEGREE + 1 or min(family) < 0:
                raise InvalidParameter("a family must have distinct positions, a child and at least one parent")


Question: TypeAlias = Introduce | CountTables | Vote | LocalModel | LocalScores


def write_question(question: Question) -> bytes:
    """Return the question's bytes: the same for the same question, everywhere."""
    return encode(Message(kind=question.kind, fields=_fields(question)))


@functools.lru_cache(maxsize=4)  # many holders in one process read the same question
def read_question(data: bytes) -> Question:
    """Read a question; raise InvalidBytes for anything that is not exactly one."""
    message = decode(data)
    if message.arrays:
        raise InvalidBytes("a question has no arrays")
    try:
        return _READERS[message.kind](dict(message.fields))
    except KeyError:
        raise InvalidBytes("the message is not a question that this release knows") from None
    except (InvalidParameter, TypeError, ValueError) as error:
        text = str(error) if isinstance(error, InvalidParameter) else "a field is missing, unknown or of a wrong type"
        raise InvalidBytes(f"the question is malformed: {text}") from None


def digest(data: bytes) -> str:
    """Return the name of a question: the SHA-256 of its bytes."""
    return hashlib.sha256(data).hexdigest()


def _fields(question: Question) -> dict[str, Any]:
    names = [each for each in type(question).__slots__ if each != "kind"]
    fields = {name: getattr(question, name) for name in names}
    if isinstance(question, CountTables):
        fields["tables"] = [[list(t.attributes), t.budget, [_list(g) for g in t.groups]] for t in question.tables]
    return fields


def _list(group: Groups) -> list[int] | None:
    return None if group is None else list(group)


def _introduce(fields: dict[str, Any]) -> Question:
    return Introduce(run=_text(fields.pop("run")), **fields)


def _count_tables(fields: dict[str, Any]) -> Question:
    tables = tuple(
        Table(
            attributes=_positions(attributes),
            budget=_number(budget),
            groups=tuple(None if group is None else _positions(group) for group in groups),
        )
        for attributes, budget, groups in fields.pop("tables")
    )
    return CountTables(**_common(fields), noise=fields.pop("noise"), tables=tables, **fields)


def _vote(fields: dict[str, Any]) -> Question:
    placed, degree, epsilon = fields.pop("placed"), fields.pop("degree"), fields.pop("epsilon")
    return Vote(**_common(fields), placed=_positions(placed), degree=_whole(degree), epsilon=_number(epsilon), **fields)


def _local_model(fields: dict[str, Any]) -> Question:
    structure, parameters = _number(fields.pop("structure")), _number(fields.pop("parameters"))
    degree, root = _whole(fields.pop("degree")), _whole(fields.pop("root"))
    return LocalModel(**_common(fields), degree=degree, root=root, structure=structure, parameters=parameters, **fields)


def _local_scores(fields: dict[str, Any]) -> Question:
    families = tuple(_positions(family) for family in fields.pop("families"))
    return LocalScores(**_common(fields), families=families, epsilon=_number(fields.pop("epsilon")), **fields)


_READERS = {
    "introduce": _introduce,
    "count-tables": _count_tables,
    "vote": _vote,
    "local-model": _local_model,
    "local-scores": _local_scores,
}


def _common(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _text(fields.pop(name)) for name in ("run", "domain")}


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise TypeError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _positions(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError
    return tuple(_whole(each) for each in values)


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise InvalidParameter(f"{name} must be positive and finite, got {name}={value}")


def _degree(degree: int) -> None:
    checks.within(1, _LARGEST_DEGREE, degree=degree)
