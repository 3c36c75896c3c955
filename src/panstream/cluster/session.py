"""A stream on a cluster from start to end: connect, open the engine, feed it, let go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from panstream.cluster.backend import stored_shards
from panstream.cluster.coordinator import ClusterEngine
from panstream.cluster.dask_link import DaskLink
from panstream.cluster.dask_setup import local_cluster, quieten, security_of
from panstream.cluster.lakes import feed_files
from panstream.cluster.reading import Partition, ReadPlan, can_read_apart
from panstream.engine.config import Config
from panstream.engine.intake import intakes_of
from panstream.engine.run import Fed, Tick, drain, feed_of
from panstream.engine.select import Selector
from panstream.errors import InvalidParameter, NotSupported
from panstream.store.releases import Release

Tell = Callable[[str], None]
Publish = Callable[[Release], None]


class Session:
    """An open engine on a cluster, and the way to feed it files."""

    def __init__(self, engine: ClusterEngine, link: DaskLink) -> None:
        self.engine, self.link = engine, link

    def feed(
        self, inputs: Sequence[str], *, follow: bool = False, format: str | None = None, tick: Tick | None = None
    ) -> Fed:
        """Feed files: by the workers where no query needs the rows in order, else from here."""
        config = self.engine.config
        if any("://" in given for given in inputs):
            raise NotSupported(
                "a cluster reads files and standard input; read Redis, MQTT and Kafka on one machine, or serve them"
            )
        source = feed_of(config, inputs, follow=follow, format=format)  # refuses what cannot be read
        self.engine.declare(*intakes_of(inputs, follow=follow))
        apart = [] if follow or not can_read_apart(config) else Partition.of(inputs, format=format)
        if apart:
            source.close()
            plan = ReadPlan(config=config, shards=self.link.shards)
            return feed_files(self.engine, self.link, plan, apart, tick)
        with Selector(config) as select:
            return drain(self.engine, source, select, tick=tick)


@contextlib.contextmanager
def opened(
    config: Config,
    *,
    address: str | None = None,
    workers: int | None = None,
    shards: int | None = None,
    tell: Tell = lambda message: None,
    **options: Any,
) -> Iterator[Session]:
    """Open a configuration on the cluster at ``address``, or on ``workers`` processes of this machine.

    There are as many shards as the directory has, or else as there are workers, unless ``shards`` says otherwise.
    """
    with _linked(config, address, workers, shards, tell) as make:
        link = make()
        with ClusterEngine(config, link, positions=True, **options) as engine:
            yield Session(engine, link)


@contextlib.contextmanager
def engines(
    config: Config,
    *,
    address: str | None = None,
    workers: int | None = None,
    shards: int | None = None,
    tell: Tell = lambda message: None,
    **options: Any,
) -> Iterator[Callable[[Publish], ClusterEngine]]:
    """Yield what opens an engine on the cluster, as often as a server needs one; at most one is open at a time."""
    with _linked(config, address, workers, shards, tell) as make:
        yield lambda publish: ClusterEngine(config, make(), publish=publish, **options)


@contextlib.contextmanager
def _linked(
    config: Config, address: str | None, workers: int | None, shards: int | None, tell: Tell
) -> Iterator[Callable[[], DaskLink]]:
    """Yield what makes a link to the cluster, which is started where it has no address."""
    quieten()
    from distributed import Client

    with contextlib.ExitStack() as stack:
        if address is None:
            if workers is None or not 1 <= workers <= 256:
                raise InvalidParameter(f"workers must be in 1..256, got workers={workers}")
            cluster = stack.enter_context(local_cluster(workers))

            def connect() -> Any:
                return Client(cluster, direct_to_workers=True)  # type: ignore[no-untyped-call]
        else:
            secure = security_of(address, "client")

            def connect() -> Any:
                return Client(address, direct_to_workers=True, timeout=10, security=secure)  # type: ignore[no-untyped-call]

        with connect() as first:
            if address is not None:
                first.wait_for_workers(workers or 1, timeout=60)
            count = len(first.ncores())
        known = None if config.directory is None else stored_shards(config.directory)
        yield lambda: DaskLink(connect, shards or known or count, tell=tell)
