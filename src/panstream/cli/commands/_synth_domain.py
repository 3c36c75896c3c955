"""A domain file to fill in: one line for every column of a table, as far as its name and type say what to declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from panstream.errors import InvalidParameter
from panstream.models.networks.usual_ranges import usual_range
from panstream.primitives.toml_config import toml_key, toml_value

if TYPE_CHECKING:
    from panstream.models.networks.domain import Domain

_SKELETON = """\
# What values there can be in {name}, one line for every column; columns that are left out are not learned.
# Fill it in from a codebook or from common knowledge, not from the rows: that a category occurs at all already says
# that somebody has it. A column is declared in one of these ways:
#   sex = ["f", "m"]
#   smoker = {{ type = "boolean" }}
#   stay = {{ type = "integer", minimum = 1, maximum = 14 }}
#   weight = {{ type = "number", minimum = 0.0, maximum = 300.0, bins = 20 }}
#   age = {{ edges = [0, 18, 40, 65, 120], type = "integer" }}
#   income = {{ edges = [0, 1000, 10000, inf], atoms = [0], tail = 1000000 }}
#   admitted = {{ type = "date", minimum = 2020-01-01, maximum = 2024-12-31, step = "month" }}
# atoms are values that many rows have, drawn exactly; tail is how far the numbers of an open last bin reach.
# With nullable = true, "no value" is a category of its own; missing = "?" writes it as the rows do. Without either, a
# value that is not declared stops the fit: clip = true moves a number into the nearest bin, and
# ward = {{ categories = ["1", "2"], other = true }} counts every other value as "other".
"""


def domain_to_fill_in(table: str, kinds: Mapping[str, str | None], *, ask: bool) -> str:
    """Return the text of a domain file.

    Args:
        table: Name of the table.
        kinds: Types of its columns by name, None where they are not known.
        ask: Ask the operator for what every column can hold.
    """
    lines = [f"{toml_key(name)} = {_to_fill_in(name, kind, ask)}\n" for name, kind in kinds.items()]
    return _SKELETON.format(name=table) + "".join(lines)


def _to_fill_in(name: str, kind: str | None, ask: bool) -> str:
    """Return the declaration of a column: from its name, from the operator, or to be filled in."""
    usual = usual_range(name) if kind in (None, "int", "double") else None
    if kind == "bool":
        return '{ type = "boolean" }'
    if ask:
        return _asked(name, kind, usual)
    if usual is not None:
        return f"{_range(*usual[:2], kind == 'int' or (kind is None and usual[2]))}  # the usual range: check it"
    if kind in ("int", "double"):
        return f'{{ type = "{"integer" if kind == "int" else "number"}" }}  # add: minimum = ..., maximum = ...'
    return "[]  # list the categories"


def _asked(name: str, kind: str | None, usual: tuple[float, float, bool] | None) -> str:
    """Return the declaration that the operator types: two numbers, or categories separated by commas."""
    default = "" if usual is None else f"{usual[0]:g}..{usual[1]:g}"
    answer = typer.prompt(
        f"{name}: lowest..highest number, or categories separated by commas (from a codebook, not from the rows)",
        default=default,
        show_default=bool(default),
        err=True,
    )
    low, sign, high = answer.partition("..")
    try:
        numbers = (float(low), float(high)) if sign else None
    except ValueError:
        raise InvalidParameter(f"{name}: two numbers are expected, such as 0..120, got {answer!r}") from None
    if numbers is not None:
        return _range(*numbers, kind == "int" or (kind is None and numbers[0].is_integer() and numbers[1].is_integer()))
    labels = [label.strip() for label in answer.split(",") if label.strip()]
    return toml_value(labels) + ("" if labels else "  # list the categories")


def _range(low: float, high: float, is_whole: bool) -> str:
    kind, numbers = (
        ("integer", f"minimum = {low:.0f}, maximum = {high:.0f}")
        if is_whole
        else ("number", f"minimum = {float(low)}, maximum = {float(high)}")
    )
    return f'{{ type = "{kind}", {numbers}, clip = true }}'


def open_bin_notes(domain: Domain) -> list[str]:
    """Return a note if numbers are drawn from unbounded bins."""
    import numpy as np

    names = [
        attribute.name
        for attribute in domain.attributes
        if attribute.bins and attribute.bins.tail is None and not np.isfinite(attribute.bins.edges).all()
    ]
    return [
        f"numbers in an open-ended bin are written as its edge, in {', '.join(names)}; tail = ... spreads those above"
    ] * bool(names)
