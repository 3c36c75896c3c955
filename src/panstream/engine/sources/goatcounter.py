"""A CSV export of GoatCounter, which has a row for every page view, as lines of an access log.

Its other export and those of Plausible have daily totals only, which cannot be counted again. GoatCounter's session is
one visitor for at most eight hours, so somebody who comes back later counts again, as with GoatCounter itself.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from panstream.errors import InvalidParameter

_FIRST = "2Path"  # version of the format, and the first column
_NEEDED = ("Event", "UserAgent", "Browser", "System", "Session", "Bot", "Referrer", "Referrer scheme", "Date")
_SAFE = "/?&=%+:;,.~!$'()*@-_"
# How a user agent names what the export names, where it does not hold the agent itself.
_SYSTEMS = {
    "Windows": "Windows NT",
    "macOS": "Macintosh",
    "Mac OS": "Macintosh",
    "iOS": "iPhone; Mobile",
    "Android": "Linux; Android; Mobile",
    "Chrome OS": "X11; CrOS",
    "Linux": "X11; Linux",
}
_BROWSERS = {
    "Edge": "Chrome/1 Edg/1",
    "Opera": "Chrome/1 OPR/1",
    "Samsung": "SamsungBrowser/1",
    "Firefox": "Firefox/1",
    "Chrome": "Chrome/1",
    "Safari": "Safari/1",
}


def goatcounter_log(path: Path) -> Iterator[str]:
    """Yield a line in the combined log format for every page view of an export, in the order of the export.

    Args:
        path: The export, ``.csv`` or ``.csv.gz``.

    Raises:
        InvalidParameter: The file is no such export, or a row has no time.
    """
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        names = rows.fieldnames or []
        if not names or names[0] != _FIRST or not set(_NEEDED) <= set(names):
            raise InvalidParameter(
                f"{path.name} is no CSV export of GoatCounter: its first line must begin with {_FIRST}, and name "
                f"{', '.join(_NEEDED)}"
            )
        for number, row in enumerate(rows, 2):
            if row["Event"].lower() in ("true", "1") or row["Bot"] not in ("", "0"):
                continue
            try:
                time = datetime.fromisoformat(row["Date"]).astimezone(UTC)
            except ValueError:
                raise InvalidParameter(f"{path.name}, line {number}: Date must be a time") from None
            yield _line(row, time)


def _line(row: dict[str, str], time: datetime) -> str:
    target = "/" + row[_FIRST].lstrip("/")
    referrer = "-"
    source = quote(row["Referrer"], safe=_SAFE)
    if source and row["Referrer scheme"] == "c":
        target += ("&" if "?" in target else "?") + f"utm_campaign={source}"
    elif source and row["Referrer scheme"] in ("h", "g"):  # an address, or a name that GoatCounter gave it
        referrer = source if source.startswith("http") else f"https://{source}"
    agent = row["UserAgent"] or f"Mozilla/5.0 ({_named(row['System'], _SYSTEMS)}) {_named(row['Browser'], _BROWSERS)}"
    agent = agent.replace('"', "").replace("\\", "")
    session = quote(row["Session"], safe="") or "-"
    return (
        f'{session} - - [{time:%d/%b/%Y:%H:%M:%S} +0000] "GET {quote(target, safe=_SAFE)} HTTP/1.1" 200 0 '
        f'"{referrer}" "{" ".join(agent.split())}"'
    )


def _named(text: str, names: dict[str, str]) -> str:
    return next((agent for name, agent in names.items() if text.startswith(name)), "other")
