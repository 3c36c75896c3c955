"""Reports of published answers: sums with their joint noise, comparisons, lists, and what strangers may write there."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from panstream.algorithms.continual.noise_sum_tails import half_width, half_width_of_sum, laplace_at_rate
from panstream.cli.app import app
from panstream.engine.config.config import load_config
from panstream.engine.reporting.period_report import ReportedQuery, make_report, sum_answers
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources.formats.arrow_columns import from_arrow
from panstream.errors import InvalidParameter
from tests.server.server_live import served

DAY = timedelta(days=1)
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
VIEWS = ReportedQuery(name="page views per day", series=("page views per day",), additive=True)
PAGES = ReportedQuery(name="pages", series=("pages",), additive=True)


def answer(number: int, value: float, error: float, series: str = VIEWS.name, **more: Any) -> dict[str, Any]:
    window = [(BEGIN + k * DAY).isoformat() for k in (number, number + 1)]
    interval = [value - 2 * error, value + 2 * error]
    return {
        "series": series,
        "window": window,
        "end": window[1],
        "value": value,
        "unclipped": value,
        "standard_error": error,
        "interval": interval,
        **more,
    }


@pytest.mark.parametrize("scales", [[1.0], [3.0] * 7, [5.0, 1.0, 1.0], [9.0] + [1.0] * 6, [2.0, 3.0, 4.0, 5.0] * 6])
def test_intervals_of_sums_cover_by_exact_convolution(scales: Sequence[float]) -> None:
    """The sum of discrete Laplace draws, two of each scale as in a count, is inside with at least 95%."""
    reach = 4000
    total = np.zeros(2 * reach + 1)
    total[reach] = 1.0
    at = np.fft.rfftfreq(2 * reach + 1)
    characteristic = np.ones(at.size)
    variances = []
    for scale in scales:
        kappa = 1.0 / scale
        characteristic *= ((np.cosh(kappa) - 1.0) / (np.cosh(kappa) - np.cos(2 * np.pi * at))) ** 2
        variances.append(2 * laplace_at_rate(kappa).variance)
    mass = np.fft.fftshift(np.fft.irfft(characteristic, 2 * reach + 1))
    half = half_width_of_sum(0.95, [variance**0.5 for variance in variances])
    middle = reach
    inside = mass[middle - int(half) : middle + int(half) + 1].sum()
    assert inside >= 0.95 - 1e-9
    assert inside <= 0.98, "and it is not much wider than it has to be"
    if len(set(scales)) == 1:
        assert half >= half_width(0.95, [(2 * len(scales), laplace_at_rate(1 / scales[0]))]) - 1e-9


def test_what_adds_up_is_summed_and_compared() -> None:
    days = [answer(day, 100.0 if day < 7 else 200.0, 3.0) for day in range(14)]
    text = make_report("example.org", [VIEWS], days).to_markdown()
    assert "# example.org: 8 Mar 2026 to 14 Mar 2026" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| page views")]
    half = half_width_of_sum(0.95, [3.0] * 7)
    assert (
        row
        == f"| page views | 1,400 | {1400 - half:,.0f} to {1400 + half:,.0f} | 8 Mar 2026 to 14 Mar 2026 | +100.0% |"
    )
    alike = make_report("example.org", [VIEWS], [answer(day, 100.0 + day % 2, 3.0) for day in range(14)])
    assert "no clear change" in alike.to_markdown()
    gap = make_report("example.org", [VIEWS], [each for each in days if each["window"][0][8:10] != "10"])
    assert "1 answers of these days are missing" in gap.to_markdown()
    earlier = make_report("example.org", [VIEWS], days, period="day", until=date(2026, 3, 7))
    assert "7 Mar 2026" in earlier.title
    with pytest.raises(InvalidParameter, match="nothing to report yet"):
        make_report("example.org", [VIEWS], [])


def test_answers_within_a_window_are_not_added() -> None:
    """A question with every answers several times about one day: only the last one is whole."""
    day = answer(0, 100.0, 1.0)
    part = {**day, "end": (BEGIN + DAY / 2).isoformat(), "value": 50.0, "unclipped": 50.0}
    text = make_report("x", [VIEWS], [part, day], period="day").to_markdown()
    assert "| 100 |" in text
    total = sum_answers([day], BEGIN, BEGIN + DAY)
    assert total is not None
    assert total.value == 100.0


def test_names_of_strangers_are_shown_as_they_are() -> None:
    name = "/a|b![x](https://evil.example/x.png)<img src=x>\x1b[2J"
    items = [{"name": name, "count": 70.0, "interval": [60.0, 80.0]}]
    made = make_report(
        "example.org", [VIEWS, PAGES], [answer(0, 9.0, 1.0), answer(0, 0.0, 1.0, "pages", items=items)], period="day"
    )
    text = made.to_markdown()
    assert "![" not in text
    assert not re.search(r"(?<!\\)(<|!|\[)", text.split("---:")[-1])
    assert "\x1b" not in text
    message = email.message_from_bytes(made.to_mail("owner@example.org"), policy=email.policy.default)
    html = message.get_body(("html",))
    assert html is not None
    assert "<img" not in html.get_content()
    assert message["To"] == "owner@example.org"


CONFIG = """
[stream]
name = "orders"
time_zone = "Europe/Berlin"
[stream.columns]
shop = "string"
[[query]]
name = "orders per day"
sql = "SELECT COUNT(*) FROM orders"
epsilon = 100.0
window = "day"
[[query]]
name = "shops"
sql = "SELECT shop, COUNT(*) FROM orders GROUP BY shop"
epsilon = 100.0
window = "day"
groups = { shop = ["north", "south"] }
[store]
directory = "state"
"""


def test_a_store_and_its_server_give_the_same_report(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "panstream.toml"
    path.write_text(CONFIG)
    config = load_config(path)
    now = BEGIN.timestamp()
    rows = pa.RecordBatch.from_pydict({"shop": ["north"] * 30 + ["south"] * 10})
    schema = RowSchema.of(config.stream, config.needed_columns)
    with Engine(config, clock=lambda: now, elapsed=lambda: now) as engine, Selector(config) as select:
        for _ in range(8 * 24):
            engine.apply(select(from_arrow(rows, schema, label="test")), commit=False)
            now += 3600.0
            engine.advance()
    stored = CliRunner().invoke(app, ["report", str(path)])
    assert stored.exit_code == 0, stored.output
    assert "| orders | 6,720 |" in stored.output
    assert "| north | 720 |" in stored.output
    with served(config) as live:
        asked = CliRunner().invoke(app, ["report", f"http://127.0.0.1:{live.port}"])
    assert asked.output == stored.output
    for arguments in (["--period", "year"], ["--mail", "nobody"], ["--until", "yesterday"]):
        assert CliRunner().invoke(app, ["report", str(path), *arguments]).exit_code == 2
