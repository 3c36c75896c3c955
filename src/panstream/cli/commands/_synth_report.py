"""The page of ``panstream synth report``: one HTML file that loads nothing, light or dark, narrow or wide."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from panstream.cli.commands._synth_charts import MANY, Marginal, bars, heat_map, shares
from panstream.cli.commands._synth_evaluation import Evaluation
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.svg import to_svg
from panstream.primitives.escaping import html_text

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Synthetic table: report</title>
<style>
:root {{ color-scheme: light dark; --paper: #fbfaf7; --ink: #1c1e22; --soft: #5b606a; --line: #e2dfd7;
  --accent: #0b6e69; --grey: #8a97a8; --warn: #fff3d6; --warn-line: #b98a2f; --blank: #efece5 }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #131517; --ink: #ebe8e2; --soft: #a2a6ad; --line: #2d3136;
  --accent: #63c7bd; --grey: #6f7d90; --warn: #3a2f18; --warn-line: #d6ab55; --blank: #202428 }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 0 auto; padding: 2rem 1.25rem; overflow-wrap: anywhere }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 }} h2 {{ font-size: 1.2rem; margin: 2.2rem 0 .4rem }}
p {{ margin: .4rem 0 }} .soft, figcaption {{ color: var(--soft) }} figure {{ margin: 0 0 1rem }}
figcaption {{ font-size: .88rem; margin-bottom: .4rem }}
.warning {{ background: var(--warn); border: 1px solid var(--warn-line); border-radius: 6px; padding: .6rem 1rem }}
.figures {{ display: flex; flex-wrap: wrap; gap: .7rem; margin: 1rem 0 }}
.figures div {{ border: 1px solid var(--line); border-radius: 6px; padding: .5rem .9rem; font-size: .88rem }}
.figures b {{ display: block; font-size: 1.2rem; font-variant-numeric: tabular-nums }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(320px, 100%), 1fr)); gap: 1.4rem }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line) }}
th {{ font-weight: 500 }} td.n, th.n {{ text-align: right }}
details {{ margin: .4rem 0 }} summary {{ cursor: pointer; color: var(--accent) }}
.promised td:first-child {{ overflow-wrap: normal; color: var(--soft) }}
svg {{ display: block; height: auto }} .grid svg, .bar svg {{ width: 100% }} .bar svg {{ height: 26px }}
.wide svg, .wide img {{ max-width: none }} .grid .fit svg {{ width: auto; max-width: 100% }}
svg text {{ font: 11px system-ui, sans-serif; fill: var(--ink) }} svg .name {{ font-size: 13px; font-weight: 600 }}
svg .soft {{ fill: var(--soft) }} svg .end {{ text-anchor: end }}
.reference {{ fill: var(--grey) }} .synthetic, .heat {{ fill: var(--accent) }} .empty {{ fill: var(--blank) }}
.key i {{ display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem }}
.key span {{ margin-right: 1.2rem; white-space: nowrap }}
li + li {{ margin-top: .35rem }} ul {{ padding-left: 1.2rem }}
@media print {{ body {{ max-width: none; padding: 0 }} figure, tr {{ break-inside: avoid }} }}
</style></head>
<body><header><h1>{title}</h1>{warning}</header><main>{body}</main></body></html>
"""
_EXACT = (
    "This page is not private. It compares with the real rows, and those figures are exact: no claim covers them. "
    "Store it with the rows; do not publish it."
)
_MAX_PAIRS = 200


