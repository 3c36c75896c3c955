"""Every algorithm panstream ships, by name: the one list that bytes, exports, conformance suite and audit read.

Pure data: looking a name up imports only the module it names.
"""

from __future__ import annotations

__all__ = ["ALGORITHMS"]

ALGORITHMS: dict[str, str] = {
    # density: a known population
    "CroppedMean": "panstream.density.cropped_mean",
    "DworkPair": "panstream.density.dwork_pair",
    "FixedLevel": "panstream.density.fixed_level",
    "GraphDensity": "panstream.density.graph",
    "HeavyFraction": "panstream.density.heavy_fraction",
    "OptBern": "panstream.density.optbern",
    "QuantisedLaplace": "panstream.density.quantised_laplace",
}
