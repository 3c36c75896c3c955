"""Compare synthetic rows with the model's noisy tables, at no cost, or with the real rows: exact, and not private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.planning.tables import format_table
from panstream.models.networks.contingency import Comparison, compare, contingency, total_variation
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import posterior_mean_counts
from panstream.models.networks.records import Records
from panstream.models.networks.svg import to_svg

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 1080px; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.figures { display: flex; flex-wrap: wrap; gap: 1rem }
.figures div { border: 1px solid #d7dde5; border-radius: 6px; padding: .6rem 1rem }
.figures b { display: block; font-size: 1.3rem }
.warning { background: #fff3d6; border: 1px solid #d9a514; border-radius: 6px; padding: .6rem 1rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top }
td.n { text-align: right }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); gap: 1.2rem }
svg { width: 100%; height: auto }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; border-radius: 2px }
"""
_MAX_BARS = 15
_MAX_PAIRS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One attribute: its labels, its reference shares, its synthetic shares, and their distance."""

    name: str
    labels: Sequence[str]
    reference: NDArray[np.float64]
    synthetic: NDArray[np.float64]
    distance: float
    ordered: bool = False  # the labels have an order of their own, as bins have


class Evaluation:
    """The comparison of synthetic rows with a reference, as text, JSON or HTML."""

    def __init__(
        self, network: BayesianNetwork | Mixture, about: dict[str, Any], synthetic: Records, real: Records | None
    ) -> None:
        self.network = network
        self.about = about
        self.real = real
        self.comparison: Comparison | None = compare(real, synthetic) if real is not None else None
        self.panels = [self._panel(attribute, synthetic) for attribute in range(len(network.domain))]
        self.bits = network.cross_entropy(real if real is not None else synthetic)

    def _panel(self, index: int, synthetic: Records) -> _Panel:
        attribute = self.network.domain.attributes[index]
        shares = contingency(synthetic, (index,)) / max(len(synthetic), 1)
        reference = self._reference(index)
        return _Panel(
            name=attribute.name,
            labels=attribute.labels,
            reference=reference,
            synthetic=shares,
            distance=total_variation(reference, shares),
            ordered=attribute.bins is not None,
        )

    def _reference(self, attribute: int) -> NDArray[np.float64]:
        if self.real is not None:
            return np.asarray(contingency(self.real, (attribute,)) / max(len(self.real), 1))
        noisy = self.about["one_way"][attribute]
        if noisy is None:
            return self.network.marginal((attribute,))
        records = int(self.about["records"])
        return posterior_mean_counts(np.array(noisy[0], float) / records, max(float(noisy[1]), 0.5) / records)

    @property
    def _names(self) -> tuple[str, str]:
        return ("real", "cross entropy of real rows") if self.real is not None else ("noisy", "entropy of the rows")

    def figures(self) -> list[tuple[str, str]]:
        """Return the headline figures as (name, text)."""
        claim = self.about["claim"]
        spent = f"{claim['epsilon']}" + (f", δ = {claim['delta']:g}" if claim["delta"] else "")
        one = float(np.mean([panel.distance for panel in self.panels]))
        figures = [("ε spent", spent), ("mean distance, one-way", f"{one:.4f}")]
        if self.comparison is not None:
            figures.append(("mean distance, two-way", f"{self.comparison.mean_two_way:.4f}"))
        return [*figures, (self._names[1], f"{self.bits:.3f} bits per row")]

    def text(self) -> str:
        """Return figures and distances as plain text."""
        head = "\n".join(f"{name:<27} {value}" for name, value in self.figures())
        body = [(panel.name, f"{panel.distance:.4f}") for panel in self.panels]
        title = f"total variation distance from the {self._names[0]} marginals"
        return head + "\n\n" + format_table(title, ("attribute", "distance"), body, right={1})

    def to_json(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "claim": self.about["claim"],
            "private": self.real is None,
            "one_way": {panel.name: panel.distance for panel in self.panels},
            "two_way_mean": self.comparison.mean_two_way if self.comparison is not None else None,
            "bits_per_row": self.bits,
        }

    def page(self, warning: str | None) -> str:
        """Return the report as HTML; ``warning`` is shown at its top."""
        title = "Synthetic data report"
        reference = "real rows" if self.real is not None else "noisy one-way tables of the model"
        boxes = "".join(f"<div>{escape(name)}<b>{escape(value)}</b></div>" for name, value in self.figures())
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.about["words"])
        grid = "".join(f"<figure style='margin:0'>{_bars(panel)}</figure>" for panel in self.panels)
        two_way = {} if self.comparison is None else self.comparison.two_way
        worst = "".join(
            f"<tr><td>{escape(one)}</td><td>{escape(other)}</td><td class=n>{distance:.4f}</td></tr>"
            for (one, other), distance in sorted(two_way.items(), key=lambda item: -item[1])[:_MAX_PAIRS]
        )
        parts = [
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>",
            f"<h1>{title}</h1>",
            f"<p class=warning role=note>{escape(warning)}</p>" if warning else "",
            f"<div class=figures>{boxes}</div><h2>What was promised</h2><table>{rows}</table>",
            f"<h2>Marginals side by side</h2><p class=key><span style='background:#8a97a8'></span>{reference}"
            f"<span style='background:#1f6fb4'></span>synthetic</p><div class=grid>{grid}</div>",
            f"<h2>Pairs that differ most</h2><table><tr><th>one</th><th>other</th><th>distance</th></tr>{worst}</table>"
            if worst
            else "",
            f"<h2>The network</h2>{to_svg(self.network)}</html>",
        ]
        return "\n".join(part for part in parts if part)


def _bars(panel: _Panel) -> str:
    """Return one attribute's bars as SVG, in order or most frequent first; the rest is summed up in one bar."""
    order = np.arange(panel.reference.size) if panel.ordered else np.argsort(-panel.reference, kind="stable")
    shown = order[:_MAX_BARS] if order.size > _MAX_BARS + 1 else order
    rows = [
        (panel.labels[index], float(panel.reference[index]), float(panel.synthetic[index])) for index in shown.tolist()
    ]
    if shown.size < order.size:
        rest = order[shown.size :]
        rows.append((f"{rest.size} others", float(panel.reference[rest].sum()), float(panel.synthetic[rest].sum())))
    largest = max(max(reference, synthetic) for _, reference, synthetic in rows) or 1.0
    height = 30 + 22 * len(rows)
    lines = [
        f"<svg viewBox='0 0 400 {height}' role=img aria-label='{escape(panel.name, quote=True)}' font-size='11' "
        f"font-family='system-ui, sans-serif'><text x=0 y=14 font-size=13 font-weight=600>{escape(panel.name)}</text>"
        f"<text x=400 y=14 text-anchor=end fill='#5b6776'>distance {panel.distance:.4f}</text>"
    ]
    for number, (label, reference, synthetic) in enumerate(rows):
        top = 24 + 22 * number
        short = label if len(label) <= 18 else label[:17] + "…"
        for offset, share, colour in ((0, reference, "#8a97a8"), (8, synthetic, "#1f6fb4")):
            width = max(205.0 * share / largest, 0.0)
            lines.append(f"<rect x=142 y={top + offset} width={width:.1f} height=7 fill='{colour}'></rect>")
        lines.append(f"<text x=136 y={top + 11} text-anchor=end>{escape(short)}</text>")
        lines.append(f"<text x=400 y={top + 11} text-anchor=end fill='#5b6776'>{100 * synthetic:.1f} %</text>")
    return "".join(lines) + "</svg>"
