"""What a stream has published about a day, a week or a month, beside the same before: Markdown, or an e-mail.

Only published answers are read. What adds up is summed, with the interval of the joint noise; of everything else the
newest answer about a whole window is shown, and the one before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from email.message import EmailMessage
from typing import Any
from zoneinfo import ZoneInfo

from panstream.algorithms.continual.noise_sum_tails import half_width_of_sum
from panstream.core.estimate import format_number
from panstream.errors import InvalidParameter
from panstream.primitives.escaping import html_text, printable

DAYS = {"day": 1, "week": 7, "month": 30}
_LEVEL = 0.95
_DAY = timedelta(days=1)
_LONGEST_DAY = timedelta(hours=26)  # where the clocks were changed
_SHOWN = 10  # names of a list


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedQuery:
    """A query, as far as a report needs to know it."""

    name: str
    series: tuple[str, ...]
    additive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its interval, and the days that it is about."""

    value: float
    low: float
    high: float
    begin: datetime
    end: datetime
    missing: int = 0  # windows of the period that have no answer

    def days(self, zone: ZoneInfo) -> str:
        """Return the local days that the figure is about."""
        first = self.begin.astimezone(zone).date()
        last = (self.end - timedelta(seconds=1)).astimezone(zone).date()
        return _day(first) if first == last else f"{_day(first)} to {_day(last)}"


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of a report; the first column is text, the others are figures."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodReport:
    """A report: a title and tables."""

    title: str
    tables: list[ReportTable]
    notes: list[str]

    def to_markdown(self) -> str:
        """Return the report as Markdown."""
        lines = [f"# {_plain(self.title)}", ""]
        for table in self.tables:
            lines += [
                f"## {_plain(table.title)}",
                "",
                _row(table.head),
                _row(("---", *["---:"] * (len(table.head) - 1))),
            ]
            lines += [_row(tuple(map(_plain, row))) for row in table.rows]
            lines += ["", *([table.note, ""] if table.note else [])]
        return "\n".join([*lines, *self.notes, ""])

    def to_html(self) -> str:
        """Return the report as HTML for an e-mail: no style sheet, no picture, nothing to load."""
        parts = [f"<h1>{html_text(self.title)}</h1>"]
        for table in self.tables:
            head = "".join(f"<th align=left>{html_text(cell)}</th>" for cell in table.head)
            rows = "".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
            parts.append(f"<h2>{html_text(table.title)}</h2><table cellpadding=5><tr>{head}</tr>{rows}</table>")
            parts += [f"<p>{html_text(table.note)}</p>"] if table.note else []
        return "".join([*parts, *(f"<p>{html_text(note)}</p>" for note in self.notes)])

    def to_mail(self, to: str, sender: str | None = None) -> bytes:
        """Return the report as a message for ``sendmail -t``: Markdown, and the same as HTML."""
        message = EmailMessage()
        message["Subject"] = printable(self.title)
        message["To"] = to
        message["From"] = sender or to
        message.set_content(self.to_markdown())
        message.add_alternative(f"<!doctype html><html><body>{self.to_html()}</body></html>", subtype="html")
        return message.as_bytes()


def make_report(
    title: str,
    queries: Sequence[ReportedQuery],
    releases: Iterable[Mapping[str, Any]],
    *,
    period: str = "week",
    until: date | None = None,
    time_zone: str = "UTC",
) -> PeriodReport:
    """Return a report about the newest whole days.

    Args:
        title: What the report is about.
        queries: The queries, in the order of the report.
        releases: Published answers as the HTTP interface gives them.
        period: "day", "week" or "month": 1, 7 or 30 days.
        until: The last day; by default the newest that has answers.
        time_zone: Where days begin.

    Raises:
        InvalidParameter: There is no answer about a whole day.
    """
    zone = ZoneInfo(time_zone)
    by_series: dict[str, list[Mapping[str, Any]]] = {}
    for release in releases:
        if "window" in release and release.get("end", release["window"][1]) >= release["window"][1]:  # a whole window
            by_series.setdefault(release["series"], []).append(release)
    ends = [
        end
        for published in by_series.values()
        for release in published
        if (span := _span(release))[1] - span[0] <= _LONGEST_DAY and _is_midnight(end := span[1], zone)
    ]
    if until is not None:
        ends = [end for end in ends if (end - _DAY / 2).astimezone(zone).date() <= until]
    if not ends:
        raise InvalidParameter("nothing to report yet: no answer about a whole day was published")
    end = max(ends)
    begin = _midnight((end - timedelta(seconds=1)).astimezone(zone).date() - timedelta(days=DAYS[period] - 1), zone)
    earlier = _midnight(begin.astimezone(zone).date() - timedelta(days=DAYS[period]), zone)
    numbers: dict[str, tuple[str, ...]] = {}
    narrowest: dict[str, float] = {}
    lists: list[ReportTable] = []
    for query in queries:
        published = [by_series.get(series, []) for series in query.series]
        if any("items" in release or "group" in release for series in published for release in series):
            lists += _listed(query, published, begin, end, zone)
        elif len(published) == 1 and published[0]:
            name, width, row = _compared(query, published[0], (earlier, begin, end), zone)
            if row and width < narrowest.get(name, math.inf):  # of sums of hours and of days, the more exact one
                numbers[name] = row
                narrowest[name] = width
    named = Figure(value=0.0, low=0.0, high=0.0, begin=begin, end=end).days(zone)
    head = ("", "number", "95% interval", "days", "change from as long before")
    tables = [ReportTable("Figures", head, list(numbers.values()))] if numbers else []
    notes = [
        "Every figure was published with noise, which protects those who are counted; 95 of 100 intervals hold the "
        "true one. A change is named only if noise alone could not make it."
    ]
    return PeriodReport(title=f"{title}: {named}", tables=[*tables, *lists], notes=notes)


