"""Lists of pages are parsed with limits, and nothing in them is opened or expanded."""

from pathlib import Path

import pytest

from panstream.engine.presets import page_list
from panstream.engine.presets.page_list import read_pages
from panstream.errors import InvalidParameter

URLS = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url><loc>https://www.example.org/</loc><lastmod>2026-01-01</lastmod></url>
  <url><loc>
    https://example.org/blog/a?b=1&amp;c=2#d </loc><image:image><image:loc>https://cdn.example/x.png</image:loc></image:image></url>
  <url><loc>https://example.org</loc></url>
  <url><loc>http://EXAMPLE.org/f%C3%BCr</loc></url>
</urlset>"""


def written(folder: Path, text: str | bytes, name: str = "pages") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_sitemap_is_read_as_beacons_name_pages(tmp_path: Path) -> None:
    assert read_pages(written(tmp_path, URLS), "www.example.org") == ("/", "/blog/a", "/f%C3%BCr")
    assert read_pages(written(tmp_path, "\ufeff" + URLS), "example.org") == ("/", "/blog/a", "/f%C3%BCr")


def test_a_text_file_has_one_page_on_each_line(tmp_path: Path) -> None:
    text = "# pages\n/b\n\n  /a \nhttps://example.org/c?x\n/b\n"
    assert read_pages(written(tmp_path, text), "example.org") == ("/a", "/b", "/c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no pages"),
        ("<urlset></urlset>", "has no pages"),
        ("<urlset><url><loc>/a</loc></url>", "not well-formed XML"),
        ("<sitemapindex><sitemap><loc>https://example.org/s.xml</loc></sitemap></sitemapindex>", "list of sitemaps"),
        ("/a\nb\n", "pages: page 2 must be a path"),
        ("ftp://example.org/a", "page 1 must be a path"),
        ("https://other.example/a", "page 1 is on another host than example.org"),
        ("https://[/a", "page 1 is not an address"),
        ("/" + "a" * 2000, "page 1 has more than 1,024 characters"),
        (b"/\xff", "is not UTF-8"),
    ],
)
def test_what_is_no_list_is_refused(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=message) as refused:
        read_pages(written(tmp_path, text), "example.org")
    assert "other.example" not in str(refused.value), "messages do not repeat what the file holds"


def test_no_entity_is_expanded_and_no_file_is_opened(tmp_path: Path) -> None:
    secret = written(tmp_path, "secret", "secret")
    attacks = (
        f'<!DOCTYPE u [<!ENTITY x SYSTEM "{secret.as_uri()}">]><urlset><url><loc>/&x;</loc></url></urlset>',
        '<!DOCTYPE u [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><urlset><url><loc>/&b;</loc></url></urlset>',
        '<!DOCTYPE u SYSTEM "http://192.0.2.1/u.dtd"><urlset><url><loc>/</loc></url></urlset>',
    )
    for attack in attacks:
        with pytest.raises(InvalidParameter, match="has a DOCTYPE"):
            read_pages(written(tmp_path, attack), "example.org")
    with pytest.raises(InvalidParameter, match="not well-formed"):
        read_pages(written(tmp_path, "<urlset><url><loc>/&x;</loc></url></urlset>"), "example.org")


def test_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "".join(f"/{number}\n" for number in range(5_001))
    with pytest.raises(InvalidParameter, match="5,001 different pages, and 5,000 can be counted"):
        read_pages(written(tmp_path, many), "example.org")
    monkeypatch.setattr(page_list, "_MAX_PAGES", 3)
    for text in ("/a\n" * 4, "<urlset>" + "<url><loc>/a</loc></url>" * 4 + "</urlset>"):
        with pytest.raises(InvalidParameter, match="more than 3 pages"):
            read_pages(written(tmp_path, text), "example.org")
    monkeypatch.setattr(page_list, "_MAX_BYTES", 1 << 20)
    with pytest.raises(InvalidParameter, match="more than 1 MiB"):
        read_pages(written(tmp_path, b"/" * ((1 << 20) + 1)), "example.org")
    with pytest.raises(InvalidParameter, match="cannot be read: No such file"):
        read_pages(tmp_path / "none", "example.org")
