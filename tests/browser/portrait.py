"""Take the picture of the dashboard that the README shows: ``PYTHONPATH=tests python tests/browser/portrait.py``."""

import math
import random
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from browser.conftest import FLAGS
from browser.serving import serving

TARGET = Path(__file__).parents[2] / "docs" / "pictures" / "dashboard.png"
CONFIG = """
[stream]
name = "clinic"
columns = { user = "string", page = "string", region = "string", wait = "double" }
user = "user"

[stream.budget]
event = 2.0

[[query]]
name = "visits by region"
sql = "SELECT region, COUNT(*) FROM clinic GROUP BY region"
epsilon = 0.5
every = "2 seconds"
horizon = 256
groups = { region = ["north", "south", "east", "west"] }

[[query]]
name = "people who took the self-test"
sql = "SELECT COUNT(DISTINCT user) FROM clinic WHERE page = 'self-test'"
epsilon = 1.0
memory = 6144
releases = 3
"""
TICKS = 30
SHARES = {"north": 0.35, "south": 0.25, "east": 0.12, "west": 0.28}


def main() -> None:
    draw = random.Random(5)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), config=CONFIG) as server:
        for tick in range(TICKS):
            rows = ["user,page,region,wait"]
            for _ in range(round(90 + 80 * math.sin(tick / 5))):
                region = draw.choices(list(SHARES), list(SHARES.values()))[0]
                rows.append(
                    f"user {draw.randrange(10_000)},{draw.choice(['self-test', 'home'])},{region},{draw.random()}"
                )
            text = "\n".join(rows).encode()
            server.ask("POST", "/v1/streams/clinic/events", text, Content_Type="text/csv")
            threading.Event().wait(2)
        server.ask("POST", "/v1/queries/people%20who%20took%20the%20self-test/release", b"")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=FLAGS)
            page = browser.new_page(
                viewport={"width": 1120, "height": 1180}, color_scheme="light", device_scale_factor=1.5
            )
            page.goto(server.address)
            expect(page.locator("#status")).to_have_text("Live", timeout=60_000)
            page.get_by_role("button", name="west").click()
            expect(page.locator(".uplot canvas").first).to_be_visible()
            page.mouse.move(5, 5)
            page.evaluate("document.fonts.ready")
            page.screenshot(path=TARGET)
            browser.close()


if __name__ == "__main__":
    main()
