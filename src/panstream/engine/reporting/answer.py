"""The answer of a one-off query, as text, tables, files and plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from panstream.core.estimate import format_interval, format_number
from panstream.engine.reporting.export import csv_table
from panstream.engine.reporting.unusable_share import UnusableShare
from panstream.engine.storage.ledger_file import Spent
from panstream.engine.storage.release_log import Release
from panstream.errors import InvalidParameter, NotSupported, import_optional
from panstream.primitives.escaping import html_text, markdown_text, printable
from panstream.primitives.time_grid import local_timestamp
from panstream.privacy.claim import Claim
from panstream.privacy.ledger import Ledger

_FIGURES = ("estimate", "low", "high", "standard_error", "unclipped")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """The private answers to one SELECT: a row for every group and period, each with its 95% interval.

    Attributes:
        sql: The statement.
        rows: The answers.
        claims: One claim per aggregate.
        guessed: How the input was read, which is public.
        ledger: All charges so far for the answers that are ``covered``; None without a ledger.
        covered: Which answers the ledger counts, as text.
        notes: What lists of names contain, and which rows are left out of a count.
        shares: Epsilon of each group, where one user can be in several.
        unusable: The share of rows that could not be used, if it is published.
    """

    sql: str
    rows: tuple[dict[str, Any], ...]
    claims: tuple[Claim, ...]
    guessed: dict[str, Any]
    ledger: Spent | None = field(default=None, compare=False)
    covered: str = field(default="", compare=False)
    notes: tuple[str, ...] = ()
    shares: str = ""
    unusable: UnusableShare | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __float__(self) -> float:
        value = self._single_row()["estimate"]
        return math.nan if value is None else float(value)

    def interval(self) -> tuple[float, float]:
        """Return the 95% interval of the only answer; an end that does not exist is infinite.

        Raises:
            NotSupported: There are several answers, or none; each row has its own ``low`` and ``high``.
        """
        row = self._single_row()
        low = row["low"]
        high = row["high"]
        return -math.inf if low is None else float(low), math.inf if high is None else float(high)

    def _single_row(self) -> dict[str, Any]:
        if len(self.rows) != 1:
            raise NotSupported(f"there are {len(self.rows)} answers; take one of them, or to_pandas()")
        return self.rows[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns, in order of appearance."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def cost(self) -> str:
        """Return the cost of this answer as text."""
        losses = str(Ledger(entries=[(str(number), claim) for number, claim in enumerate(self.claims)]))
        return f"{losses}, {self.shares}" if self.shares else losses

    @property
    def spent(self) -> str:
        """Return the total cost of all answers in the ledgers, this one included, as text."""
        if self.ledger is None:
            return "not recorded; repeated answers add up"
        return f"{self.ledger}, counting {self.covered}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        totals = None if self.ledger is None else [total.to_json() for total in self.ledger.totals()]
        return {
            "sql": self.sql,
            "answers": [dict(row) for row in self.rows],
            "claims": [claim.to_json() for claim in self.claims],
            "notes": list(self.notes),
            "shares": self.shares,
            "unusable": None if self.unusable is None else self.unusable.to_json(),
            "guessed": self.guessed,
            "spent": totals,
            "covered": self.covered,
        }

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``."""
        from panstream.engine.arrow import pa

        return pa.Table.from_pylist([{name: row.get(name) for name in self.columns} for row in self.rows])

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        pandas = _imported("pandas")
        return pandas.DataFrame([dict(row) for row in self.rows], columns=list(self.columns))

    def to_polars(self) -> Any:
        """Return a polars DataFrame."""
        return _imported("polars").from_arrow(self.to_arrow())

    def to_csv(self) -> str:
        """Return CSV with a header line; texts are escaped for spreadsheets and terminals, see ``csv_text``."""
        rows = [[row.get(name) for name in self.columns] for row in self.rows]
        return csv_table([self.columns, *rows], lineterminator="\n")

    def to_markdown(self) -> str:
        """Return a Markdown table."""
        head, *body = self._shown(markdown_text)
        lines = [head, ["---:" if name in _NUMERIC else "---" for name in head], *body]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def plot(self) -> Any:
        """Return a matplotlib figure, which notebooks show: every answer with its 95% interval."""
        import_optional("matplotlib.figure", "drawing plots", "plots")
        from panstream.engine.reporting.picture import Picture

        drawn = [row for row in self.rows if None not in (row["estimate"], row["low"], row["high"])]
        if not drawn:
            raise InvalidParameter("there is nothing to plot: no answer has a value and an interval")
        picture = Picture(figsize=(8.0, 1.2 + 0.35 * len(drawn)), layout="constrained")
        axis = picture.subplots()
        values = [row["estimate"] for row in drawn]
        reach = [[row["estimate"] - row["low"] for row in drawn], [row["high"] - row["estimate"] for row in drawn]]
        axis.errorbar(values, range(len(drawn)), xerr=reach, fmt="o", color="#0072B2", capsize=3)
        axis.set_yticks(range(len(drawn)), [printable(_label(row)) or "answer" for row in drawn], parse_math=False)
        axis.invert_yaxis()
        axis.set_title(f"{printable(self.sql)}\nwith 95% interval; {self.cost}", fontsize=9, parse_math=False)
        axis.grid(True, axis="x", color="#DDDDDD", linewidth=0.6)
        return picture

    def __str__(self) -> str:
        shown = self._shown(printable)
        widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
        right = [name in _NUMERIC for name in shown[0]]
        lines = [
            "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)).rstrip()
            for row in shown
        ]
        notes = [
            f"{_label(row)}: {row['description']}".removeprefix(": ") for row in self.rows if row.get("description")
        ]
        notes += [f"{note[0].upper()}{note[1:]}." for note in self.notes]
        notes += dict.fromkeys(
            f"Too uncertain to use. What would help: {row['help']}" for row in self.rows if row.get("help")
        )
        notes += [] if self.unusable is None else [str(self.unusable)]
        return "\n".join([*lines, *map(printable, notes)])

    def __repr__(self) -> str:
        return f"{self}\n({self.cost})"

    def _repr_html_(self) -> str:
        head, *body = self._shown(html_text)
        names = "".join(f"<th>{name}</th>" for name in head)
        cells = "".join("<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in body)
        caption = f"{html_text(self.sql)}<br>This answer: {html_text(self.cost)}. So far: {html_text(self.spent)}."
        return f"<table><caption>{caption}</caption><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>"

    def _shown(self, escape: Callable[[str], str]) -> list[list[str]]:
        """Return the displayed table: its header, and a line for every answer."""
        keys = [name for name in self.columns if name not in (*_FIGURES, "description", "too_uncertain", "help")]
        lines = [[*map(escape, keys), "estimate", "95% interval"]]
        for row in self.rows:
            estimate = "too uncertain" if row.get("too_uncertain") else format_number(row["estimate"])
            interval = format_interval(row["low"], row["high"])
            lines.append([*(escape(str(row.get(key, ""))) for key in keys), estimate, interval])
        return lines


_NUMERIC = ("estimate", "95% interval")


def release_to_row(release: Release, name: str | None, *, zone: str = "UTC") -> dict[str, Any]:
    """Return a release as a flat row: aggregate if there are several, group, period and figures.

    Args:
        release: The release.
        name: Its aggregate, if there are several.
        zone: The time zone in which periods are shown.
    """
    record = release.record
    low, high = record["interval"]
    row: dict[str, Any] = {} if name is None else {"aggregate": name}
    row |= record.get("group", {})
    if "window" in record:
        row |= {"start": _local(record["window"][0], zone), "end": _local(record["window"][1], zone)}
    elif "end" in record:
        row["end"] = _local(record["end"], zone)
    row |= {"estimate": record["value"], "low": low, "high": high, "standard_error": record["standard_error"]}
    row["unclipped"] = record["unclipped"]
    return row | {key: record[key] for key in ("description", "too_uncertain", "help") if key in record}


def _local(stamp: str, zone: str) -> str:
    return stamp if zone == "UTC" else local_timestamp(datetime.fromisoformat(stamp).timestamp(), zone)


def _label(row: dict[str, Any]) -> str:
    hidden = (*_FIGURES, "description", "too_uncertain", "help", "end")
    return ", ".join(str(value) for name, value in row.items() if name not in hidden)


def _imported(library: str) -> Any:
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError:
        raise NotSupported(f"{library} is not installed: pip install {library}; to_dict() needs nothing") from None
