"""``panstream figures``: files, resuming, both cores, and what is said when something is missing."""

import csv
import json
import signal
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from panstream import __version__
from panstream.cli.commands import _figures_run as figures_run
from panstream.cli.commands._figures_run import FigureResults, _read_data, make_figures
from panstream.cli.commands.figures import figures
from panstream.papers.figures import FigureOptions, find_figure
from panstream.primitives.interrupts import INTERRUPTS

app = typer.Typer()
app.command()(figures)


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments, "--jobs", "1"])
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_figure_is_data_manifest_and_pictures(tmp_path: Path) -> None:
    code, output = invoke("--out", str(tmp_path), "--quick", "--only", "000-3", "--seed", "7")
    assert code == 0, output
    assert "50 points computed" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000-3.csv", "000-3.json", "000-3.png", "000-3.svg"]
    manifest = json.loads((tmp_path / "000-3.json").read_text())
    assert manifest["settings"] == {
        "seed": 7,
        "quick": True,
        "universe": 100_000,
        "length": 100_000,
        "repetitions": None,
        "diabetes": "",
    }
    assert manifest["version"] == __version__
    assert manifest["finished"] is True
    assert manifest["created"].startswith("20")
    with (tmp_path / "000-3.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 50 * 4
    dwork = {float(row["x"]): float(row["y"]) for row in rows if row["series"] == "Dwork"}
    assert dwork[0.5] == pytest.approx(0.2876820724517809)  # -ln(1 - ε/2)
    picture = ElementTree.parse(tmp_path / "000-3.svg").getroot()
    assert "allocated privacy budget ε" in "".join(picture.itertext())
    assert (tmp_path / "000-3.png").read_bytes().startswith(b"\x89PNG")


def test_finished_points_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_figures(tmp_path, FigureOptions(), only=["000-3"], jobs=1, data_only=True, created="then")
    path = tmp_path / "000-3.csv"
    lines = path.read_text().splitlines()
    # A run that was stopped: points 0..9 are there, the eleventh is cut off in the middle of a line.
    path.write_text("\n".join([*lines[: 1 + 4 * 10], *lines[41:43], lines[43][:12]]))
    computed: list[int] = []
    real = figures_run.evaluate_point
    monkeypatch.setattr(figures_run, "evaluate_point", lambda k, i, s: computed.append(i) or real(k, i, s))
    make_figures(tmp_path, FigureOptions(), only=["000-3"], jobs=1, data_only=True, created="then")
    assert computed == list(range(10, 50))
    assert path.read_text().splitlines() == lines
    computed.clear()
    make_figures(tmp_path, FigureOptions(), only=["000-3"], jobs=1, data_only=True)
    assert computed == []
    make_figures(tmp_path, FigureOptions(seed=2), only=["000-3"], jobs=1, data_only=True)  # other options: all anew
    assert len(computed) == 50


def test_damaged_manifests_are_not_believed(tmp_path: Path) -> None:
    make_figures(tmp_path, FigureOptions(), only=["000-3"], jobs=1, data_only=True)
    (tmp_path / "000-3.json").write_text("{")
    result = FigureResults(find_figure("000-3"), FigureOptions(), tmp_path, "now")
    result.open()
    assert result.reused == 0
    assert _read_data(tmp_path / "nowhere.csv") == {}


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    for jobs in (1, 2):
        make_figures(
            tmp_path / str(jobs), FigureOptions(), only=["000-2", "000-3"], jobs=jobs, data_only=True, created="now"
        )
    for name in ("000-2.csv", "000-3.csv", "000-3.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.slow
def test_pictures_do_not_change_with_the_date(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_figures(tmp_path / name, FigureOptions(), only=["000-3"], jobs=1, created=name)
    for ending in ("svg", "png"):
        assert (tmp_path / "a" / f"000-3.{ending}").read_bytes() == (tmp_path / "b" / f"000-3.{ending}").read_bytes()


def test_unknown_figures_are_named(tmp_path: Path) -> None:
    code, output = invoke("--out", str(tmp_path), "--only", "000-9")
    assert code == 2
    assert "figure must be one of 000-1" in output
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, output = invoke("--out", str(tmp_path), "--only", "000-3")
    assert code == 2
    assert "-m pip install 'matplotlib" in output
    code, output = invoke("--out", str(tmp_path), "--only", "000-3", "--data-only")
    assert code == 0, output


def test_interrupted_runs_say_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(figures_run, "evaluate_point", stop)
    monkeypatch.setattr(INTERRUPTS, "_number", signal.SIGINT)  # an earlier test may have left another
    code, output = invoke("--out", str(tmp_path), "--only", "000-3", "--data-only")
    assert code == 130
    assert "run the same command to continue" in output
