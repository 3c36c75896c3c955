"""Both machines of stream s in the test's process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from panstream.distributed.two_party.local import InProcessTwoPartyTransport


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[InProcessTwoPartyTransport]:
    made = InProcessTwoPartyTransport(tmp_path, "s")
    yield made
    made.close()
