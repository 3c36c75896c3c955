"""Figures about synthetic rows: against the model's own noisy tables (free), or against real rows (exact, not private)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cli.synth_page import Panel, page
from panstream.networks.counting import Comparison, compare, contingency, total_variation
from panstream.networks.network import BayesianNetwork
from panstream.networks.noisy_tables import expected
from panstream.networks.picture import to_svg
from panstream.networks.records import Records
from panstream.planning.text import aligned

__all__ = ["Evaluation"]

_WORST = 10


class Evaluation:
    """Compare once, show as text, JSON or page."""

    def __init__(
        self, network: BayesianNetwork, about: dict[str, Any], synthetic: Records, real: Records | None
    ) -> None:
        self.network, self.about, self.real = network, about, real
        self.comparison: Comparison | None = compare(real, synthetic) if real is not None else None
        self.panels = [self._panel(at, synthetic) for at in range(len(network.domain))]
        self.bits = network.cross_entropy(real if real is not None else synthetic)

    def _panel(self, at: int, synthetic: Records) -> Panel:
        attribute = self.network.domain.attributes[at]
        shares = contingency(synthetic, (at,)) / max(len(synthetic), 1)
        reference = self._reference(at)
        return Panel(
            name=attribute.name,
            labels=attribute.labels,
            reference=reference,
            synthetic=shares,
            distance=total_variation(reference, shares),
            ordered=attribute.bins is not None,
        )

    def _reference(self, at: int) -> NDArray[np.float64]:
        if self.real is not None:
            return np.asarray(contingency(self.real, (at,)) / max(len(self.real), 1))
        noisy = self.about["one_way"][at]
        if noisy is None:
            return self.network.marginal((at,))
        records = int(self.about["records"])
        return expected(np.array(noisy[0], float) / records, max(float(noisy[1]), 0.5) / records)

    @property
    def _names(self) -> tuple[str, str]:
        return ("real", "cross entropy of real rows") if self.real is not None else ("noisy", "entropy of the rows")

    def figures(self) -> list[tuple[str, str]]:
        """Return the headline figures as (name, text)."""
        claim = self.about["claim"]
        spent = f"{claim['epsilon']}" + (f", δ = {claim['delta']:g}" if claim["delta"] else "")
        one = float(np.mean([panel.distance for panel in self.panels]))
        found = [("ε spent", spent), ("mean distance, one-way", f"{one:.4f}")]
        if self.comparison is not None:
            found.append(("mean distance, two-way", f"{self.comparison.mean_two_way:.4f}"))
        return [*found, (self._names[1], f"{self.bits:.3f} bits a row")]

    def worst_pairs(self) -> list[tuple[str, str, float]]:
        """Return the pairs that differ most; none without real rows."""
        if self.comparison is None:
            return []
        ranked = sorted(self.comparison.two_way.items(), key=lambda item: -item[1])
        return [(one, other, distance) for (one, other), distance in ranked[:_WORST]]

    def text(self) -> str:
        """Return figures and distances as plain text."""
        head = "\n".join(f"{name:<27} {value}" for name, value in self.figures())
        body = [(panel.name, f"{panel.distance:.4f}") for panel in self.panels]
        title = f"total variation distance from the {self._names[0]} marginals"
        return head + "\n\n" + aligned(title, ("attribute", "distance"), body, right={1})

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
        """Return the report page."""
        return page(
            title="Synthetic data report",
            figures=self.figures(),
            claim=self.about["words"],
            panels=self.panels,
            pairs=self.worst_pairs(),
            reference="real rows" if self.real is not None else "noisy one-way tables of the model",
            warning=warning,
            picture=to_svg(self.network),
        )
