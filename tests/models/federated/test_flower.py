"""The Flower apps against stand-ins for Flower's classes; ``make flower`` runs them on the real thing."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from panstream.errors import FederationAborted, MissingExtra, PeerUnreachable
from panstream.models.federated import Federation, flower
from panstream.models.federated._questions import Table
from panstream.models.networks import Domain
from panstream.models.networks.serialization import load, read_metadata
from panstream.primitives.signing import write_signing_key

EXAMPLES = Path(__file__).parents[3] / "examples"
HOSPITALS = ("north", "south", "west")


class FakeMessage:
    def __init__(self, content: Any, dst_node_id: int = 0, message_type: str = "", reply_to: Any = None) -> None:
        self.content = content
        self.dst_node_id = dst_node_id
        self.message_type = message_type
        self.reply_to = reply_to
        self.error = False

    def has_error(self) -> bool:
        return self.error


class FakeApp:
    """Both kinds of app: keeps the function that is registered with it."""

    def __init__(self) -> None:
        self.function: Any = None

    def query(self) -> Any:
        return lambda function: setattr(self, "function", function)

    main = query


class FakeGrid:
    """Delivers every query to the client function of its node."""

    def __init__(self, answer: Any, configs: dict[int, dict[str, str]]) -> None:
        self._answer = answer
        self._configs = configs
        self._replies: dict[str, FakeMessage] = {}
        self.silent = self.broken = False

    def get_node_ids(self) -> list[int]:
        return list(self._configs)

    def push_messages(self, messages: list[FakeMessage]) -> list[str]:
        names = []
        for message in messages:
            assert message.message_type == "query"
            context = SimpleNamespace(node_config=self._configs[message.dst_node_id])
            names.append(f"m{len(self._replies)}")
            self._replies[names[-1]] = self._answer(message, context)
        return names

    def pull_messages(self, names: list[str]) -> list[FakeMessage]:
        found = [] if self.silent else [self._replies[name] for name in names]
        for reply in found:
            reply.error = self.broken
        return found


@pytest.fixture
def fake_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "app": {
            "RecordDict": dict,
            "ConfigRecord": dict,
            "Message": FakeMessage,
            "MessageType": SimpleNamespace(QUERY="query"),
        },
        "clientapp": {"ClientApp": FakeApp},
        "serverapp": {"ServerApp": FakeApp},
    }
    root: Any = ModuleType("flwr")
    monkeypatch.setitem(sys.modules, "flwr", root)
    for name, members in parts.items():
        module: Any = ModuleType(f"flwr.{name}")
        module.__dict__.update(members)
        setattr(root, name, module)
        monkeypatch.setitem(sys.modules, f"flwr.{name}", module)


def grid(tmp_path: Path, holders: tuple[str, ...] = HOSPITALS, rosters: dict[str, str] | None = None) -> FakeGrid:
    configs = {}
    for node, name in enumerate(holders, 1):
        data = EXAMPLES / "data" / "hospitals"
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'[holder]\nname = "{name}"\ndata = "{data}/{name}.csv.gz"\ndomain = "{data}/domain.json"\n'
            f'epsilon = 2.0\ndelta = 1e-6\nledger = "{name}.sqlite"\n{(rosters or {}).get(name, "")}'
        )
        configs[node] = {"holder": str(path)}
    return FakeGrid(flower.client_app().function, configs)


@pytest.mark.slow
@pytest.mark.usefixtures("fake_flower")
def test_a_run_over_query_messages(tmp_path: Path) -> None:
    out = tmp_path / "network.json"
    context = SimpleNamespace(run_config={"federation": str(EXAMPLES / "hospitals.toml"), "out": str(out)})
    flower.server_app().function(grid(tmp_path), context)
    assert len(load(out).domain) == 12
    about = read_metadata(out.read_text())
    assert about["claim"]["epsilon"] == 1.0
    assert about["spent"].keys() == set(HOSPITALS)
    assert all(spent == pytest.approx(1.0, abs=1e-6) for spent in about["spent"].values())


def rosters(tmp_path: Path) -> dict[str, str]:
    keys = {name: write_signing_key(tmp_path / f"{name}.key").hex() for name in HOSPITALS}
    members = "[holder.members]\n" + "".join(f'{name} = "{key}"\n' for name, key in keys.items())
    return {name: f'signing_key = "{name}.key"\n{members}' for name in HOSPITALS}


@pytest.mark.usefixtures("fake_flower")
def test_secure_sums_over_query_messages(tmp_path: Path) -> None:
    """Every message opens the holder's file anew, so the one-time key must survive in the ledger."""
    nodes = grid(tmp_path, rosters=rosters(tmp_path))
    lock = threading.Lock()
    channels = [flower._GridChannel(nodes, node, lock) for node in nodes.get_node_ids()]
    federation = Federation(Domain.load(EXAMPLES / "data" / "hospitals" / "domain.json"), channels)
    sums = federation.secure_sums([Table(attributes=(0, 1), budget=0.01)])
    assert (sums.holders, federation.dropped) == (3, {})
    assert sums.deviations[0] == pytest.approx(math.sqrt(1.5 / 0.01), rel=0.01)  # 3 parts of sigma²/2
    off = abs(int(sums.tables[0].sum()) - federation.records)
    assert off < 8 * sums.deviations[0] * math.sqrt(sums.tables[0].size)  # false alarm below 1e-14
    assert all(0 < each.spent < 1.0 for each in federation.introductions())


@pytest.mark.usefixtures("fake_flower")
def test_nodes_that_err_or_stay_silent(tmp_path: Path) -> None:
    nodes = grid(tmp_path, ("north",))
    channel = flower._GridChannel(nodes, 1, threading.Lock(), timeout=0.4)
    assert channel.answer(b"not a question")  # a refusal is an answer too
    nodes.broken = True
    with pytest.raises(PeerUnreachable, match="reported an error"):
        channel.answer(b"x")
    nodes.silent = True
    with pytest.raises(PeerUnreachable, match=r"within 0\.4 s"):
        channel.answer(b"x")
    with pytest.raises(FederationAborted, match="only 1 of 3"):
        flower._nodes(nodes, 3, 0.3)


def test_without_flower_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    for make in (flower.client_app, flower.server_app):
        with pytest.raises(MissingExtra, match="-m pip install 'flwr"):
            make()


def test_telemetry_is_off() -> None:
    import os

    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
