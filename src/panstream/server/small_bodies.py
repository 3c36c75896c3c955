"""The one small JSON body of the interface."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import Request

from panstream.server.limits import Limits
from panstream.server.refusals import Refusal

__all__ = ["read_announcement"]

_MOST = 1_000


async def read_announcement(request: Request, limits: Limits) -> bool:
    """Return whether an announcement of an intrusion is confirmed."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal("unsupported_media_type", "Content-Type must be application/json")
    data = b""
    slow = False
    try:
        async with asyncio.timeout(limits.body_time):
            async for chunk in request.stream():
                data += chunk
                if len(data) > _MOST:
                    raise Refusal("too_large", f"this body may have {_MOST:,} bytes")
    except TimeoutError:
        slow = True
    if slow:
        raise Refusal("request_timeout")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or set(found) != {"confirm"} or not isinstance(found["confirm"], bool):
        raise Refusal("bad_request", 'the body must be {"confirm": true} or {"confirm": false}')
    return bool(found["confirm"])
