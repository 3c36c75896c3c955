"""The report about a synthetic table on a screen: nothing is wider than it, and nothing is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import photograph
from tests.cli.running import run


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_report_fits_the_screen(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    table = tmp_path / "patients.csv"
    table.write_text("sex,stay\n" + "".join(f"{'fm'[row % 2]},{1 + row % 7}\n" for row in range(2000)))
    domain = tmp_path / "domain.toml"
    domain.write_text('sex = ["f", "m"]\nstay = { type = "integer", minimum = 1, maximum = 14 }\n')
    model = tmp_path / "model.json"
    run("synth", "fit", table, "--domain", domain, "--epsilon", 2, "--method", "tree", "--out", model, "--no-ledger")
    run("synth", "report", model, "--out", tmp_path / "report.html")
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"file://{tmp_path}/report.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.get_by_text("Numbers", exact=True).first.click()
    assert page.locator("details[open] td").first.inner_text() == "f"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(19, 21, 23)" if scheme == "dark" else "rgb(251, 250, 247)")
    photograph(page, f"synth-report-{width}")
    page.close()
