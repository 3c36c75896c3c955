"""Errors, sample sizes and budgets before any data is seen: functions in inverse pairs.

``density``, ``distinct``, ``turnstile`` and ``moments`` plan the shipped algorithms from their exact distributions;
``density_published`` and ``continual`` have the papers' own bounds, ``lower_bounds`` what nothing can beat. ``tables``
prints the plans. No function draws noise or reads rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.planning.continual import average_bound as average_bound
    from panstream.algorithms.planning.continual import binary_bound as binary_bound
    from panstream.algorithms.planning.continual import concentration as concentration
    from panstream.algorithms.planning.continual import conjectured_bound as conjectured_bound
    from panstream.algorithms.planning.continual import corollary_one as corollary_one
    from panstream.algorithms.planning.continual import epsilon_for as epsilon_for
    from panstream.algorithms.planning.continual import event_counter_bound as event_counter_bound
    from panstream.algorithms.planning.continual import unbounded_sum_bound as unbounded_sum_bound
    from panstream.algorithms.planning.continual import variance_bound as variance_bound
    from panstream.algorithms.planning.density import accuracy as accuracy
    from panstream.algorithms.planning.density import epsilon_needed as epsilon_needed
    from panstream.algorithms.planning.density import failure_probability as failure_probability
    from panstream.algorithms.planning.density import sample_size as sample_size
    from panstream.algorithms.planning.density_comparison import density_plan as density_plan
    from panstream.algorithms.planning.density_published import ppds_capacity as ppds_capacity
    from panstream.algorithms.planning.density_published import ppds_failure as ppds_failure
    from panstream.algorithms.planning.density_published import ppds_level as ppds_level
    from panstream.algorithms.planning.density_published import roth_sample_size as roth_sample_size
    from panstream.algorithms.planning.distinct import bitmap_buckets as bitmap_buckets
    from panstream.algorithms.planning.distinct import bitmap_epsilon as bitmap_epsilon
    from panstream.algorithms.planning.distinct import bitmap_error as bitmap_error
    from panstream.algorithms.planning.distinct import break_even_density as break_even_density
    from panstream.algorithms.planning.lower_bounds import LowerBound as LowerBound
    from panstream.algorithms.planning.lower_bounds import continual_count_bound as continual_count_bound
    from panstream.algorithms.planning.lower_bounds import independent_parts_bound as independent_parts_bound
    from panstream.algorithms.planning.lower_bounds import listed_names_bound as listed_names_bound
    from panstream.algorithms.planning.moments import moments_plan as moments_plan
    from panstream.algorithms.planning.tables import PlanTable as PlanTable
    from panstream.algorithms.planning.turnstile import counter_epsilon as counter_epsilon
    from panstream.algorithms.planning.turnstile import counter_error as counter_error
    from panstream.algorithms.planning.turnstile import turnstile_plan as turnstile_plan

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
    "lower_bounds": ("LowerBound", "continual_count_bound", "independent_parts_bound", "listed_names_bound"),
    "moments": ("moments_plan",),
    "tables": ("PlanTable",),
    "turnstile": ("counter_epsilon", "counter_error", "turnstile_plan"),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
