"""The browser for tests of pages."""

import shutil

from playwright.sync_api import Browser, Playwright

# The headless shell needs a third less processor time; without that package the full browser is used.
PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def launched(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=PROGRAM, headless=True, args=FLAGS)
