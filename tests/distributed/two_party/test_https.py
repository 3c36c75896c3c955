"""Two machines over mutual TLS: the engine's answers are the same, and unknown certificates are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from panstream.distributed.two_party.https import HttpsPeer, HttpsTwoPartyTransport, ParticipantServer
from panstream.distributed.two_party.participant import Participant
from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import read_config
from panstream.errors import InvalidParameter, TwoPartyError
from panstream.primitives.certificates import Authority
from tests.distributed.two_party.test_steps import QUERIES, batch, settings, truths, values


class Trio:
    """Both machines as servers in threads, and what the front end needs to reach them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = Authority(directory / "certificates")
        self.made = {name: authority.issue(name) for name in ("a", "b", "front", "intruder")}
        self.second = Participant(directory / "b", first=False, stream="s")
        self.servers = [ParticipantServer(self.second, self.made["b"], ("front", "a"))]
        peer = HttpsPeer("b", self.servers[0].address, self.made["a"])
        self.first = Participant(directory / "a", first=True, stream="s", peer=peer)
        self.servers.append(ParticipantServer(self.first, self.made["a"], ("front",), peer=peer))
        for server in self.servers:
            server.start()

    @property
    def urls(self) -> tuple[str, str]:
        return self.servers[1].address, self.servers[0].address

    def transport(self, who: str = "front") -> HttpsTwoPartyTransport:
        return HttpsTwoPartyTransport(self.urls, ("a", "b"), self.made[who])

    def close(self) -> None:
        for server in self.servers:
            server.stop()
        self.first.close()
        self.second.close()


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    made = Trio(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_answers_over_tls_are_true(trio: Trio) -> None:
    config = read_config(settings(trio.directory))
    with open_engine(config, transport=trio.transport(), zero_noise=True) as engine:
        engine.apply(batch(0))
        trio.servers[1].rerandomize_idle()  # type: ignore[attr-defined]
        before = trio.first.step
    with open_engine(config, transport=trio.transport(), zero_noise=True) as engine:
        engine.apply(batch(1))
        found = values(engine)
    assert trio.first.step == before + 2 + len(QUERIES)
    assert {name: found[name] for name in truths(2)} == pytest.approx(truths(2), rel=1e-4)


@pytest.mark.slow
def test_unknown_certificates_and_unreachable_machines(trio: Trio) -> None:
    config = read_config(settings(trio.directory))
    with pytest.raises(TwoPartyError, match="403"):
        open_engine(config, transport=trio.transport("intruder"), zero_noise=True)
    swapped = HttpsTwoPartyTransport((trio.urls[1], trio.urls[0]), ("b", "a"), trio.made["front"])
    with pytest.raises(TwoPartyError, match="the first machine"):
        open_engine(config, transport=swapped, zero_noise=True)
    with pytest.raises(TwoPartyError, match="another name"):
        open_engine(
            config, transport=HttpsTwoPartyTransport(trio.urls, ("a", "c"), trio.made["front"]), zero_noise=True
        )
    with pytest.raises(InvalidParameter, match="machines must be two"):
        HttpsTwoPartyTransport(trio.urls, ("a", "a"), trio.made["front"])
    with open_engine(config, transport=trio.transport(), zero_noise=True) as engine:
        engine.apply(batch(0))
        trio.servers[0].stop()
        with pytest.raises(TwoPartyError, match="machine b: it cannot be reached"):
            engine.apply(batch(1))
        assert engine.broken
