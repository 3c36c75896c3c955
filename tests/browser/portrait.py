"""Take the picture of the dashboard that the README shows: ``PYTHONPATH=. python tests/browser/portrait.py``."""

import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import TIMEOUT
from tests.browser.serving import serving
from tests.browser.shop import config, fill
from tests.chromium import launched

TARGET = Path(__file__).parents[2] / "docs" / "pictures" / "dashboard.png"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), config=config()) as server:
        fill(server)
        with sync_playwright() as playwright:
            browser = launched(playwright)
            page = browser.new_page(
                viewport={"width": 1120, "height": 700}, color_scheme="light", device_scale_factor=1.5
            )
            page.goto(f"{server.address}/#/overview?period=week")
            expect(page.locator("#status")).to_have_text("Live", timeout=TIMEOUT)
            page.mouse.move(5, 5)
            page.evaluate("document.fonts.ready")
            page.screenshot(path=TARGET)
            browser.close()


if __name__ == "__main__":
    main()
