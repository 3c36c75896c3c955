"""Grafana's dashboard: whole, laid out without overlaps, and asking only for figures that the server has."""

import copy
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.config.config import read_config
from panstream.engine.runtime.engine import Engine
from panstream.server.service import metrics

PACKAGING = Path(__file__).parents[2] / "packaging"
BOARD = json.loads((PACKAGING / "grafana.json").read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
KINDS = {"text", "row", "timeseries", "table", "bargauge", "stat"}


def figures() -> dict[str, set[str]]:
    """Return the labels of every figure of a server that has answered."""
    stream = {"name": "s", "columns": {"user": "int"}, "user": "user"}
    query = {"name": "people", "sql": "SELECT COUNT(DISTINCT user) FROM s", "epsilon": 1.0}
    with Engine(read_config({"stream": stream, "query": [query]})) as engine:
        engine.release("people")
        text = metrics(engine, failed=False).decode()
    found = re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE)
    return {name: set(re.findall(r'(\w+)="', labels)) for name, labels in found}


def test_panels_ask_for_figures_that_exist() -> None:
    known = figures()
    asked = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
    variables = [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    for text in [*asked, *variables]:
        names = re.findall(r"\bpanstream_\w+", text)
        assert names, text
        for name in names:
            assert name in known, f"{text}: the server has no {name}"
        for label in re.findall(r"(\w+)=~", text) + re.findall(r", (\w+)\)", text):
            assert label in known[names[0]], f"{text}: {names[0]} has no label {label}"
    for panel in PANELS:
        for target in panel.get("targets", []):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in known[re.findall(r"\bpanstream_\w+", target["expr"])[0]]


def test_the_board_is_whole() -> None:
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(BOARD)
    assert BOARD.get("id") is None, "an id is given by the Grafana that imports it"
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    variables = {each["name"] for each in BOARD["templating"]["list"]}
    for panel in PANELS:
        assert panel["type"] in KINDS
        assert panel["title"]
        used = re.findall(r"\$\{?(\w+)", json.dumps(panel))
        assert set(used) <= variables
        if panel["type"] not in ("text", "row"):
            assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
            assert {"defaults", "overrides"} == set(panel["fieldConfig"])
    assert not re.search(r"https?://", json.dumps(BOARD)), "nothing is asked of other hosts"


def test_panels_do_not_overlap() -> None:
    for panel in PANELS:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert place["h"] > 0
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def known(board: dict[str, Any]) -> Any:
    """Return what Grafana's own models, which are generated from its schemas, understand of a dashboard."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    plugins.register_default_plugins()
    return json.loads(JSONEncoder().encode(models.Dashboard.from_json(board)))


def lost(given: Any, back: Any, place: str = "") -> Iterator[str]:
    """Yield where something was left out or changed; what is added are defaults."""
    if isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            yield from lost(value, back.get(key), f"{place}/{key}")
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for at, (one, other) in enumerate(zip(given, back, strict=True)):
            yield from lost(one, other, f"{place}/{at}")
    elif given != back:
        yield place


def test_grafana_understands_all_of_it() -> None:
    """The Grafana of the models is the one that the compose file starts."""
    assert list(lost(BOARD, known(BOARD))) == []
    started = re.search(r"grafana/grafana:(\S+)", (PACKAGING / "site" / "compose.yaml").read_text())
    assert started is not None
    assert started[1] == version("grafana-foundation-sdk").partition("!")[2]
    strange = copy.deepcopy(BOARD)
    place = next(at for at, panel in enumerate(PANELS) if panel["type"] == "timeseries")
    strange["panels"][place]["options"]["legnd"] = {}
    strange["refreshes"] = "1m"
    assert list(lost(strange, known(strange))) == [f"/panels/{place}/options/legnd", "/refreshes"]
