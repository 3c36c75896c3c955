"""Every algorithm panstream ships, by name: the one list that bytes, exports, conformance suite and audit read.

Pure data: looking a name up imports only the module it names.
"""

from __future__ import annotations

__all__ = ["ALGORITHMS", "FORMER"]

ALGORITHMS: dict[str, str] = {
    # density: a known population
    "CroppedMean": "panstream.density.cropped_mean",
    "DworkPair": "panstream.density.dwork_pair",
    "FixedLevel": "panstream.density.fixed_level",
    "GraphDensity": "panstream.density.graph",
    "HeavyFraction": "panstream.density.heavy_fraction",
    "OptBern": "panstream.density.optbern",
    "QuantisedLaplace": "panstream.density.quantised_laplace",
    "RefreshableCroppedMean": "panstream.density.refreshable_cropped_mean",
    # distinct: an open universe
    "Bitmap": "panstream.distinct.bitmap",
    "MergedBitmap": "panstream.distinct.merged",
    "TogglingBitmap": "panstream.distinct.toggling",
    # turnstile: integer updates of any sign
    "BlockCounter": "panstream.turnstile.block",
    "HeavyHitterCount": "panstream.turnstile.heavy",
    "InnerProduct": "panstream.turnstile.inner_product",
    "LegendreCounter": "panstream.turnstile.legendre",
    "ProfileSketch": "panstream.turnstile.profile",
    "SecondMoment": "panstream.turnstile.second_moment",
    # continual: an answer at every tick
    "ContinualCount": "panstream.continual.sums",
    "ContinualMean": "panstream.continual.moments",
    "ContinualSum": "panstream.continual.sums",
    "ContinualVariance": "panstream.continual.moments",
    "DecayedSum": "panstream.continual.decayed",
    "KaryTree": "panstream.continual.sums",
    "LeastSquaresTree": "panstream.continual.least_squares",
    "RangeHistogram": "panstream.continual.histogram",
    "WindowedSum": "panstream.continual.windowed",
    # frequent: names that nobody listed
    "FrequentItems": "panstream.frequent.items",
    # continual_users: the same of users
    "ContinualBitmap": "panstream.continual_users.bitmap",
    "ContinualDensity": "panstream.continual_users.density",
    # networks: tables of a stream, to learn from
    "StreamingTables": "panstream.networks.streaming",
    # papers: their counters made sound, for comparison
    "BinaryMechanism": "panstream.papers.binary",
    "EventCounter": "panstream.papers.event_counter",
    "HybridMechanism": "panstream.papers.hybrid",
    "LogarithmicMechanism": "panstream.papers.logarithmic",
    "SimpleCounterI": "panstream.papers.simple_counters",
    "SimpleCounterII": "panstream.papers.simple_counters",
}

FORMER: dict[str, tuple[str, dict[str, object]]] = {
    # names that only stored bytes know: what they are called now, and with which options
    "UserBits": ("OptBern", {"count": True}),
}
