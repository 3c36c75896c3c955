"""Formulas become MathML when the site is built, so that pages need no script and nothing from elsewhere."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def mathml(match: re.Match[str]) -> str:
    """Return one formula as MathML."""
    display = "block" if match[2] == "[" else "inline"
    return convert(html.unescape(match[3]), display=display)


def on_page_content(content: str, **_: Any) -> str:
    """Replace the formulas of a page; called by mkdocs."""
    return FORMULA.sub(mathml, content)
