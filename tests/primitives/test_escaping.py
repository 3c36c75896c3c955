"""Untrusted texts: no terminal, spreadsheet or browser acts on them, and CSV can be read back."""

import csv
import io
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from panstream.primitives.escaping import csv_text, html_text, markdown_text, printable, printable_lines

TEXTS = st.text(st.characters(codec=None), max_size=20)
NASTY = [
    "=cmd|' /C calc'!A0",
    "\x1b]0;x\x07",
    "\u202ecod.exe",
    "\t=1",
    "\r@x",
    "'quoted",
    "  +1",
    "＝1",
    "a\\b\\x1b",
    "\ud800",
]
ESCAPE = re.compile(r"\\(\\|[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
CONTROLS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def read_back(cell: str) -> str:
    """Undo ``csv_text`` as the documentation describes it."""
    named = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
    return ESCAPE.sub(lambda found: named.get(found[1]) or chr(int(found[1][1:], 16)), cell.removeprefix("'"))


@given(TEXTS)
@example("")
def test_nothing_invisible_is_left_in_any_form(text: str) -> None:
    for escape in (printable, csv_text, markdown_text, html_text):
        assert not [sign for sign in escape(text) if unicodedata.category(sign) in CONTROLS]
    assert printable_lines(f"{text}\n{text}").count("\n") == 1 + 2 * text.count("\n")


@pytest.mark.parametrize("text", NASTY)
def test_nasty_cells_are_read_back(text: str) -> None:
    assert read_back(csv_text(text)) == text


@given(TEXTS | st.sampled_from(NASTY))
def test_a_cell_is_no_formula_and_can_be_read_back(text: str) -> None:
    out = io.StringIO()
    csv.writer(out).writerow([csv_text(text), "next"])
    cell = next(csv.reader(io.StringIO(out.getvalue(), newline="")))[0]
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"))
    assert read_back(cell) == text


@given(TEXTS | st.text("<>&\"'ab/=", max_size=20))
def test_html_has_no_markup(text: str) -> None:
    tags: list[str] = []
    words: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            words.extend(value or "" for _, value in attrs)

        def handle_data(self, data: str) -> None:
            words.append(data)

    reader = Reader()
    reader.feed(f'<p title="{html_text(text)}">{html_text(text)}</p>')
    reader.close()
    assert tags == ["p"]
    assert words[0] == "".join(words[1:]) == printable(text)


@given(TEXTS | st.text("<>&|\\`*_[]()!~ab", max_size=20))
def test_markdown_has_no_markup(text: str) -> None:
    from markdown_it import MarkdownIt

    cell = markdown_text(text)
    page = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .render(f"| a | b |\n| --- | --- |\n| x{cell}x | y |\n")
    )
    rows = re.findall("<td>(.*?)</td>", page, re.DOTALL)
    assert len(rows) == 2
    assert not re.search("<(?!/?td)", rows[0])
