"""Simulated visitors of a site, many of whom come back: the rows that their browsers would send, hour by hour.

Nothing in it is about anyone. Used by site_demo.py and by benchmarks/accuracy/web.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from panstream.engine.config.website import MADE
from panstream.engine.sources.formats.beacons import SOURCES, derived_column

PAGES = ["/", "/blog/hello", "/blog/privacy", "/docs/start", "/docs/api", "/shop/shirt", "/shop/mug", "/about", "/jobs"]
SHARES = [0.24, 0.16, 0.12, 0.12, 0.08, 0.08, 0.06, 0.08, 0.06]
REFERRERS = ["", "https://search.example/", "https://news.example/item", "https://social.example/post"]
REFERRED = [0.4, 0.35, 0.15, 0.1]
LANGUAGES = ["en-US", "de-DE", "fr-FR", "en-GB", "es-ES", "pt-BR", "ja-JP", "de-AT"]
SPEAKERS = [0.35, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04]
AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0",
    "Mozilla/5.0 (Windows NT 10.0) Chrome/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5) Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 14) Chrome/128.0 Mobile Safari/537.36",
    "Mozilla/5.0 (iPad; CPU OS 17_5) Safari/604.1",
]
HOLDERS = [0.2, 0.3, 0.2, 0.24, 0.06]
BUSY = 1 + 0.8 * np.sin((np.arange(24) - 8) / 24 * 2 * np.pi)  # hours of the day


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """The beacons of one hour."""

    start: float  # seconds since 1970
    rows: pa.RecordBatch


def traffic(site: str, *, days: int, visitors: int, until: float, seed: int = 1) -> Iterator[Hour]:
    """Yield the hours of some days up to a midnight: about ``visitors`` a day, a third of them regulars, a third who
    come back now and then, and a third who come once.
    """
    rng = np.random.default_rng(seed)
    regulars = round(visitors / 3 / 0.5)
    others = round(visitors / 3 / 0.08)
    habits = np.r_[np.full(regulars, 0.5), np.full(others, 0.08)]
    once = habits.size
    for day in range(days):
        new = np.arange(once, once + round(visitors / 3))
        once += new.size
        people = np.r_[np.flatnonzero(rng.random(habits.size) < habits), new]
        hours = rng.choice(24, people.size, p=BUSY / BUSY.sum())
        for hour in range(24):
            start = until - (days - day) * 86400.0 + hour * 3600.0
            yield Hour(start=start, rows=_rows(site, people[hours == hour], rng))


def _rows(site: str, people: np.ndarray, rng: np.random.Generator) -> pa.RecordBatch:
    """Return the page views of some people's visits, with their load times, a few errors and sign-ups."""
    views = rng.geometric(1 / 3, people.size)
    who = np.repeat(people, views)
    first = np.zeros(who.size, bool)
    first[np.cumsum(views) - views] = True
    pages = np.array(PAGES)[rng.choice(len(PAGES), who.size, p=SHARES)]
    came = np.array(REFERRERS)[rng.choice(len(REFERRERS), who.size, p=REFERRED)]
    campaign = np.where(first & (rng.random(who.size) < 0.1), "?utm_campaign=spring&utm_source=newsletter", "")
    url = np.char.add(pages, campaign)
    referrer = np.where(first, came, f"https://{site}/")
    loads = np.minimum(rng.lognormal(6.7, 0.6, who.size), 60_000.0)
    errors = who[rng.random(who.size) < 0.01]
    signs = who[rng.random(who.size) < 0.05]
    everybody = np.r_[who, who, errors, signs]
    count = everybody.size
    event = np.repeat(["view", "load", "error", "signup"], [who.size, who.size, errors.size, signs.size])
    value = np.r_[np.full(who.size, np.nan), loads, np.full(errors.size + signs.size, np.nan)]
    filled = count - 2 * who.size
    sent = {
        "url": np.r_[url, url, np.full(filled, "/")],
        "referrer": np.r_[referrer, referrer, np.full(filled, "")],
        "language": np.array(LANGUAGES)[_trait(everybody, SPEAKERS, 1)],
        "agent": np.array(AGENTS)[_trait(everybody, HOLDERS, 2)],
    }
    texts = {name: pa.array(values) for name, values in sent.items()}
    columns = {"visitor": pa.array(everybody.astype(np.int64)), "event": pa.array(event)}
    columns |= {name: derived_column(name, texts[SOURCES[name]], site) for name in MADE}
    return pa.RecordBatch.from_pydict(columns | {"value": pa.array(value, mask=np.isnan(value))})


def _trait(people: np.ndarray, shares: list[float], salt: int) -> np.ndarray:
    """Return something that stays the same for everybody, with the given shares among people."""
    spread = (people * 2654435761 + salt * 40503) % 1_000_003 / 1_000_003
    return np.minimum(np.searchsorted(np.cumsum(shares), spread), len(shares) - 1)


def last_midnight(time_zone: str) -> float:
    """Return when today began in a time zone."""
    now = datetime.now(ZoneInfo(time_zone))
    return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
