"""``panstream explain --through`` says what a data engine holds in clear, as the guide does."""

import json
from pathlib import Path

from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.distributed.engine_exposure import EXPOSURE
from tests.server.server_live import write_config

GUIDES = Path(__file__).parents[2] / "docs" / "howto"
PAGES = {"spark": "spark-and-beam.md", "beam": "beam.md"}


def test_explain_prints_what_an_engine_holds_in_clear(tmp_path: Path) -> None:
    write_config(tmp_path)
    for engine, lines in EXPOSURE.items():
        options = ["explain", str(tmp_path / "panstream.toml"), "--through", engine]
        shown = CliRunner().invoke(app, options)
        assert shown.exit_code == 0, shown.output
        for name, text in lines:
            assert f"  {name:<11} {text}" in shown.stdout.splitlines()
        document = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
        assert document["through"] == {"engine": engine, **dict(lines)}
        assert f"--through {engine}" in (GUIDES / PAGES[engine]).read_text()


def test_an_engine_without_a_sink_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path)
    shown = CliRunner().invoke(app, ["explain", str(tmp_path / "panstream.toml"), "--through", "storm"])
    assert shown.exit_code == 2
    assert "through must be one of spark, beam" in shown.stderr
