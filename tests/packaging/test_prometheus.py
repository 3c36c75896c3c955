"""Prometheus itself: its tool understands our files and figures, and a real one scrapes a server."""

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.browser.serving import serving
from tests.ports import free_port
from tests.waiting import PATIENCE

PACKAGING = Path(__file__).parents[2] / "packaging"


def test_its_tool_understands_the_configurations() -> None:
    files = sorted(map(str, PACKAGING.rglob("prometheus.yml")))
    assert len(files) == 2
    subprocess.run(["promtool", "check", "config", "--syntax-only", *files], check=True, capture_output=True)


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    series = yaml.safe_load((Path(__file__).parent / "alerts_test.yml").read_text())
    test = tmp_path / "test.yml"
    test.write_text(yaml.safe_dump({**series, "rule_files": [str(PACKAGING / "alerts.yml")]}))
    done = subprocess.run(["promtool", "test", "rules", str(test)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = yaml.safe_load((PACKAGING / "alerts.yml").read_text())["groups"][0]["rules"]
    fired = {one["alertname"] for one in series["tests"][0]["alert_rule_test"] if one.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in rules}


def test_every_metric_that_is_named_exists() -> None:
    """In documentation, alerts and Grafana's dashboard."""
    root = PACKAGING.parent
    texts = [*(root / "docs").rglob("*.md"), *PACKAGING.glob("*.yml"), *PACKAGING.rglob("*.json"), root / "README.md"]
    named = {name for path in texts for name in re.findall(r"\bpanstream_[a-z_]+\b", path.read_text("utf-8"))}
    package = root / "src" / "panstream"
    sources = (package / "server" / "service.py", package / "distributed" / "sharded" / "_task_engine.py")
    code = "\n".join(path.read_text("utf-8") for path in sources)
    known = set(re.findall(r"\bpanstream_[a-z_]+\b", code))
    others = {"panstream_answers", "panstream_info"}  # the sink's table, and what Prometheus makes of an info family
    assert not {name.removesuffix("_total") for name in named} - known - others


def _ask(address: str, query: str) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
        return list(json.load(answer)["data"]["result"])


@pytest.mark.slow
def test_it_scrapes_a_server(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path) as server:
        server.ask("POST", "/v1/queries/visitors/release", b"")
        with urllib.request.urlopen(f"{server.address}/metrics") as answer:
            text = answer.read()
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
        assert (checked.returncode, checked.stdout) == (0, b""), checked.stderr
        config = yaml.safe_load((PACKAGING / "site" / "prometheus.yml").read_text())
        config["global"]["scrape_interval"] = "1s"
        (job,) = config["scrape_configs"]
        del job["authorization"]  # on loopback, without tokens
        job["static_configs"] = [{"targets": [server.address.removeprefix("http://")]}]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
        with subprocess.Popen(["prometheus", *options], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
            try:
                found = list[dict[str, object]]()
                until = time.monotonic() + PATIENCE
                while not found and time.monotonic() < until:
                    try:
                        found = _ask(f"http://127.0.0.1:{port}", 'panstream_answer{query="visitors"}')
                    except OSError:
                        found = []  # not there yet
                    threading.Event().wait(0.1)  # the core is needed by what is waited for
                assert found, "nothing was scraped"
            finally:
                process.terminate()
        last = server.ask("GET", "/v1/releases?query=visitors")["releases"][-1]
    assert float(found[0]["value"][1]) == pytest.approx(last["value"])  # type: ignore[index]
