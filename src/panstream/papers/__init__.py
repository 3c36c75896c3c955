"""The papers' algorithms, for comparison; not recommended for data.

The papers' partial-sum counters with corrections, the literal forms (``Published...``), which state their true loss and
serve as negative controls, and the figures that compare both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.papers.as_printed.counters import PublishedAverage as PublishedAverage
    from panstream.papers.as_printed.counters import PublishedBinary as PublishedBinary
    from panstream.papers.as_printed.counters import PublishedHybrid as PublishedHybrid
    from panstream.papers.as_printed.counters import PublishedInitialNoise as PublishedInitialNoise
    from panstream.papers.as_printed.counters import PublishedPointNoise as PublishedPointNoise
    from panstream.papers.as_printed.counters import PublishedSimpleCounterI as PublishedSimpleCounterI
    from panstream.papers.as_printed.counters import PublishedVariance as PublishedVariance
    from panstream.papers.as_printed.density import PublishedDwork as PublishedDwork
    from panstream.papers.as_printed.density import PublishedLaplace as PublishedLaplace
    from panstream.papers.as_printed.density import PublishedOptBern as PublishedOptBern
    from panstream.papers.as_printed.density import PublishedQuantisedLaplace as PublishedQuantisedLaplace
    from panstream.papers.as_printed.density import PublishedTruncatedGaussian as PublishedTruncatedGaussian
    from panstream.papers.as_printed.density import PublishedTruncatedLaplace as PublishedTruncatedLaplace
    from panstream.papers.as_printed.density_ppds import PublishedPPDS as PublishedPPDS
    from panstream.papers.as_printed.mir import PublishedCroppedSum as PublishedCroppedSum
    from panstream.papers.as_printed.mir import PublishedDistinct as PublishedDistinct
    from panstream.papers.as_printed.mir_heavy_hitters import PublishedHeavyHitters as PublishedHeavyHitters
    from panstream.papers.counters.binary import BinaryMechanism as BinaryMechanism
    from panstream.papers.counters.calibrated_sketch import CalibratedSketch as CalibratedSketch
    from panstream.papers.counters.consistency import ConsistentCount as ConsistentCount
    from panstream.papers.counters.event_counter import EventCounter as EventCounter
    from panstream.papers.counters.hybrid import HybridMechanism as HybridMechanism
    from panstream.papers.counters.intrusion_transform import AccumulatorClosing as AccumulatorClosing
    from panstream.papers.counters.intrusion_transform import AccumulatorOpening as AccumulatorOpening
    from panstream.papers.counters.intrusion_transform import PartialSums as PartialSums
    from panstream.papers.counters.logarithmic import LogarithmicMechanism as LogarithmicMechanism
    from panstream.papers.counters.simple_counters import SimpleCounterI as SimpleCounterI
    from panstream.papers.counters.simple_counters import SimpleCounterII as SimpleCounterII

_MODULES = {
    "BinaryMechanism": "panstream.papers.counters.binary",
    "AccumulatorClosing": "panstream.papers.counters.intrusion_transform",
    "CalibratedSketch": "panstream.papers.counters.calibrated_sketch",
    "ConsistentCount": "panstream.papers.counters.consistency",
    "EventCounter": "panstream.papers.counters.event_counter",
    "HybridMechanism": "panstream.papers.counters.hybrid",
    "LogarithmicMechanism": "panstream.papers.counters.logarithmic",
    "AccumulatorOpening": "panstream.papers.counters.intrusion_transform",
    "PartialSums": "panstream.papers.counters.intrusion_transform",
    "PublishedAverage": "panstream.papers.as_printed.counters",
    "PublishedBinary": "panstream.papers.as_printed.counters",
    "PublishedCroppedSum": "panstream.papers.as_printed.mir",
    "PublishedDistinct": "panstream.papers.as_printed.mir",
    "PublishedDwork": "panstream.papers.as_printed.density",
    "PublishedHeavyHitters": "panstream.papers.as_printed.mir_heavy_hitters",
    "PublishedHybrid": "panstream.papers.as_printed.counters",
    "PublishedInitialNoise": "panstream.papers.as_printed.counters",
    "PublishedLaplace": "panstream.papers.as_printed.density",
    "PublishedOptBern": "panstream.papers.as_printed.density",
    "PublishedPPDS": "panstream.papers.as_printed.density_ppds",
    "PublishedPointNoise": "panstream.papers.as_printed.counters",
    "PublishedQuantisedLaplace": "panstream.papers.as_printed.density",
    "PublishedSimpleCounterI": "panstream.papers.as_printed.counters",
    "PublishedTruncatedGaussian": "panstream.papers.as_printed.density",
    "PublishedTruncatedLaplace": "panstream.papers.as_printed.density",
    "PublishedVariance": "panstream.papers.as_printed.counters",
    "SimpleCounterI": "panstream.papers.counters.simple_counters",
    "SimpleCounterII": "panstream.papers.counters.simple_counters",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
