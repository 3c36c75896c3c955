"""Requests that are made up from the OpenAPI description: every answer is as described, none is a 500, none hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from panstream.server.http.openapi import describe
from panstream.server.ingest.request_bodies import FORMATS
from tests.browser.serving import Serving, serving
from tests.server.fuzzed import CONFIG, EXAMPLES, HANG, healthy

pytestmark = pytest.mark.slow


def as_bytes(value: Any) -> bytes:
    """Return whatever was made up as the bytes of a body."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.serializer(*FORMATS)
def rows(context: Any, value: Any) -> bytes:
    return as_bytes(value)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("fuzzed"), config=CONFIG) as running:
        yield running
        healthy(running)
        code, said = running.stop()
        assert (code, "internal error" in said, "Traceback" in said) == (128 + signal.SIGTERM, False, False), said


schema = schemathesis.openapi.from_dict(describe())


@schema.parametrize()
@settings(max_examples=40 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described(case: Any, server: Serving) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    case.call_and_validate(base_url=server.address, timeout=HANG, checks=checks)
