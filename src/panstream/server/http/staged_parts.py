"""The operations on batches that come in parts: send a part, commit all of them, give them up."""

from __future__ import annotations

import json

from starlette.requests import Request

from panstream.engine.rows.row_batch import BatchResult
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.producers import Sender
from panstream.server.auth import QuotaTracker
from panstream.server.errors import HttpError
from panstream.server.ingest.jobs import BatchOutcome, Job, sender_from_headers
from panstream.server.ingest.request_bodies import RequestBody, receive, receive_small
from panstream.server.ingest.staging import StagingArea, wanted_parts
from panstream.server.service import Service

_MAX_LIST = 1 << 18  # bytes of a commit's body


class StagedParts:
    """Handles requests about batches in parts of a service's stream.

    Args:
        service: The stream.
        quotas: Limits of the tokens.
    """

    def __init__(self, service: Service, quotas: QuotaTracker) -> None:
        self._service = service
        self._worker = service.worker
        self._quotas = quotas

    @property
    def area(self) -> StagingArea:
        """The parts that wait for their commit."""
        return self._service.staging

    async def add(self, request: Request, part: int, count: int | None) -> BatchOutcome:
        """Hold a part; ``new`` of the outcome is false if its batch was counted before."""
        sender, sequence = self._sender(request)
        if not await self._is_next(sender, sequence):
            return BatchOutcome(applied=BatchResult(new=False), rows=0)
        job = Job(await receive(request, self._quotas, sender.token), sender, sequence)
        await self._worker.parse(job)
        rows = 0 if job.rows is None else len(job.rows)
        self.area.add(sender, job, part, count)
        return BatchOutcome(applied=BatchResult(new=True), rows=rows)

    async def commit(self, request: Request) -> BatchOutcome:
        """Count the parts that the body names as one batch."""
        sender, sequence = self._sender(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError("unsupported_media_type", "Content-Type must be application/json")
        data = await receive_small(request, _MAX_LIST, self._quotas.limits.body_time, "this body")
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        wanted = wanted_parts(document)

        async def commit() -> BatchOutcome:
            if not await self._is_next(sender, sequence):
                self.area.drop(sender)
                return BatchOutcome(applied=BatchResult(new=False), rows=0)
            body = RequestBody(self._quotas, "parts", "parts", token=sender.token)
            job = Job(body, sender, sequence, parts=tuple(self.area.take(sender, sequence, wanted)))
            return await self._worker.take(job)

        outcome: BatchOutcome = await self.area.commit_once(sender, sequence, commit)
        return outcome

    def abort(self, request: Request) -> None:
        """Wipe the parts of a producer."""
        self.area.drop(self._sender(request)[0])

    def _sender(self, request: Request) -> tuple[Sender, int]:
        if request.path_params["name"] != self._service.config.stream.name:
            raise HttpError("not_found", "there is no stream of this name")
        self._service.check_running()
        sender, sequence = sender_from_headers(request.headers, request.state.token)
        if sender is None:
            raise HttpError("bad_request", "a batch in parts needs Panstream-Producer and Panstream-Sequence")
        return sender, sequence

    async def _is_next(self, sender: Sender, sequence: int) -> bool:
        """Return whether this is the producer's next batch; False if it was counted.

        Raises:
            HttpError: If an earlier batch is missing.
            ProducerFenced: If the producer is not open under this id; its parts are wiped.
        """

        def position(engine: Engine) -> int:
            return max(0, engine.last_sequence(engine.producers.position_key(sender)))

        try:
            last: int = await self._worker.call(position)
        except BaseException:
            self.area.drop(sender)
            raise
        if sequence > last + 1:
            raise HttpError("sequence_gap", f"batch {last + 1} of this producer has not come, send that one first")
        return sequence == last + 1
