"""``panstream audit key``, ``audit CONFIG --evidence`` and ``audit verify``, as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from panstream.audit.memory.drill import DrillReport
from panstream.audit.product.audit import INGEST_PATHS
from panstream.cli.commands._audit_evidence import collect_evidence, create_key, verify_evidence
from panstream.cli.commands._audit_progress import run_claims
from panstream.errors import ConfigError

CONFIG = """
[stream]
name = "visits"
user = "who"
columns = { who = "int" }

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT who) FROM visits"
epsilon = 1.0
expected = 1000
"""


def panstream(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "panstream.cli", *arguments]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert not check or run.returncode == 0, run.stderr
    return run


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    said = panstream("audit", "key", "audit.key", cwd=tmp_path).stdout
    assert "audit.key.pub" in said
    assert (tmp_path / "audit.key").stat().st_mode & 0o777 == 0o600
    again = panstream("audit", "key", "audit.key", cwd=tmp_path, check=False)
    assert again.returncode == 2
    assert "already exists" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--evidence", "out"], "usage: panstream audit CONFIG --evidence DIR --key FILE"),
        (["x.toml", "--evidence", "out", "--key", "none.key"], "the signing key none.key cannot be read"),
        (["verify", "x.json"], "usage: panstream audit verify"),
        (["verify", "x.json", "--key", "none.pub"], "the public key none.pub cannot be read"),
        (["key"], "usage: panstream audit key FILE"),
    ],
)
def test_wrong_calls_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    run = panstream("audit", *arguments, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert message in run.stderr


def test_the_results_of_all_audits_are_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two audits run on little, and the drill is replaced: its own tests run it."""
    rows = (("http", 10, 0), ("in flight", 5, 5))
    report = DrillReport(head=("route", "sent"), rows=rows, expected_hits=frozenset({"in flight"}), scans=())
    monkeypatch.setattr("panstream.audit.memory.drill.drill", lambda ids: report)
    monkeypatch.setattr("panstream.audit.evidence.source_checkout", lambda: None)
    monkeypatch.setattr("panstream.audit.product.audit.QUICK_INGEST_PATHS", INGEST_PATHS[:1])
    monkeypatch.setattr(
        "panstream.cli.commands._audit_evidence.run_claims",
        lambda names, full, jobs, quiet: run_claims(["OptBern"], full, jobs, quiet),
    )
    config = tmp_path / "panstream.toml"
    config.write_text(CONFIG)
    create_key([str(tmp_path / "audit.key")])
    collect_evidence([str(config)], tmp_path / "out", tmp_path / "audit.key", full=False, jobs=1, quiet=True)
    document = Path(json.loads(capsys.readouterr().out.splitlines()[-1])["document"])
    content = json.loads(document.read_text())
    assert content["audits"]["claims"]["holds"] >= 1
    assert content["audits"]["claims"]["fails"] == 0
    assert [part["ingest_path"] for part in content["audits"]["system"]["parts"]] == ["run csv"]
    assert content["audits"]["system"]["parts"][0]["fields"] > 0
    assert content["audits"]["memory"]["rows"][0] == {"kind": "http", "sent": 10, "found": 0}
    verify_evidence([str(document)], tmp_path / "audit.key.pub", None, as_json=False)
    assert "the signature is valid" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="cannot be read as a wheel"):
        verify_evidence([str(document)], tmp_path / "audit.key.pub", config, as_json=False)


if "PANSTREAM_FULL" in os.environ:  # as in make soak

    def test_evidence_of_a_real_run_is_verified_by_another_process(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All audits run; injected leaks are left to ``make audit-controls``."""
        (tmp_path / "panstream.toml").write_text(CONFIG)
        panstream("audit", "key", "audit.key", cwd=tmp_path)
        code = (
            "import sys; import panstream.audit.evidence as e; e.source_checkout = lambda: None; "
            "from panstream.cli import main; sys.argv[0] = 'panstream'; main()"
        )
        command = [sys.executable, "-c", code, "audit", "panstream.toml", "--evidence", "out", "--key", "audit.key"]
        run = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        [document] = (tmp_path / "out").glob("*.json")
        verified = panstream("audit", "verify", f"out/{document.name}", "--key", "audit.key.pub", cwd=tmp_path)
        assert "the signature is valid" in verified.stdout
        assert "not run: no leaks were injected" in verified.stdout
        content = json.loads(document.read_text())
        assert all(content["audits"][name]["passed"] for name in ("claims", "system", "memory"))
        document.write_text(document.read_text().replace('"passed": true', '"passed": true ', 1))
        refused = panstream(
            "audit", "verify", f"out/{document.name}", "--key", "audit.key.pub", cwd=tmp_path, check=False
        )
        assert refused.returncode == 2
        assert "is not what was signed" in refused.stderr
