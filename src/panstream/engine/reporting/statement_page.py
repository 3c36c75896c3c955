"""HTML template, style sheet and elements of ``panstream statement``, for screens, light and dark, and for print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from panstream.primitives.escaping import html_text

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Privacy statement: {stream}</title>
<style>
:root {{ color-scheme: light dark; --paper: #faf9f6; --ink: #1c1e22; --soft: #5b606a; --line: #e5e2db;
  --accent: #0b6e69; --wash: #eaf3f1 }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ --paper: #131517; --ink: #ebe8e2; --soft: #a2a6ad;
  --line: #2d3136; --accent: #63c7bd; --wash: #1d2b2b }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem;
  color: var(--ink); background: var(--paper); overflow-wrap: anywhere }}
h1, h2 {{ font-family: Georgia, serif; font-weight: 500; line-height: 1.2; margin: 0 }}
h1 {{ font-size: 2.1rem }}
h2 {{ font-size: 1.3rem; margin-top: 2rem; color: var(--accent); break-after: avoid }}
p {{ margin: .6rem 0 0 }} header p {{ color: var(--soft); font-size: .88rem }}
ul {{ margin: .6rem 0 0; padding-left: 1.2rem }} li + li {{ margin-top: .3rem }}
section:first-of-type {{ background: var(--wash); border-radius: 12px; padding: 1.1rem 1.4rem; margin-top: 1.5rem }}
section:first-of-type h2 {{ margin: 0 }}
table {{ border-collapse: collapse; width: 100%; margin-top: .8rem; font-size: .88rem;
  font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word }}
th {{ color: var(--soft); font-weight: 400 }} tr {{ break-inside: avoid }} td:first-child {{ font-weight: 500 }}
code {{ font: .92em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }}
@media screen and (max-width: 40rem) {{
  thead {{ display: none }} tr, td {{ display: block }} tr {{ padding: .5rem 0; border-bottom: 1px solid var(--line) }}
  td {{ border: 0; padding: .1rem 0 }} td:empty {{ display: none }}
  td:not(:first-child)::before {{ content: attr(data-of) ": "; color: var(--soft) }}
}}
td:first-child code {{ overflow-wrap: normal }} .gap {{ color: var(--soft) }}
@page {{ size: A4; margin: 9mm 12mm }}
@media print {{
  :root {{ color-scheme: light; --paper: #fff }}
  body {{ font-size: 7.9pt; line-height: 1.22; max-width: none; padding: 0 }}
  h1 {{ font-size: 19pt }} h2 {{ font-size: 11pt; margin-top: 5pt }} p, ul {{ margin-top: 2pt }}
  header p {{ font-size: 7.8pt }}
  li + li {{ margin-top: 1.5pt }} table {{ margin-top: 2pt; font-size: 7.4pt }} th, td {{ padding: 1.1pt 7pt 1.1pt 0 }}
  section:first-of-type {{ padding: 0; margin-top: 9pt; background: none }}
}}
</style></head>
<body><header><h1>Privacy statement: {stream}</h1><p>{made}</p></header><main>{body}</main></body></html>
"""


class _Markup(str):
    """Text that is HTML already and must not be escaped."""

    __slots__ = ()


def _escaped(text: str) -> str:
    return text if isinstance(text, _Markup) else html_text(text)


def code(text: str) -> str:
    """Return escaped text in a ``code`` element."""
    return _Markup(f"<code>{html_text(text)}</code>")


def gap() -> str:
    """Return the text that stands where the operator's own is missing."""
    return _Markup('<em class="gap">to be filled in by the operator</em>')


def paragraph(text: str) -> str:
    """Return escaped text in a ``p`` element."""
    return f"<p>{_escaped(text)}</p>"


def html_list(items: Iterable[str]) -> str:
    """Return escaped texts in a ``ul`` element."""
    return "<ul>" + "".join(f"<li>{_escaped(item)}</li>" for item in items) + "</ul>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells have their column's name as an attribute, for the layout of narrow screens."""
    body = "".join(
        "<tr>"
        + "".join(f'<td data-of="{html_text(of)}">{_escaped(cell)}</td>' for of, cell in zip(head, row, strict=True))
        + "</tr>"
        for row in rows
    )
    top = "".join(f"<th>{html_text(of)}</th>" for of in head)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
