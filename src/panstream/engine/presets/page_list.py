"""A public list of pages, from a sitemap or a text file."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit
from xml.parsers import expat

from panstream.engine.config.website import normalize_hostname
from panstream.errors import InvalidParameter, translate_errors

_MAX_BYTES = 50 << 20  # of a sitemap, by sitemaps.org
_MAX_PAGES = 50_000  # the same
_MAX_ASKED = 5_000  # groups of one question
_MAX_PATH = 1_024  # characters


def read_pages(path: Path, site: str) -> tuple[str, ...]:
    """Return the paths of a site's pages, sorted and without duplicates.

    A file that begins with ``<`` is a sitemap: its ``loc`` elements are read. Documents with a DOCTYPE are refused, so
    no entity is expanded and nothing else is opened. Other files have a path or an address on each line.

    Args:
        path: The file, such as sitemap.xml.
        site: Host name of the site; addresses of other hosts are refused.

    Raises:
        InvalidParameter: The file cannot be read, is too large, or has something that is not a page of the site.
    """

    def refused(error: Exception) -> InvalidParameter:
        return InvalidParameter(f"{path.name} cannot be read: {getattr(error, 'strerror', None) or error}")

    with translate_errors(lambda: path.open("rb"), OSError, refused) as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidParameter(f"{path.name} has more than {_MAX_BYTES >> 20} MiB")
    is_xml = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    lines = _locations(data, path.name) if is_xml else _lines(data, path.name)
    pages = sorted({_page(line, number, path.name, normalize_hostname(site)) for number, line in enumerate(lines, 1)})
    if not pages:
        raise InvalidParameter(f"{path.name} has no pages")
    if len(pages) > _MAX_ASKED:
        raise InvalidParameter(
            f"{path.name} has {len(pages):,} different pages, and {_MAX_ASKED:,} can be counted: list the ones that "
            "matter, or leave --pages out and have names found"
        )
    return tuple(pages)


def _lines(data: bytes, name: str) -> list[str]:
    text = translate_errors(
        lambda: data.decode("utf-8-sig"), UnicodeDecodeError, lambda _: InvalidParameter(f"{name} is not UTF-8")
    )
    lines = [line.strip() for line in text.splitlines()]
    return _limited([line for line in lines if line and not line.startswith("#")], name)


def _locations(data: bytes, name: str) -> list[str]:
    """Return the texts of all ``loc`` elements of pages."""
    locations: list[str] = []
    stack: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def doctype(*_: object) -> None:
        raise InvalidParameter(f"{name} has a DOCTYPE, which a sitemap does not need")

    def start(tag: str, _: dict[str, str]) -> None:
        stack.append(tag.rpartition(" ")[2])
        if stack[0] == "sitemapindex":
            raise InvalidParameter(
                f"{name} is a list of sitemaps: give one of these, or join their pages in a text file"
            )
        if stack[-2:] == ["url", "loc"]:
            locations.append("")
            _limited(locations, name)

    def text(more: str) -> None:
        if stack[-2:] == ["url", "loc"]:
            locations[-1] += more

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = text
    translate_errors(
        lambda: parser.Parse(data, True),
        expat.ExpatError,
        lambda error: InvalidParameter(f"{name} is not well-formed XML: {error}"),
    )
    return [location.strip() for location in locations]


def _limited(paths: list[str], name: str) -> list[str]:
    if len(paths) > _MAX_PAGES:
        raise InvalidParameter(f"{name} has more than {_MAX_PAGES:,} pages")
    return paths


def _page(text: str, number: int, name: str, site: str) -> str:
    """Return the path of a page as beacons have it: without host, query and fragment."""
    where = f"{name}: page {number:,}"
    if len(text) > _MAX_PATH:
        raise InvalidParameter(f"{where} has more than {_MAX_PATH:,} characters")
    if text.startswith("/"):
        host = site
        path = text
    else:
        parts = translate_errors(
            lambda: urlsplit(text), ValueError, lambda _: InvalidParameter(f"{where} is not an address")
        )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidParameter(f"{where} must be a path that begins with / or an address with http:// or https://")
        host = parts.hostname
        path = text.split("/", 3)[3] if text.count("/") > 2 else ""
        path = f"/{path}"
    if host.lower().removeprefix("www.") != site:
        raise InvalidParameter(f"{where} is on another host than {site}")
    return re.split(r"[?#]", path, maxsplit=1)[0]
