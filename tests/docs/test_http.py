"""The page about the HTTP interface is made from its description, and the description has everything the server
answers.
"""

import re
import runpy
from pathlib import Path

from panstream.server.auth import SCOPES
from panstream.server.errors import CODES
from panstream.server.http.openapi import describe

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_page_is_up_to_date() -> None:
    """Run ``python docs/reference/http_page.py`` after changing the interface."""
    names = runpy.run_path(str(REFERENCE / "http_page.py"))
    assert (REFERENCE / "http.md").read_text() == names["page"]()


def test_page_names_every_route_code_and_scope() -> None:
    text = (REFERENCE / "http.md").read_text()
    assert all(
        f"{method.upper()} {path}" in text for path, methods in describe()["paths"].items() for method in methods
    )
    assert all(f"| `{code}` | {status} |" in text for code, (status, _) in CODES.items())
    assert all(f"`{scope}`" in text for scope in SCOPES)


def test_every_route_is_described() -> None:
    """A route that the application has and the description lacks would never be fuzzed."""
    from panstream.server.dashboard import _assets
    from panstream.server.http import app

    source = Path(app.__file__).read_text()
    routed = set(re.findall(r'\broute\(\s*"([^"]+)"', source))
    assert routed == set(describe()["paths"])
    assert not set(_assets()) & routed
