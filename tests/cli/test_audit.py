"""The command ``panstream audit``: table, JSON, page, exit codes, and the odds of one member."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.audit import Case, ExactLoss, register_case, unregister_case
from tests.cli.running import run as run_command

run = functools.partial(run_command, "audit")


@pytest.mark.slow
def test_table_json_and_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    shown = run("DworkPair", "Mir's Algorithm 1", "--quick", "--jobs", 1, "--html", page)
    summary = "claims hold; 1 known mistakes are detected; nothing unexpected"
    for words in ("DworkPair, deletions", "1.000", "∞", "holds", "caught", summary):
        assert words in shown.output
    assert "<svg" in page.read_text()
    rows = json.loads(run("DworkPair", "--json", "--jobs", 1).output)
    assert {row["kind"] for row in rows} == {"production"}
    assert {"name", "kind", "claimed", "exact", "lower_bound", "verdict"} <= set(rows[0])
    assert all(row["verdict"] == "holds" for row in rows)


@pytest.mark.parametrize(("kind", "loss", "code"), [("production", 2.0, 1), ("control", 0.5, 1), ("control", 2.0, 0)])
def test_exit_codes(kind: Any, loss: float, code: int) -> None:
    register_case(Case(name="made up", kind=kind, claimed=1.0, exact=lambda: ExactLoss(loss=loss)))
    try:
        run("made up", code=code)
    finally:
        unregister_case("made up")


def test_wrong_names_and_options() -> None:
    assert "no case begins with 'no such thing'" in run("no such thing", code=2).output
    run("DworkPair", "--member", "7", code=2)
    run("state", code=2)
    run("state", "nowhere.bin", "--member", "7", code=2)


def test_state_asks_first(tmp_path: Path) -> None:
    path = tmp_path / "state"
    monitor = OptBern(universe=50, epsilon=1.0).start()
    path.write_bytes(monitor.to_bytes())
    refused = run("state", path, "--member", 7, input="n\n", code=1)
    assert "is an intrusion" in refused.output
    assert "odds" not in refused.output
    for answer in (run("state", path, "--member", 7, input="y\n"), run("state", path, "--member", 7, "--yes")):
        assert "odds multiplied by" in answer.output
        assert "0.5 before" in answer.output
    run("state", path, "--member", 70, "--yes", code=1)


def test_state_of_a_bitmap_tells_numbers_from_text(tmp_path: Path) -> None:
    path = tmp_path / "state"
    monitor = Bitmap(epsilon=float("inf"), buckets=512, levels=8).start()
    monitor.update([17])
    path.write_bytes(monitor.to_bytes())
    assert "before reading the state, 1 after" in run("state", path, "--member", 17, "--yes").output
    assert "before reading the state, 0 after" in run("state", path, "--member", 17, "--text", "--yes").output
    path.write_bytes(b"junk")
    run("state", path, "--member", 17, "--yes", code=1)
