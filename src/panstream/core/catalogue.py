"""Every algorithm panstream ships, by name: the one list that bytes, exports, conformance suite and audit read.

Pure data: looking a name up imports only the module it names.
"""

from __future__ import annotations

__all__ = ["ALGORITHMS"]

ALGORITHMS: dict[str, str] = {
    # density: a known population
    "CroppedMean": "panstream.algorithms.density.cropped_mean",
    "DworkPair": "panstream.algorithms.density.dwork_pair",
    "FixedLevel": "panstream.algorithms.density.fixed_level",
    "GraphDensity": "panstream.algorithms.density.graph_density",
    "HeavyFraction": "panstream.algorithms.density.heavy_fraction",
    "OptBern": "panstream.algorithms.density.optbern",
    "QuantisedLaplace": "panstream.algorithms.density.quantised_laplace",
    "RefreshableCroppedMean": "panstream.algorithms.density.refreshable_cropped_mean",
    # distinct: an open universe
    "Bitmap": "panstream.algorithms.distinct.bitmap",
    "MergedBitmap": "panstream.algorithms.distinct.merged_bitmap",
    "SketchBitmap": "panstream.algorithms.distinct.sketch_bitmap",
    "TogglingBitmap": "panstream.algorithms.distinct.toggling_bitmap",
    # turnstile: integer updates of any sign
    "BlockCounter": "panstream.algorithms.turnstile.block_counter",
    "HeavyHitterCount": "panstream.algorithms.turnstile.heavy_hitter_count",
    "InnerProduct": "panstream.algorithms.turnstile.inner_product",
    "LegendreCounter": "panstream.algorithms.turnstile.legendre_counter",
    "ProfileSketch": "panstream.algorithms.turnstile.profile_sketch",
    "SecondMoment": "panstream.algorithms.turnstile.second_moment",
    # continual: an answer at every tick
    "ContinualCount": "panstream.algorithms.continual.sums",
    "ContinualMean": "panstream.algorithms.continual.moments",
    "ContinualSum": "panstream.algorithms.continual.sums",
    "ContinualVariance": "panstream.algorithms.continual.moments",
    "DecayedSum": "panstream.algorithms.continual.decayed_sum",
    "GaussMarkovCount": "panstream.algorithms.continual.gauss_markov",
    "KaryTree": "panstream.algorithms.continual.sums",
    "LeastSquaresTree": "panstream.algorithms.continual.least_squares_tree",
    "RangeHistogram": "panstream.algorithms.continual.range_histogram",
    "WindowedSum": "panstream.algorithms.continual.windowed_sum",
    # heavy hitters: an open domain of names
    "FrequentItems": "panstream.algorithms.heavy_hitters.prefix_sketch",
    # continual_users: ids at every tick
    "ContinualBitmap": "panstream.algorithms.continual_users.continual_bitmap",
    "ContinualDensity": "panstream.algorithms.continual_users.continual_density",
    "ContinualInnerProduct": "panstream.algorithms.continual_users.continual_moments",
    "ContinualSecondMoment": "panstream.algorithms.continual_users.continual_moments",
    "RetainedBitmap": "panstream.algorithms.continual_users.retained_bitmap",
    # networks: tables of a stream, from which models are learnt
    "StreamingTables": "panstream.models.networks.streaming_tables",
    # papers: their counters, corrected, for comparison
    "BinaryMechanism": "panstream.papers.counters.binary",
    "EventCounter": "panstream.papers.counters.event_counter",
    "HybridMechanism": "panstream.papers.counters.hybrid",
    "LogarithmicMechanism": "panstream.papers.counters.logarithmic",
    "SimpleCounterI": "panstream.papers.counters.simple_counters",
    "SimpleCounterII": "panstream.papers.counters.simple_counters",
}
