r"""Escape untrusted texts, such as names of pages, for the terminal, CSV, Markdown and HTML.

Everywhere, characters that are invisible or change the order of others (controls, terminal escapes, U+202E and such)
are written as ``\x1b`` or ``\u202e``. JSON and Parquet hold the exact text and need none of this.
"""

from __future__ import annotations

import html
import re
import unicodedata

# Spreadsheets evaluate cells that begin so, also in full width; an apostrophe of the text must differ from ours.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "'")
_MARKDOWN = re.compile(r"[\\`*_\[\]|~]")


def printable(text: str) -> str:
    r"""Return a text without terminal control sequences.

    >>> printable("/über\x1b[2J")
    '/über\\x1b[2J'
    """
    return "".join(sign if _is_seen(sign) else sign.encode("unicode_escape").decode() for sign in text)


def _is_seen(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"  # spaces of other widths


def printable_lines(text: str) -> str:
    """Return a text of several lines without other terminal control sequences."""
    return "\n".join(map(printable, text.split("\n")))


def csv_text(text: str) -> str:
    r"""Return a text for a cell of CSV, from which it can be read back: drop one apostrophe at the beginning, then read
    ``\\`` as a backslash and ``\t``, ``\n``, ``\r``, ``\xNN``, ``\uNNNN`` and ``\UNNNNNNNN`` as in Python.

    >>> print(csv_text("=1+1"), csv_text("C:\\tmp\t"))
    '=1+1 C:\\tmp\t
    """
    escaped = printable(text.replace("\\", "\\\\"))
    return f"'{escaped}" if escaped.lstrip(" ").startswith(_FORMULA) else escaped


def markdown_text(text: str) -> str:
    """Return a text for a cell of a Markdown table, without markup.

    >>> print(markdown_text("<b>|*x*"))
    &lt;b&gt;\\|\\*x\\*
    """
    return _MARKDOWN.sub(r"\\\g<0>", html.escape(printable(text), quote=False))


def html_text(text: str) -> str:
    """Return a text for an HTML page, without markup, in an element or an attribute.

    >>> html_text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(printable(text))