def sum_answers(releases: Iterable[Mapping[str, Any]], begin: datetime, end: datetime) -> Figure | None:
    """Return the sum of the answers about windows inside a period, with the interval of their joint noise."""
    inside = [(_span(entry), entry) for entry in releases if entry["value"] is not None]
    inside = [(span, entry) for span, entry in inside if span[0] >= begin and span[1] <= end]
    if not inside:
        return None
    value = sum(entry["unclipped"] for _, entry in inside)
    half = half_width_of_sum(_LEVEL, [entry["standard_error"] for _, entry in inside])
    length = min(last - first for (first, last), _ in inside)
    return Figure(
        value=value,
        low=value - half,
        high=value + half,
        begin=min(first for (first, _), _ in inside),
        end=max(last for (_, last), _ in inside),
        missing=max(0, round((end - begin) / length) - len(inside)),
    )


def _compared(
    query: ReportedQuery,
    published: Sequence[Mapping[str, Any]],
    edges: tuple[datetime, datetime, datetime],
    zone: ZoneInfo,
) -> tuple[str, float, tuple[str, ...]]:
    """Return the name of a number, the width of its interval, and its row, which is empty without an answer."""
    earlier, begin, end = edges
    first, last = _span(published[-1])
    if query.additive and last - first <= _LONGEST_DAY:
        now = sum_answers(published, begin, end)
        before = sum_answers(published, earlier, begin)
        if now is None:
            return query.name, math.inf, ()
        half = half_width_of_sum(
            _LEVEL,
            [entry["standard_error"] for entry in published if _span(entry)[0] >= earlier and _span(entry)[1] <= end],
        )
        complete = before is not None and not before.missing and not now.missing
        by = now.value - before.value if before is not None and complete else 0.0
        name = query.name.removesuffix(" per day").removesuffix(" per hour")
        change = _change(now, before if complete else None, sure=abs(by) > half)
    else:
        whole = [_figure(entry) for entry in published if _span(entry)[1] <= end and entry["value"] is not None]
        if not whole:
            return query.name, math.inf, ()
        now = whole[-1]
        before = whole[-2] if len(whole) > 1 and whole[-2].end == now.begin else None
        sure = before is not None and (now.low > before.high or now.high < before.low)
        name = query.name
        change = _change(now, before, sure=sure)
    if now.missing:
        change = f"{now.missing} answers of these days are missing"
    low = max(0.0, now.low) if now.value >= 0 else now.low
    high = max(0.0, now.high)
    value = max(0.0, now.value) if now.low >= 0 or query.additive else now.value
    row = (name, _number(value), f"{_number(low)} to {_number(high)}", now.days(zone), change)
    return name, now.high - now.low, row


def _change(now: Figure, before: Figure | None, *, sure: bool) -> str:
    if before is None:
        return "nothing to compare with"
    if not sure:
        return "no clear change"
    if before.value > 0:
        return f"{100 * (now.value / before.value - 1):+.1f}%"
    return f"{now.value - before.value:+,.0f}"


def _listed(
    query: ReportedQuery, published: list[list[Mapping[str, Any]]], begin: datetime, end: datetime, zone: ZoneInfo
) -> list[ReportTable]:
    """Return the table of a list of names, or of groups; none without an answer."""
    newest = [[entry for entry in series if _span(entry)[1] <= end][-1:] for series in published]
    latest = [entry for series in newest for entry in series]
    if not latest:
        return []
    note = ""
    if "items" in latest[0]:
        rows = [(str(item["name"]), item["count"], item["interval"]) for item in latest[0]["items"]]
        note = "" if rows else "No name stands out."
    else:
        rows = [
            (", ".join(map(str, entry["group"].values())), entry["value"], entry["interval"])
            for entry in latest
            if entry["value"] is not None
        ]
        rows.sort(key=lambda row: -row[1])
    shown: list[tuple[str, ...]] = [
        (name, _number(max(0.0, value)), f"{_number(max(0.0, low or 0.0))} to {_number(max(0.0, high or 0.0))}")
        for name, value, (low, high) in rows[:_SHOWN]
    ]
    if len(rows) > _SHOWN:
        note = f"and {len(rows) - _SHOWN:,} more"
    title = f"{query.name[0].upper()}{query.name[1:]}, {_figure_days(latest[0], zone)}"
    return [ReportTable(title, ("name", "number", "95% interval"), shown, note)]


def _figure(release: Mapping[str, Any]) -> Figure:
    begin, end = _span(release)
    low, high = release["interval"]
    infinite = float("inf")
    return Figure(
        value=release["value"],
        low=-infinite if low is None else low,
        high=infinite if high is None else high,
        begin=begin,
        end=end,
    )


def _figure_days(release: Mapping[str, Any], zone: ZoneInfo) -> str:
    begin, end = _span(release)
    return Figure(value=0.0, low=0.0, high=0.0, begin=begin, end=end).days(zone)


def _span(release: Mapping[str, Any]) -> tuple[datetime, datetime]:
    begin, end = map(datetime.fromisoformat, release["window"])
    return begin, end


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def _is_midnight(moment: datetime, zone: ZoneInfo) -> bool:
    return moment.astimezone(zone).date() != (moment - timedelta(seconds=1)).astimezone(zone).date()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else format_number(value, 3)


def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is: anybody can choose names, which could be links or pictures."""
    return re.sub(r"([\\`*_{}\[\]()<>#!|~])", r"\\\1", printable(text))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
