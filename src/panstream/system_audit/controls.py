"""Whether the audit would notice: every planted leak, and the mistakes of earlier versions, must be caught."""

from __future__ import annotations

from dataclasses import dataclass

from panstream.system_audit.audit import ROADS, audit_system, bundled
from panstream.system_audit.plants import CLUSTER_PLANTS, PLANTS, SERVER_PLANTS

__all__ = ["Caught", "try_controls"]

_TELLING = ("section: unknown", "event removed", "visitor: no number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A planted leak, and the first field that gave it away."""

    name: str
    field: str = ""

    @property
    def caught(self) -> bool:
        """Return whether some field gave it away."""
        return bool(self.field)


def try_controls(*, full: bool = True, only: tuple[str, ...] = ()) -> list[Caught]:
    """Plant each leak and run the audit; without ``full``, those of ``run`` alone."""
    visitors = next(path for path in bundled() if path.stem == "visitors")
    kinds = [(PLANTS, ROADS[0])]
    if full:
        serve = next(road for road in ROADS if road.command == "serve" and not road.workers)
        cluster = next(road for road in ROADS if road.command == "serve" and road.workers)
        kinds += [(SERVER_PLANTS, serve), (CLUSTER_PLANTS, cluster)]
    found: list[Caught] = []
    for plants, road in kinds:
        for name in plants:
            if only and name not in only:
                continue
            report = audit_system(visitors, roads=[road], plants=[name], choose=lambda each: each.name in _TELLING)
            found.append(Caught(name=name, field=report.undeclared[0].field if report.undeclared else ""))
    return found
