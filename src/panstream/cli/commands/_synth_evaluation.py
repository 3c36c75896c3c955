"""Compare a model or synthetic rows with the model's noisy tables, at no cost, or with the real rows: not private."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.planning.tables import format_table
from panstream.cli.commands._synth_charts import Marginal
from panstream.errors import InvalidParameter
from panstream.models.networks.contingency import contingency, pairwise, total_variation
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import NoisyTable, posterior_mean_counts
from panstream.models.networks.records import Records

_PURPOSES = {"marginals": "one-way tables", "structure": "choosing the structure", "tables": "two-way tables"}


class Evaluation:
    """The comparison of a model, or of synthetic rows, with a reference, as text, JSON or figures of a report.

    Args:
        network: The model.
        about: Its metadata, as ``panstream synth fit`` writes it.
        synthetic: Synthetic rows; without them the model itself is compared.
        real: The real rows; without them the model's own noisy tables are the reference.
    """

    def __init__(
        self,
        network: BayesianNetwork | Mixture,
        about: dict[str, Any],
        synthetic: Records | None,
        real: Records | None,
    ) -> None:
        if any(rows is not None and not len(rows) for rows in (synthetic, real)):
            raise InvalidParameter("both tables must have at least one record")
        self.network = network
        self.about = about
        self.real = real
        self._synthetic = synthetic
        self.panels = [self._panel(attribute) for attribute in range(len(network.domain))]

    @property
    def has_rows(self) -> bool:
        """Return whether rows are compared, and not the model itself."""
        return self._synthetic is not None

    @property
    def tree(self) -> BayesianNetwork:
        """Return the network, or the tree nearest to a mixture."""
        return self.network.nearest_tree() if isinstance(self.network, Mixture) else self.network

    def _panel(self, index: int) -> Marginal:
        attribute = self.network.domain.attributes[index]
        rows = self._synthetic
        shares = self.network.marginal((index,)) if rows is None else contingency(rows, (index,)) / len(rows)
        reference = self._reference(index)
        return Marginal(
            name=attribute.name,
            labels=attribute.labels,
            reference=reference,
            synthetic=shares,
            distance=total_variation(reference, shares),
            ordered=attribute.bins is not None or _are_ascending(attribute.labels),
        )

    def _reference(self, attribute: int) -> NDArray[np.float64]:
        if self.real is not None:
            return np.asarray(contingency(self.real, (attribute,)) / len(self.real))
        noisy = self.about["one_way"][attribute]
        if noisy is None:
            return self.network.marginal((attribute,))
        records = int(self.about["records"])
        return posterior_mean_counts(np.array(noisy[0], float) / records, max(float(noisy[1]), 0.5) / records)

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        """The shares of all pairs in the rows, or in the model."""
        if self._synthetic is not None:
            return _pair_shares(self._synthetic)
        return {pair: self.network.marginal(pair) for pair in itertools.combinations(range(len(self.panels)), 2)}

    @cached_property
    def two_way_mean(self) -> float | None:
        """The mean distance of pairs from the real rows; None without these."""
        if self.real is None:
            return None
        distances = self.pair_distances()
        return float(np.nanmean(distances)) if len(self.panels) > 1 else self.panels[0].distance

    @cached_property
    def bits(self) -> float | None:
        """The cross entropy of the real rows, else of the synthetic ones, in bits per row; None without rows."""
        rows = self.real if self.real is not None else self._synthetic
        return None if rows is None else self.network.cross_entropy(rows)

    @property
    def _names(self) -> tuple[str, str]:
        return ("real", "cross entropy of real rows") if self.real is not None else ("noisy", "entropy of the rows")

    def figures(self) -> list[tuple[str, str]]:
        """Return the headline figures as (name, text)."""
        claim = self.about["claim"]
        spent = f"{claim['epsilon']}" + (f", δ = {claim['delta']:g}" if claim["delta"] else "")
        one = float(np.mean([panel.distance for panel in self.panels]))
        figures = [("ε spent", spent), ("mean distance, one-way", f"{one:.4f}")]
        if self.two_way_mean is not None:
            figures.append(("mean distance, two-way", f"{self.two_way_mean:.4f}"))
        if self.bits is not None:
            figures.append((self._names[1], f"{self.bits:.3f} bits per row"))
        return figures

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
            "two_way_mean": self.two_way_mean,
            "bits_per_row": self.bits,
        }

    def budget_shares(self) -> list[tuple[str, float]]:
        """Return what the budget was spent on, with its share of all that was spent."""
        parts = {name.removeprefix("rho of "): float(loss) for name, loss in self.about["claim"]["parts"].items()}
        total = math.fsum(parts.values())
        return [(_PURPOSES.get(name, name), loss / total) for name, loss in parts.items() if loss]

    def measured(self) -> list[tuple[str, int, float, float]]:
        """Return the kinds of noisy tables, how many there are, and the least and the largest noise of a cell."""
        one_way = [noisy[1] for noisy in self.about["one_way"] if noisy is not None]
        two_way = [sigma for _, _, sigma, _ in self.about.get("two_way", [])]
        kinds = (("one column", one_way), ("two columns", two_way))
        return [(name, len(sigmas), min(sigmas), max(sigmas)) for name, sigmas in kinds if sigmas]

    def dependence(self) -> NDArray[np.float64]:
        """Return Cramér's V of all pairs in the lower triangle, NaN elsewhere."""
        return self._triangle({pair: _cramers_v(table) for pair, table in self._pairs.items()})

    def pair_distances(self) -> NDArray[np.float64]:
        """Return the distances of pairs in the lower triangle: from the real rows, or the model's from noisy tables."""
        if self.real is None:
            compared = {(one, other): far for one, other, _, far in self.about.get("two_way", []) if far is not None}
            return self._triangle(compared)
        real = _pair_shares(self.real)
        return self._triangle({pair: total_variation(table, real[pair]) for pair, table in self._pairs.items()})

    def _triangle(self, values: dict[tuple[int, int], float]) -> NDArray[np.float64]:
        triangle = np.full((len(self.panels), len(self.panels)), np.nan)
        for (one, other), value in values.items():
            triangle[max(one, other), min(one, other)] = value
        return triangle

    def rare_values(self) -> list[tuple[str, list[str]]]:
        """Return by attribute the values whose noisy count is below twice its noise."""
        rare = []
        for panel, noisy in zip(self.panels, self.about["one_way"], strict=True):
            if noisy is not None:
                low = [label for label, count in zip(panel.labels, noisy[0], strict=True) if count < 2 * noisy[1]]
                rare.append((panel.name, low))
        return [(name, labels) for name, labels in rare if labels]

    def smallest_group(self) -> int:
        """Return twice the noise of a cell of one column: the smallest count that stands out from it."""
        return math.ceil(2 * max((high for name, _, _, high in self.measured() if name == "one column"), default=1.0))