def report_page(evaluation: Evaluation) -> str:
    """Return the page about a model, and about rows if there are any.

    Args:
        evaluation: The comparison.
    """
    about = evaluation.about
    claim = about["claim"]
    names = evaluation.network.domain.names
    whom = "rows" if evaluation.has_rows else "model"
    reference = "real rows" if evaluation.real is not None else "noisy tables"
    boxes = "".join(f"<div>{html_text(name)}<b>{html_text(value)}</b></div>" for name, value in evaluation.figures())
    free = f"<p class=soft>The {whom} beside the {reference} of {int(about['records']):,} records. " + (
        "</p>" if evaluation.real is not None else "The records were not read again, so this page costs no privacy.</p>"
    )
    body = [
        free,
        f'<div class="figures">{boxes}</div>',
        _section("What was promised", f'<div class="promised">{_table((), about["words"])}</div>'),
        _section("What was measured", _budget(evaluation)),
        _section("Single columns", _marginals(evaluation.panels, whom, reference)),
        _section("Pairs of columns", _pairs(evaluation, names)) if len(names) > 1 else "",
        _section("What not to use it for", _limits(evaluation)),
        _section("The strongest dependences", _network(evaluation)),
    ]
    warning = f'<p class="warning" role="note">{_EXACT}</p>' if evaluation.real is not None else ""
    level = f"epsilon {claim['epsilon']:g}" + (f", delta {claim['delta']:g}" if claim["delta"] else "")
    title = f"Synthetic table: report ({level})"
    return _PAGE.format(title=html_text(title), warning=warning, body="\n".join(body))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return an HTML table; the columns at ``numbers`` are aligned to the right."""

    def cell(tag: str, column: int, text: str) -> str:
        return f"<{tag}{' class=n' if column in numbers else ''}>{html_text(text)}</{tag}>"

    first = "".join(cell("th", column, text) for column, text in enumerate(head))
    lines = ["".join(cell("td", column, text) for column, text in enumerate(row)) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in ([first] if head else []) + lines) + "</table>"


def _behind(picture: str, table: str, what: str) -> str:
    """Return a picture with the table of its numbers, which opens on demand."""
    return f'{picture}<details><summary>{what}</summary><div class="wide">{table}</div></details>'


def _budget(evaluation: Evaluation) -> str:
    parts = evaluation.budget_shares()
    measured = evaluation.measured()
    rows = [(name, f"{100 * share:.1f} %") for name, share in parts]
    noise = [
        (what, f"{count:,}", f"{low:.1f}" if round(low, 1) == round(high, 1) else f"{low:.1f} to {high:.1f}")
        for what, count, low, high in measured
    ]
    return (
        "<p>Tables of counts were released with noise. Shares of the budget:</p>"
        f'<div class="bar">{shares(parts)}</div><div class="wide">{_table(("spent on", "share"), rows, (1,))}</div>'
        '<p>Noise of a cell, as a standard deviation in records:</p><div class="wide">'
        + _table(("tables", "how many", "noise"), noise, (1, 2))
        + "</div>"
    )


def _marginals(panels: Sequence[Marginal], whom: str, reference: str) -> str:
    key = (
        f'<p class="key"><span><i style="background:var(--grey)"></i>{reference}</span>'
        f'<span><i style="background:var(--accent)"></i>{whom}</span></p>'
    )
    head = ("value", reference, whom)
    figures = [
        "<figure>"
        + _behind(
            bars(panel),
            _table(
                head,
                [
                    (label, f"{100 * one:.2f} %", f"{100 * other:.2f} %")
                    for label, one, other in zip(panel.labels, panel.reference, panel.synthetic, strict=True)
                ],
                (1, 2),
            ),
            "Numbers",
        )
        + "</figure>"
        for panel in panels
    ]
    return f'{key}<div class="grid">{"".join(figures)}</div>'


def _pairs(evaluation: Evaluation, names: Sequence[str]) -> str:
    strength = evaluation.dependence()
    maps = [
        _heat(names, strength, "How much two columns depend on each other (Cramér's V, 0 to 1)", "dependence"),
    ]
    distances = evaluation.pair_distances()
    if not np.isnan(distances).all():
        against = "real rows" if evaluation.real is not None else "noisy tables, whose noise is part of it"
        maps.append(_heat(names, distances, f"How far pairs are from the {against} (total variation)", "distance"))
    return f'<div class="grid">{"".join(maps)}</div>' if len(names) <= MANY else "".join(maps)


def _heat(names: Sequence[str], values: NDArray[np.float64], title: str, what: str) -> str:
    largest = float(np.nanmax(values, initial=0.0))
    rows, columns = np.nonzero(~np.isnan(values))
    order = np.argsort(-values[rows, columns], kind="stable")[:_MAX_PAIRS]
    table = _table(
        ("one", "other", what),
        [(names[rows[at]], names[columns[at]], f"{values[rows[at], columns[at]]:.4f}") for at in order.tolist()],
        (2,),
    )
    measured = "" if rows.size == len(names) * (len(names) - 1) // 2 else " Empty squares were not measured."
    caption = f"<figcaption>{html_text(title)}. The largest is {largest:.3f}.{measured}</figcaption>"
    more = f" (the first {_MAX_PAIRS:,})" if rows.size > _MAX_PAIRS else ""
    size = "wide" if len(names) > MANY else "fit"
    picture = f'<div class="{size}">{heat_map(names, values, title)}</div>'
    return f"<figure>{caption}{_behind(picture, table, f'Numbers, largest first{more}')}</figure>"


def _limits(evaluation: Evaluation) -> str:
    rare = evaluation.rare_values()
    hidden = ", ".join(f"{name}: {', '.join(labels)}" for name, labels in rare[:5])
    smallest = evaluation.smallest_group()
    items = [
        "Decisions about a person. No row is a person, and none was copied from one.",
        f"Small groups. Counts below about {smallest:,} records cannot be told from noise."
        + (f" Rarer than their noise here: {hidden}{' and others' if len(rare) > 5 else ''}." if rare else ""),
        "Relations among three or more columns, unless pairs explain them: only the tables above were measured.",
        "Confidence intervals and tests that treat the rows as real ones: they ignore the noise of the model. "
        "Drawing more rows does not add information.",
        "Totals for reports and bills: get them from panstream query, with an interval, or from the rows.",
        "Relations between rows, such as visits of one patient in order, and columns that were not declared.",
        "Values within a bin: drawn numbers are spread evenly there.",
        *evaluation.about.get("notes", []),
    ]
    return "<ul>" + "".join(f"<li>{html_text(item)}</li>" for item in items) + "</ul>"


def _network(evaluation: Evaluation) -> str:
    drawn = base64.b64encode(to_svg(evaluation.network).encode()).decode()
    kind = "the tree nearest to the model of all pairs" if isinstance(evaluation.network, Mixture) else "the model"
    edges = [
        (names[parent], names[child])
        for names, tree in [(evaluation.network.domain.names, evaluation.tree)]
        for parent, child in tree.edges
    ]
    picture = f'<div class="wide"><img alt="Network of dependences" src="data:image/svg+xml;base64,{drawn}"></div>'
    return f"<figure><figcaption>Arrows of {kind}.</figcaption>" + (
        _behind(picture, _table(("from", "to"), edges), "Arrows") + "</figure>"
    )
