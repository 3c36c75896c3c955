"""Private continuous queries in SQL: configuration, planner, sources, running queries, storage, sinks, reports.

Clock, storage and input meet in this package only. Losses are computed by the algorithms and ``panstream.privacy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.engine.config.config import Config as Config
    from panstream.engine.config.config import load_config as load_config
    from panstream.engine.config.config import read_config as read_config
    from panstream.engine.planner.person_division import divide_person_budget as divide_person_budget
    from panstream.engine.planner.person_period import planned_person_total as planned_person_total
    from panstream.engine.planner.query_plan import plan_all as plan_all
    from panstream.engine.reporting.explain import explain as explain
    from panstream.engine.reporting.export import answers as answers
    from panstream.engine.rows.row_batch import RowSchema as RowSchema
    from panstream.engine.runtime.engine import Engine as Engine
    from panstream.engine.runtime.ingest import ingest as ingest
    from panstream.engine.runtime.selector import Selector as Selector
    from panstream.engine.sources import TableSource as TableSource

_MODULES = {
    "Config": "panstream.engine.config.config",
    "Engine": "panstream.engine.runtime.engine",
    "RowSchema": "panstream.engine.rows.row_batch",
    "Selector": "panstream.engine.runtime.selector",
    "TableSource": "panstream.engine.sources",
    "answers": "panstream.engine.reporting.export",
    "divide_person_budget": "panstream.engine.planner.person_division",
    "explain": "panstream.engine.reporting.explain",
    "ingest": "panstream.engine.runtime.ingest",
    "load_config": "panstream.engine.config.config",
    "plan_all": "panstream.engine.planner.query_plan",
    "planned_person_total": "panstream.engine.planner.person_period",
    "read_config": "panstream.engine.config.config",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
