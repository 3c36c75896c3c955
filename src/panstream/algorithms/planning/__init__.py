"""Errors, sample sizes and budgets before any data is seen: functions in inverse pairs.

``density``, ``distinct``, ``turnstile`` and ``moments`` plan the shipped algorithms from their exact distributions;
``density_published`` and ``continual`` have the papers' own bounds. ``tables`` prints the plans. No function draws
noise or reads rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.planning.continual import *  # noqa: F403
    from panstream.algorithms.planning.density import *  # noqa: F403
    from panstream.algorithms.planning.density_comparison import *  # noqa: F403
    from panstream.algorithms.planning.density_published import *  # noqa: F403
    from panstream.algorithms.planning.distinct import *  # noqa: F403
    from panstream.algorithms.planning.moments import *  # noqa: F403
    from panstream.algorithms.planning.tables import PlanTable as PlanTable
    from panstream.algorithms.planning.turnstile import *  # noqa: F403

_NAMES = {
    "continual": (
        "average_bound",
        "binary_bound",
        "concentration",
        "conjectured_bound",
        "corollary_one",
        "epsilon_for",
        "event_counter_bound",
        "unbounded_sum_bound",
        "variance_bound",
    ),
    "density": ("accuracy", "epsilon_needed", "failure_probability", "sample_size"),
    "density_comparison": ("density_plan",),
    "density_published": ("ppds_capacity", "ppds_failure", "ppds_level", "roth_sample_size"),
    "distinct": ("bitmap_buckets", "bitmap_epsilon", "bitmap_error", "break_even_density"),
    "moments": ("moments_plan",),
    "tables": ("PlanTable",),
    "turnstile": ("counter_epsilon", "counter_error", "turnstile_plan"),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
