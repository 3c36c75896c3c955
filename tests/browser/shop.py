"""A stream of sixteen made-up days with questions of every kind, so that the page has a past to show."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

from tests.browser.serving import Serving

DAYS = 16
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
FRUIT = ("apples", "pears", "plums", "figs", "dates", "limes", "kiwis", "nuts", "oats", "rye", "tea", "jam")
PAGES = [f"/shop/{name}" for name in FRUIT]

_QUESTIONS = {
    "visitors a day": ("COUNT(DISTINCT user)", 'epsilon = 2.0\nwindow = "1 day"\nexpected = 2000\nmemory = 8192'),
    "page views a day": ("COUNT(*)", 'epsilon = 1.0\nwindow = "1 day"'),
    "page views in all": ("COUNT(*)", 'epsilon = 1.0\nevery = "1 hour"\nhorizon = 2000'),
    "page views by hour": ("COUNT(*)", 'epsilon = 0.5\nwindow = "1 hour"'),
    "revenue a day": ("SUM(amount)", 'epsilon = 1.0\nwindow = "1 day"\nlower = 0\nupper = 50'),
    "average wait": ("AVG(wait)", 'epsilon = 1.0\nwindow = "1 day"\nlower = 0\nupper = 60'),
    "slowest of twenty": ("QUANTILE_CONT(wait, 0.95)", 'epsilon = 1.0\nwindow = "1 day"\nlower = 0\nupper = 60'),
    "longest wait": ("MAX(wait)", "epsilon = 1.0\nlower = 0\nupper = 60"),
    "orders a week": ("COUNT(*) FILTER (WHERE amount > 0)", 'epsilon = 0.5\nwindow = "7 days"'),
    "visitors so far": ("COUNT(DISTINCT user)", "epsilon = 0.05\nexpected = 500\nreleases = 3"),
}
_GROUPED = {
    "views by device": ("device", ["phone", "laptop", "tablet"]),
    "views by page": ("page", PAGES),
}

NAMES = """
[stream]
name = "shop"
time = "at"
max_ahead = "any"
columns = { at = "timestamp", page = "string" }

[[query]]
name = "popular pages"
sql = "SELECT page, COUNT(*) FROM shop GROUP BY page ORDER BY COUNT(*) DESC LIMIT 20"
epsilon = 4.0
delta = 1e-6
window = "1 day"
max_item_bytes = 16
"""


def config() -> str:
    """Return the configuration."""
    text = [
        '[stream]\nname = "shop"\nuser = "user"\ntime = "at"\nmax_ahead = "any"',
        'columns = { user = "string", at = "timestamp", page = "string", device = "string", amount = "double", '
        'wait = "double" }',
    ]
    for name, (aggregate, settings) in _QUESTIONS.items():
        text.append(f'[[query]]\nname = "{name}"\nsql = "SELECT {aggregate} FROM shop"\n{settings}')
    for name, (key, groups) in _GROUPED.items():
        sql = f"SELECT {key}, COUNT(*) FROM shop GROUP BY {key}"
        text.append(
            f'[[query]]\nname = "{name}"\nsql = "{sql}"\nepsilon = 1.0\nwindow = "1 day"\n'
            f"groups = {{ {key} = {groups} }}"
        )
    return "\n\n".join([*text, '[store]\nstep = "none"'])


def fill(server: Serving, *, days: int = DAYS) -> None:
    """Send so many days, busier from day to day, and ask what answers when asked."""
    draw = random.Random(7)
    rows = ["user,at,page,device,amount,wait"]
    for day in range(days):
        for place in range(500 + 12 * day + round(150 * math.sin(day * 2 * math.pi / 7))):
            at = BEGIN + timedelta(days=day, seconds=place * 60)
            page = PAGES[min(int(draw.expovariate(0.4)), len(PAGES) - 1)]
            device = draw.choices(["phone", "laptop", "tablet"], [6, 3, 1])[0]
            amount = 10 * draw.random() if draw.random() < 0.3 else 0
            rows.append(
                f"u{draw.randrange(3000)},{at:%Y-%m-%d %H:%M:%S},{page},{device},{amount:.2f},{draw.random() * 40:.2f}"
            )
    rows.append(f"last,{BEGIN + timedelta(days=days):%Y-%m-%d %H:%M:%S},/,phone,0,1")
    server.ask("POST", "/v1/streams/shop/events", "\n".join(rows).encode(), Content_Type="text/csv")
    for name in ("longest%20wait", "visitors%20so%20far"):
        server.ask("POST", f"/v1/queries/{name}/release", b"")


def fill_names(server: Serving) -> None:
    """Send two days of pages, each half as often as the one before."""
    rows = ["at,page"]
    for day in range(2):
        rows += [
            f"{BEGIN + timedelta(days=day):%Y-%m-%d},{page}" for i, page in enumerate(PAGES) for _ in range(6400 >> i)
        ]
    rows.append(f"{BEGIN + timedelta(days=2):%Y-%m-%d},/")
    server.ask("POST", "/v1/streams/shop/events", "\n".join(rows).encode(), Content_Type="text/csv")
