"""All checklists by the name of their purpose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from panstream.engine.config.config import Config
from panstream.engine.reporting.checklists.checklist import Checklist
from panstream.engine.reporting.checklists.cnil import cnil_checklist
from panstream.engine.reporting.checklists.dpia import dpia_checklist
from panstream.engine.reporting.checklists.facts import Facts
from panstream.engine.reporting.checklists.nist import nist_checklist
from panstream.engine.reporting.checklists.registry import registry_checklist

CHECKLISTS: dict[str, Callable[[Facts], Checklist]] = {
    "nist": nist_checklist,
    "registry": registry_checklist,
    "cnil": cnil_checklist,
    "dpia": dpia_checklist,
}


def checklist(purpose: str, config: Config, *, digest: str, now: datetime) -> Checklist:
    """Return a checklist, filled in as far as configuration, program and evidence can.

    Args:
        purpose: One of ``CHECKLISTS``.
        config: The configuration.
        digest: SHA-256 of its file, in hexadecimal.
        now: Time of the page, in UTC.

    Raises:
        ConfigError: The purpose does not fit the configuration.
    """
    return CHECKLISTS[purpose](Facts(config=config, digest=digest, now=now))