def pair_summary(
    network: BayesianNetwork | Mixture, tables: tuple[NoisyTable, ...], records: int
) -> list[tuple[int, int, float, float | None]]:
    """Return for every measured pair its noise and how far the model is from the noisy table: all may be published.

    Where groups of categories were counted, there is no distance.

    Args:
        network: The model.
        tables: The noisy tables.
        records: The number of records.
    """
    summary: dict[tuple[int, ...], tuple[float, float | None]] = {}
    for table in sorted(tables, key=lambda table: -table.sigma):  # of repeated tables, that with the least noise
        if len(table.attributes) == 2 and table.views is not None:
            summary[table.attributes] = (table.sigma, None)
        elif len(table.attributes) == 2:
            noise = max(table.sigma, 0.5) / records
            shares = posterior_mean_counts(np.asarray(table.counts, float).reshape(-1) / records, noise)
            model = network.marginal(table.attributes)
            summary[table.attributes] = (table.sigma, total_variation(shares.reshape(model.shape), model))
    return [(one, other, *summary[one, other]) for one, other in sorted(summary)]


def _are_ascending(labels: Sequence[str]) -> bool:
    """Return whether categories are numbers from low to high, but for those that stand for no value."""
    numbers = [float(label) for label in labels if label.removeprefix("-").replace(".", "", 1).isdigit()]
    return len(numbers) >= max(2, len(labels) - 1) and numbers == sorted(numbers)


def _pair_shares(records: Records) -> dict[tuple[int, int], NDArray[np.float64]]:
    if len(records.domain) < 2:
        return {}
    return {pair: table / len(records) for pair, table in pairwise(records).items()}


def _cramers_v(table: NDArray[np.float64]) -> float:
    """Return Cramér's V: 0 if the two attributes are independent, 1 if one determines the other."""
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    filled = expected > 0
    square = float((table[filled] ** 2 / expected[filled]).sum()) - 1.0
    return math.sqrt(max(square, 0.0) / max(min(table.shape) - 1, 1))
