"""The service behind the routes: the engine's thread, the feed of releases, and the end of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from panstream.engine.config import Config
from panstream.engine.engine import Engine
from panstream.server import views
from panstream.server.feed import Feed, event
from panstream.server.refusals import Refusal
from panstream.server.worker import Worker
from panstream.store.releases import Release

__all__ = ["Service"]


class Service:
    """One stream, served. ``open_engine`` is given the function to call with every release; ``ended`` is called if the engine fails."""

    def __init__(
        self,
        config: Config,
        open_engine: Callable[[Callable[[Release], None]], Engine],
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.feed = Feed()
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.worker = Worker(lambda: open_engine(self._published), ended=ended)

    def start(self) -> None:
        """Begin; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self.worker.run()

    def begin_stop(self) -> None:
        """Take nothing new, and end the streams of events."""
        self.stopping = True
        self.feed.close()

    async def stop(self) -> None:
        """Commit and close."""
        self.begin_stop()
        await self.worker.stop()

    def check_running(self) -> None:
        """Refuse what comes while stopping."""
        if self.stopping:
            raise Refusal("unavailable", "the server is stopping", retry_after=5)

    async def past(self, query: str | None, since: str | None, limit: int) -> list[dict[str, Any]]:
        """Return the latest releases, oldest first."""

        def look(engine: Engine) -> list[dict[str, Any]]:
            names = None
            if query is not None:
                names = [name for plan in engine.plans if plan.config.name == query for name in views.series_of(plan)]
                if not names:
                    raise Refusal("not_found", "there is no query of this name")
            return [views.release(each) for each in engine.log.latest(names, since=since, limit=limit)]

        found: list[dict[str, Any]] = await self.worker.call(look)
        return found

    def _published(self, release: Release) -> None:
        """Hand a release to the listeners; called by the engine's thread."""
        if self._loop is not None and not self._loop.is_closed():
            shown = views.release(release)
            self._loop.call_soon_threadsafe(self.feed.publish, event("release", shown, shown["time"]), shown["query"])
