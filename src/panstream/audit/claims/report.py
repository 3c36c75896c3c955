"""Findings as JSON, as a Markdown table, and as one self-contained HTML page."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence

from panstream.audit.claims.case import Finding

_WIDTH = 1000
_LEFT = 360
_ROW = 18
_CAP = 6.0  # losses beyond are drawn at the right edge


def format_loss(loss: float | None) -> str:
    """Return a loss with three decimals; ∞ and – for infinite and missing ones."""
    if loss is None:
        return "–"
    return "∞" if math.isinf(loss) else f"{loss:.3f}"


def to_json(findings: Sequence[Finding]) -> str:
    """Return a JSON list with one object per finding."""
    return json.dumps([finding.to_json() for finding in findings], indent=2, ensure_ascii=False)


def to_markdown(findings: Sequence[Finding]) -> str:
    """Return a Markdown table with one row per finding, as in the documentation."""
    lines = ["| case | claimed | exact | lower bound | verdict |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {one.name} | {format_loss(one.claimed)} | {format_loss(one.exact)} | {format_loss(one.lower_bound)} "
        f"| {one.verdict} |"
        for one in findings
    ]
    return "\n".join(lines)


def to_html(findings: Sequence[Finding]) -> str:
    """Return a self-contained page with a table and a plot of measured against claimed losses."""
    parts = []
    for kind, title in (("production", "What panstream ships"), ("control", "Known mistakes, which must be caught")):
        chosen = [one for one in findings if one.kind == kind]
        if chosen:
            parts.append(f"<h2>{title}</h2>{_plot(chosen)}{_table(chosen)}")
    attacks = [one for one in findings if one.advantage is not None]
    if attacks:
        parts.append(f"<h2>Attacks</h2><p>{_ATTACKS}</p>{_attacks(attacks)}")
    wrong = [one.name for one in findings if not one.is_expected]
    verdict = "Every claim held and every known mistake was caught." if not wrong else "Wrong: " + ", ".join(wrong)
    return _PAGE.format(count=len(findings), verdict=html.escape(verdict), body="".join(parts))


def _x(loss: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - 30) * min(loss, _CAP) / _CAP


def _plot(findings: Sequence[Finding]) -> str:
    height = _ROW * len(findings) + 40
    rows = []
    for tick in range(int(_CAP) + 1):
        label = f"{tick}" if tick < _CAP else f"{tick} or more"
        rows.append(
            f'<line x1="{_x(tick):.1f}" x2="{_x(tick):.1f}" y1="20" y2="{height - 15}" class="grid"/>'
            f'<text x="{_x(tick):.1f}" y="14" text-anchor="middle">{label}</text>'
        )
    for number, one in enumerate(findings):
        y = 30 + _ROW * number
        rows.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{html.escape(one.name)}</text>')
        rows.append(
            f'<rect x="{_LEFT}" y="{y - 5}" width="{_x(one.claimed) - _LEFT:.1f}" height="10" class="allowed"/>'
        )
        if one.exact is not None:
            over = "over" if one.exceeds(one.exact) else "within"
            rows.append(
                f'<circle cx="{_x(one.exact):.1f}" cy="{y}" r="5" class="{over}">'
                f"<title>exact {format_loss(one.exact)}</title></circle>"
            )
        if one.lower_bound is not None:
            x = _x(one.lower_bound)
            over = "over" if one.lower_bound > one.claimed else "within"
            rows.append(
                f'<path d="M{x:.1f} {y - 6}l5 6l-5 6l-5 -6z" class="{over} bound">'
                f"<title>at least {format_loss(one.lower_bound)}</title></path>"
            )
    opening = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="measured against allowed loss">'
    return f"{opening}{''.join(rows)}</svg>"


def _table(findings: Sequence[Finding]) -> str:
    head = "".join(
        f"<th>{name}</th>" for name in ("case", "claimed", "exact", "lower bound", "verdict", "witness", "stands for")
    )
    body = "".join(
        f'<tr class="{"good" if one.is_expected else "bad"}"><td>{html.escape(one.name)}</td>'
        f"<td>{format_loss(one.claimed)}</td><td>{format_loss(one.exact)}</td><td>{format_loss(one.lower_bound)}</td><td>{one.verdict}</td>"
        f"<td>{html.escape(one.witness)}</td><td>{html.escape(one.represents)}</td></tr>"
        for one in findings
    )
    return f"<div><table><tr>{head}</tr>{body}</table></div>"


def _attacks(findings: Sequence[Finding]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(one.name)}</td><td>{one.advantage:.3f}</td><td>{one.allowed_advantage:.3f}</td>"
        f"<td>{html.escape(one.event)}</td></tr>"
        for one in findings
    )
    head = (
        "<th>case</th><th>advantage at least</th><th>allowed</th><th>the intruder guesses that the member is in if</th>"
    )
    return f"<div><table><tr>{head}</tr>{rows}</table></div>"


_ATTACKS = (
    "How much better than a coin an intruder guesses whether one member is in the stream, and the most that the "
    "claimed loss ε allows, (e<sup>ε</sup> − 1)/(e<sup>ε</sup> + 1)."
)
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>panstream audit</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #ddd; --bar: #cfe3d4; --good: #23633a;
  --bad: #b3261e; --row: #fbe4e2 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e4e7ea; --paper: #14171a; --line: #3a4046; --bar: #26402f;
  --good: #7fd29a; --bad: #ff8a80; --row: #4a1f1c }} }}
body {{ font: 14px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em;
  color: var(--ink); background: var(--paper) }}
svg {{ width: 100%; font: 11px system-ui, sans-serif }} text {{ fill: var(--ink) }} .grid {{ stroke: var(--line) }}
.allowed {{ fill: var(--bar) }}
.within {{ fill: var(--good) }} .over {{ fill: var(--bad) }} .bound {{ fill-opacity: .55 }}
div {{ overflow-x: auto }} table {{ border-collapse: collapse; font-size: 12px }}
td, th {{ border-top: 1px solid var(--line); padding: .25em .5em; text-align: left; vertical-align: top }}
td:nth-child(n + 2):nth-child(-n + 4) {{ font-variant-numeric: tabular-nums }} .bad td {{ background: var(--row) }}
</style>
<h1>panstream audit</h1><p>{count} cases. {verdict}</p>
<p>The bar is the loss that is claimed. A circle is the exact loss of a small instance, a diamond a lower bound from
real runs; red means more than was claimed. An infinite loss is drawn at the right edge.</p>{body}</html>"""
