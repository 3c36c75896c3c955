"""Opens the engine of a stream whose states are on two machines, from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from panstream.engine.config.config import Config
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.errors import ConfigError

if TYPE_CHECKING:
    from panstream.distributed.two_party.backend import TwoPartyTransport


def open_stream(config: Config, **options: Any) -> Engine:
    """Return an engine whose states are in this process, or on two machines if the configuration names them."""
    return Engine(config, **options) if config.two_party is None else open_engine(config, **options)


def open_engine(
    config: Config, *, transport: TwoPartyTransport | None = None, zero_noise: bool = False, **options: Any
) -> Engine:
    """Return an engine whose states are on two machines, reached by ``transport`` or as the configuration says.

    Raises:
        ConfigError: If the configuration names no machines.
    """
    # Importing certificates and HTTPS takes a fifth of a command's start-up time: streams on one machine do without.
    from panstream.distributed.two_party.backend import TwoPartyBackend
    from panstream.distributed.two_party.https import HttpsTwoPartyTransport
    from panstream.primitives.mutual_tls import Identity

    two_party = config.two_party
    if two_party is None:
        raise ConfigError("[stream] machines is missing: this stream is held by one machine")
    if transport is None:
        identity = Identity(certificate=two_party.certificate, key=two_party.key, authority=two_party.authority)
        transport = HttpsTwoPartyTransport(
            (config.stream.machines[0], config.stream.machines[1]), two_party.names, identity
        )
    config = divide_person_budget(config)
    statistics = {plan.config.name: plan.algorithm for plan in plan_all(config, zero_noise=zero_noise)}
    backend = TwoPartyBackend(transport, config.stream.name, statistics)
    return Engine(config, backend=backend, zero_noise=zero_noise, **options)
