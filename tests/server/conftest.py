"""A running server for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.server.server_live import CONFIG, Live, served, write_config


@pytest.fixture(scope="module")
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with the module's CONFIG and LIMITS, where it has them."""
    config = write_config(tmp_path_factory.mktemp("live"), getattr(request.module, "CONFIG", CONFIG))
    with served(config, getattr(request.module, "LIMITS", None)) as server:
        yield server
