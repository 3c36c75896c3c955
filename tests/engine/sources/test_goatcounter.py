"""Exports of GoatCounter, as its documentation and users show them, become lines that are counted as logs are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.engine.config.config import read_config
from panstream.engine.reporting.export import answers
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.sources.goatcounter import goatcounter_log
from panstream.errors import InvalidParameter

HEAD = (
    "2Path,Title,Event,UserAgent,Browser,System,Session,Bot,Referrer,Referrer scheme,Screen size,"
    "Location,FirstVisit,Date"
)
ROWS = '''\
/,Home,false,,Chrome 128,macOS 14,s-a,0,,,1440x900,KR-11,true,2026-03-01T01:00:00Z
/blog/a,"A, and ""B""",false,,Chrome 128,macOS 14,s-a,0,example.com/x,h,1440x900,KR-11,false,2026-03-01T01:05:00Z
/,Home,false,,Firefox 129,Linux,s-b,0,Google,g,1920x1080,US-CA,true,2026-03-01T02:00:00Z
/blog/b,B,false,,Safari 17,iOS 17,s-c,0,may,c,390x844,AT,true,2026-03-01T02:30:00Z
/,Home,false,,Chrome 128,Linux,s-d,1,,,1280x720,DE,true,2026-03-01T03:00:00Z
download,Download,true,,Chrome 128,macOS 14,s-e,0,,,1440x900,KR-11,true,2026-03-01T03:30:00Z
"/a b""c",Odd,false,"Mozilla/5.0 (X11) ""Odd"" Firefox/9",Firefox 9,Linux,s-f,0,,,,,true,2026-03-01T04:00:00Z
'''
COUNTED = {
    "views": "event = 'view'",
    "blog": "section = '/blog'",
    "chrome on macos": "browser = 'Chrome' AND system = 'macOS'",
    "mobile": "device = 'mobile'",
    "campaign": "campaign = 'may'",
    "referred": "referrer_host IN ('example.com', 'google')",
}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "export.csv.gz"
    path.write_bytes(gzip.compress(f"{HEAD}\n{ROWS}".encode()))
    return path


def test_views_are_counted_as_those_of_a_log(export: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["web", "--from-goatcounter", str(export)])
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 5, "neither robots nor events"
    log = tmp_path / "history.log"
    log.write_text(done.output)
    columns = ("event", "section", "browser", "system", "device", "campaign", "referrer_host")
    config = read_config(
        {
            "web": {"site": "example.org", "source": "log"},
            "stream": {
                "name": "web",
                "time": "time",
                "columns": {"visitor": "int", "time": "timestamp", **dict.fromkeys(columns, "string")},
            },
            "query": [
                {"name": name, "sql": f"SELECT COUNT(*) FROM web WHERE {condition}", "epsilon": 500.0}
                for name, condition in COUNTED.items()
            ],
        }
    )
    with Engine(config) as engine:
        ingest(engine, [str(log)])
        engine.finish()
        counts = {each["name"]: round(each["value"]) for each in answers(engine)}
    wanted = {"views": 5, "blog": 2, "chrome on macos": 2, "mobile": 1, "campaign": 1, "referred": 2}
    assert {name: counts[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "text", ["date,visitors,pageviews\n2026-03-01,10,30\n", "", f"{HEAD}\n/,,false,,,,s,0,,,,,true,soon\n"]
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    """Such as Plausible's, which has daily totals."""
    (tmp_path / "export.csv").write_text(text)
    with pytest.raises(InvalidParameter, match=r"no CSV export of GoatCounter|Date must be a time"):
        list(goatcounter_log(tmp_path / "export.csv"))
