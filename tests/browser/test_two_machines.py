"""The dashboard of a stream on two machines: the promise, and what announcing a break-in would do."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import expect

from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import read_config
from tests.browser.conftest import Open, photograph
from tests.distributed.two_party.test_steps import settings
from tests.server.server_live import served

pytestmark = pytest.mark.slow


def test_the_promise_of_two_machines_is_shown(visit: Open, tmp_path: Path) -> None:
    link = InProcessTwoPartyTransport(tmp_path, "s")
    config = read_config(settings(tmp_path))
    with served(config, engine=partial(open_engine, config, transport=link, zero_noise=True)) as live:
        server: Any = SimpleNamespace(address=f"http://{live.host}:{live.port}")
        page = visit(server, "/#/question/share")
        page.get_by_text("Promise:").click()
        promise = page.locator("details.more dl")
        expect(promise).to_contain_text("any number of undetected copies of one machine at a time")
        expect(promise).to_contain_text("both never in one epoch")
        expect(promise).to_contain_text("X25519")
        photograph(page, "two-machines-promise")
        page.goto(server.address + "/#/intrusions")
        expect(page.locator("p.lead")).to_contain_text("any number of copies of one machine at a time")
        expect(page.locator("table.price").first).to_contain_text("the shares are re-randomised")
        photograph(page, "two-machines-intrusions")
    link.close()
