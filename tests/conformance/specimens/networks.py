"""Specimens of the networks room."""

from __future__ import annotations

import math
from dataclasses import replace

from panstream.models.networks import Bins, Domain, StreamingTables
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import CANARY

__all__ = ["network_specimens"]


def network_specimens() -> list[Specimen]:
    """Return pure and Gaussian noise, events and users; the truth is the number of records."""
    domain = Domain({"sex": ["f", "m"], "age": Bins([0, 18, 65, 120])})
    columns = {"sex": ["f", "m"] * 300, "age": [30, 70, 5] * 200}
    batches = ({"values": columns}, {"values": {"sex": ["m"], "age": [64]}}, {"values": {"sex": [], "age": []}})
    bad = (
        {"values": {"sex": ["f", CANARY], "age": [1, 2]}},
        {"values": {"sex": ["f"], "age": [int(CANARY)]}},
        {"values": {"sex": ["f", None], "age": [1, 2]}},
        {"values": {"sex": ["f"]}},
        {"values": f"x{CANARY}"},
    )
    base = StreamingTables(domain=domain, epsilon=4.0, horizon=8)
    variants = {
        "StreamingTables": base,
        "StreamingTables, Gaussian, two records of a user": replace(
            base, delta=1e-6, contributions=2, levels=None, capacity=None
        ),
    }
    return [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=batches,
            bad=bad,
            truth=601.0,
            noiseless=replace(algorithm, epsilon=math.inf),
            canary=CANARY,
            other_key=replace(algorithm, epsilon=2.0) if name == "StreamingTables" else None,
            truth_twice=1202.0,
        )
        for name, algorithm in variants.items()
    ]
