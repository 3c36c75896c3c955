from __future__ import annotations

import http.client
import math
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from panstream.errors import FederationAborted, InvalidParameter, PeerUnreachable
from panstream.models.federated import FederatedTree, Federation, Holder, Roster
from panstream.models.federated._questions import InfoQuestion, Table
from panstream.models.federated.https import HolderServer, HttpsChannel
from panstream.models.networks import contingency
from panstream.primitives.certificates import Authority
from panstream.primitives.mutual_tls import Identity
from tests.models.federated.common import chain
from tests.waiting import PATIENCE

RECORDS = chain(3000)
HELLO = InfoQuestion(run="r").write()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def holder() -> Iterator[Holder]:
    with Holder("north", RECORDS, epsilon=1.0, delta=1e-6) as kept:
        yield kept


@pytest.fixture
def server(holder: Holder, authority: Authority) -> Iterator[HolderServer]:
    listening = HolderServer(holder, authority.issue("north"), ["analyst"])
    listening.start()
    yield listening
    listening.stop()


def test_a_run_over_https_spends_what_it_claims(authority: Authority) -> None:
    holders = [Holder(f"h{at}", part, epsilon=1.0, delta=1e-6) for at, part in enumerate(RECORDS.split(3))]
    servers = [HolderServer(each, authority.issue(each.name), ["analyst"]) for each in holders]
    analyst = authority.issue("analyst")
    try:
        for each in servers:
            each.start()
        channels = [HttpsChannel(h.name, s.address, analyst) for h, s in zip(holders, servers, strict=True)]
        result = FederatedTree(epsilon=1.0).run(Federation(RECORDS.domain, channels, minimum=3))
        assert result.holders == ("h0", "h1", "h2")
        assert result.claim.epsilon == 1.0
        assert [round(each.ledger.epsilon, 6) for each in holders] == [1.0] * 3
        assert result.network.cross_entropy(RECORDS) < 4.0
    finally:
        for each, kept in zip(servers, holders, strict=True):
            each.stop()
            kept.close()


def test_holders_whose_servers_stop_after_the_close_do_not_spoil_a_secure_sum(authority: Authority) -> None:
    """Two of five, one before the parts are confirmed and one before they are revealed."""
    keys = {name: Ed25519PrivateKey.generate() for name in "abcde"}
    members = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    holders = [
        Holder(name, RECORDS, epsilon=1.0, delta=1e-6, roster=Roster(key=key, members=members))
        for name, key in keys.items()
    ]
    servers = [HolderServer(holder, authority.issue(holder.name), ["analyst"]) for holder in holders]
    analyst = authority.issue("analyst")

    class Stopping(HttpsChannel):
        def __init__(self, server: HolderServer, holder: Holder, kind: bytes) -> None:
            super().__init__(holder.name, server.address, analyst)
            self.server = server
            self.kind = kind

        def answer(self, data: bytes) -> bytes:
            if self.kind in data:
                self.server.stop()
            return super().answer(data)

    try:
        for server in servers:
            server.start()
        kinds = [b"never", b"never", b"never", b'"confirm-sum"', b'"reveal-sum"']
        channels = [Stopping(server, *rest) for server, *rest in zip(servers, holders, kinds, strict=True)]
        table = Table(attributes=(0,), budget=1e-3)
        federation = Federation(RECORDS.domain, channels, minimum=5, attempts=2)
        sums = federation.secure_sums([table], dropouts=2)
        exact = 4 * contingency(RECORDS, (0,))
        assert (sums.holders, list(federation.dropped)) == (4, ["d"])
        assert np.abs(sums.tables[0] - exact).max() < 10 * sums.deviations[0]  # failure probability below 1e-22
        assert sums.deviations[0] == pytest.approx(math.sqrt(4 / 2 / 1e-3), rel=0.01)
    finally:
        for server, holder in zip(servers, holders, strict=True):
            server.stop()
            holder.close()


def test_a_certificate_with_another_name_may_not_ask(server: HolderServer, authority: Authority) -> None:
    assert HttpsChannel("north", server.address, authority.issue("analyst")).answer(HELLO)
    with pytest.raises(PeerUnreachable, match="403"):
        HttpsChannel("north", server.address, authority.issue("somebody")).answer(HELLO)


def test_a_certificate_of_another_authority_gets_nowhere(
    server: HolderServer, authority: Authority, tmp_path: Path
) -> None:
    forged = Authority(tmp_path).issue("analyst")
    own = Identity(certificate=forged.certificate, key=forged.key, authority=authority.path)
    with pytest.raises(PeerUnreachable):
        HttpsChannel("north", server.address, own).answer(HELLO)
    with pytest.raises(PeerUnreachable, match="no secure connection"):  # nor does the analyst trust a foreign holder
        HttpsChannel("north", server.address, forged).answer(HELLO)


