"""The browser that tests look at pages with."""

import shutil

from playwright.sync_api import Browser, Playwright

# Without windows it needs a third less processor time; where that package is missing, the whole browser does.
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
