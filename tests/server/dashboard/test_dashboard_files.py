"""The page's files as they are served: nothing but what is in the package, under a policy without exceptions."""

import asyncio
import re
from pathlib import Path

import httpx
from starlette.applications import Starlette

from panstream.server import dashboard

STATIC = Path(dashboard.__file__).parent / "static"
APP = Starlette(routes=dashboard.routes())
OWN = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html") and "vendor" not in path.parts]


def ask(path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app=APP)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(answer())


def test_policy_lets_in_this_server_only() -> None:
    for path in dashboard._assets():
        policy = ask(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"unsafe|http|data:|blob:|\*", policy)


def test_files_refer_to_nothing_elsewhere() -> None:
    for path in OWN:
        found = re.findall(r"https?://[^\s\"'`)]+", path.read_text())
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path.name


def test_page_has_no_inline_script_or_style() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)
    for path in OWN:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        )


def test_files_can_be_read_in_one_sitting() -> None:
    for path in OWN:
        lines = path.read_text().splitlines()
        assert len(lines) <= 300, path.name
        assert [number for number, line in enumerate(lines, start=1) if len(line) > 120] == [], path.name


def test_every_file_that_is_named_is_served() -> None:
    served = dashboard._assets()
    page = (STATIC / "index.html").read_text()
    for name in re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page):
        assert f"/{name}" in served
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert f"/dashboard/{name}" in served
    for name in re.findall(r"url\(([^)]+)\)", (STATIC / "style.css").read_text()):
        assert f"/dashboard/{name}" in served


def test_only_files_of_the_package_are_served() -> None:
    for path in (
        "/dashboard/",
        "/dashboard/../__init__.py",
        "/dashboard/%2e%2e/__init__.py",
        "/dashboard/index.html",
        "/etc/passwd",
    ):
        assert ask(path).status_code == 404
    assert ask("/", "POST").status_code == 405
    assert ask("/", "HEAD").status_code == 200


def test_unchanged_files_are_not_sent_again() -> None:
    first = ask("/dashboard/app.js")
    again = ask("/dashboard/app.js", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_vendored_files_have_their_licences() -> None:
    sources = (STATIC / "vendor" / "SOURCES.txt").read_text()
    for path in (STATIC / "vendor").iterdir():
        if path.suffix != ".txt":
            assert path.name in sources or ("inter-*.woff2" in sources and path.name.startswith("inter-"))
    for name in re.findall(r"\w+\.LICENSE\.txt", sources):
        assert (STATIC / "vendor" / name).exists()
    size = sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file())
    assert size < 300_000, "the whole page, fonts included"