def test_without_a_certificate_nobody_gets_past_the_handshake(server: HolderServer, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.path)
    connection = http.client.HTTPSConnection(server.address.removeprefix("https://"), context=context, timeout=PATIENCE)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("POST", "/v1/ask", HELLO)
        connection.getresponse()
    connection.close()


def test_another_holder_at_the_address_is_noticed(server: HolderServer, authority: Authority) -> None:
    with pytest.raises(PeerUnreachable, match="another name"):
        HttpsChannel("south", server.address, authority.issue("analyst")).answer(HELLO)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/other", {}, 404),
        ("/v1/ask", {"Content-Length": str(1 << 30)}, 413),
        ("/v1/ask", {"Content-Length": "-1"}, 411),
        ("/v1/ask", {"Content-Length": "9" * 40}, 411),
    ],
    ids=range(4),
)
def test_bad_requests_are_turned_away(
    server: HolderServer, authority: Authority, path: str, headers: dict[str, str], status: int
) -> None:
    identity = authority.issue("analyst")
    context = ssl.create_default_context(cafile=identity.authority)
    context.load_cert_chain(identity.certificate, identity.key)
    connection = http.client.HTTPSConnection(server.address.removeprefix("https://"), context=context, timeout=PATIENCE)
    connection.putrequest("POST", path)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


def test_a_silent_connection_does_not_hold_up_others(server: HolderServer, authority: Authority) -> None:
    host, port = server.address.removeprefix("https://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(20)]
    assert HttpsChannel("north", server.address, authority.issue("analyst"), timeout=PATIENCE).answer(HELLO)
    for each in silent:
        each.close()


def test_a_holder_that_is_not_there_or_too_slow(holder: Holder, authority: Authority) -> None:
    gone = HolderServer(holder, authority.issue("north"), ["analyst"])
    address = gone.address
    gone._server.server_close()
    analyst = authority.issue("analyst")
    with pytest.raises(FederationAborted, match="cannot be reached"):
        _ = Federation(RECORDS.domain, [HttpsChannel("north", address, analyst)], attempts=2).holders
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        slow = HttpsChannel("north", f"https://127.0.0.1:{deaf.getsockname()[1]}", analyst, timeout=0.2)
        with pytest.raises(PeerUnreachable, match=r"within 0\.2 s"):
            slow.answer(HELLO)


def test_parameters_are_checked(holder: Holder, authority: Authority, tmp_path: Path) -> None:
    identity = authority.issue("analyst")
    with pytest.raises(InvalidParameter, match="https"):
        HttpsChannel("north", "http://127.0.0.1:1", identity)
    with pytest.raises(InvalidParameter, match="analysts"):
        HolderServer(holder, identity, [])
    nothing = Identity(certificate=tmp_path / "a", key=tmp_path / "b", authority=tmp_path / "c")
    with pytest.raises(InvalidParameter, match="cannot be read"):
        HttpsChannel("north", "https://127.0.0.1:1", nothing)
    assert identity.key.stat().st_mode & 0o077 == 0


def test_answers_are_not_delayed_by_nagle(
    authority: Authority, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    answer = holder.answer

    def noted(data: bytes) -> bytes:
        frame = sys._getframe(2)  # the handler of this connection, behind the holder's server
        found.append(frame.f_locals["self"].connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return answer(data)

    monkeypatch.setattr(holder, "answer", noted)
    listening = HolderServer(holder, authority.issue("north"), ["analyst"])
    listening.start()
    try:
        HttpsChannel("north", listening.address, authority.issue("analyst")).answer(HELLO)
    finally:
        listening.stop()
    assert len(found) == 1
    assert all(found)


@pytest.mark.parametrize(
    "framing", [["Content-Length: 1", "Transfer-Encoding: chunked"], ["Content-Length: 1", "Content-Length: 1"]]
)
def test_a_question_with_more_than_one_length_is_refused(
    server: HolderServer, authority: Authority, framing: list[str]
) -> None:
    analyst = authority.issue("analyst")
    context = ssl.create_default_context(cafile=analyst.authority)
    context.check_hostname = False
    context.load_cert_chain(analyst.certificate, analyst.key)
    host, port = server.address.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw, context.wrap_socket(raw) as connection:
        connection.sendall("\r\n".join(["POST /v1/ask HTTP/1.1", "Host: a", *framing, "", "x"]).encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 411 ")
