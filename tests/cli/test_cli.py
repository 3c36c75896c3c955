"""The command line: help, versions, plans as table and JSON, clear errors, a missing extra."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from panstream import __version__
from panstream.cli.command_loader import NAMES, app_with
from panstream.errors import MissingExtra
from tests.cli.running import run

PLAN = ["plan", "density", "--epsilon", "1", "--alpha", ".05", "--beta", ".05", "--universe", "100000"]


def test_version_and_help() -> None:
    assert run("--version").output.strip() == f"panstream {__version__}"
    for command in ([], ["plan"], ["plan", "density"]):
        result = run(*command, "--help")
        assert "Usage" in result.output


def test_no_line_of_help_is_cut() -> None:
    assert "..." not in run("--help", env={"COLUMNS": "80"}).output.replace("[ARGS]...", "")


def test_completion_answers() -> None:
    asked = {"COMP_WORDS": "panstream qu", "COMP_CWORD": "1", "_PANSTREAM_COMPLETE": "complete_bash"}
    script = "from panstream.cli.app import app; app(prog_name='panstream')"
    words = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **asked})
    assert words.stdout.split() == ["query"]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed_and_offers_options(shell: str) -> None:
    script = "from panstream.cli.app import app; app(prog_name='panstream')"
    asked = {"_PANSTREAM_COMPLETE": f"source_{shell}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **asked})
    assert f"complete_{shell}" in shown.stdout, shown.stderr
    line = "panstream synth fit --no-l"
    asked = {
        "COMP_WORDS": line,
        "COMP_CWORD": "3",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    asked["_PANSTREAM_COMPLETE"] = f"complete_{shell}"
    words = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **asked})
    assert "--no-ledger" in words.stdout, words.stderr


def test_a_missing_extra_comes_through_a_pool() -> None:
    error = pickle.loads(pickle.dumps(MissingExtra("drawing", "plots")))
    assert error.extra == "plots"
    assert f"{sys.executable} -m pip install 'matplotlib" in str(error)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("scipy", ["audit"]),
        ("distributed", ["audit", "system"]),
        ("matplotlib", ["run", "panstream.toml", "rows.csv", "--plot", "x.png", "--no-hardening"]),
    ],
)
def test_what_is_missing_is_told_before_anything_is_done(
    module: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = '[stream]\nname = "s"\ncolumns = { n = "int" }\n[store]\ndirectory = "state"\n'
    query = '[[query]]\nname = "q"\nsql = "SELECT COUNT(*) FROM s"\nepsilon = 1.0\n'
    (tmp_path / "panstream.toml").write_text(stream + query)
    (tmp_path / "rows.csv").write_text("n\n1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    done = run(*words, code=2)
    assert f"{sys.executable} -m pip install '" in done.stderr
    assert module in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_query_over_the_declared_budget_ends_with_3(tmp_path: Path) -> None:
    config = tmp_path / "over.toml"
    stream = '[stream]\nname = "s"\ncolumns = { n = "int" }\nbudget = { event = 1.0 }\n'
    config.write_text(stream + '[[query]]\nname = "q"\nsql = "SELECT COUNT(*) FROM s"\nepsilon = 2.0\n')
    run("check", str(config), code=3)


@pytest.mark.parametrize(
    ("stream", "query", "warned"),
    [
        ('time = "at"', 'window = "1 hour"', True),
        ('time = "at"\nlateness = "5 minutes"', 'window = "1 hour"', False),
        ('time = "at"', 'every = "1 hour"\nhorizon = 9', False),
        ("", 'window = "1 hour"', False),
    ],
    ids=["strict", "lateness", "ticks", "arrival"],
)
def test_windows_by_event_time_without_lateness_are_warned_about(
    stream: str, query: str, warned: bool, tmp_path: Path
) -> None:
    config = tmp_path / "windows.toml"
    columns = f'[stream]\nname = "s"\ncolumns = {{ at = "timestamp" }}\n{stream}\n'
    config.write_text(f'{columns}[[query]]\nname = "q"\nsql = "SELECT COUNT(*) FROM s"\nepsilon = 1.0\n{query}\n')
    checked = run("check", str(config))
    assert ("[stream] lateness is 0" in checked.stderr) is warned


def test_help_needs_no_compiler() -> None:
    script = (
        "import sys; sys.argv = ['panstream', '--help']\n"
        "from panstream.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'numba', 'numpy', 'pyarrow', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_plan_density_as_table_and_json() -> None:
    table = run(*PLAN)
    for words in ("panstream", "OptBern m*", "Roth's m", "PPDS", "true loss"):
        assert words in table.output
    plan = json.loads(run(*PLAN, "--json").output)
    assert plan["rows"][0]["name"] == "panstream"
    assert plan["rows"][0]["true_loss"] == 1.0


@pytest.mark.parametrize("option", ["--epsilon", "--alpha", "--beta", "--universe"])
def test_bad_options_are_named(option: str) -> None:
    arguments = [*PLAN]
    arguments[arguments.index(option) + 1] = "-1"
    result = run(*arguments, code=2)
    assert option.strip("-") in result.output
    assert "Traceback" not in result.output


def test_a_missing_extra_prints_its_pip_command() -> None:
    script = "import sys; sys.modules['typer'] = None; sys.argv = ['panstream']\nfrom panstream.cli import main\nmain()"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(f"the command line needs an optional dependency: {sys.executable} -m pip install")
    assert "'typer" in result.stderr
    assert "'rich" in result.stderr


def test_plan_distinct_says_which_and_why() -> None:
    open_universe = run("plan", "distinct", "--epsilon", "1", "--expected", "20000")
    assert "bitmap" in open_universe.output
    assert "relative" in open_universe.output
    known = ["plan", "distinct", "--epsilon", "1", "--universe", "50000"]
    plan = json.loads(run(*known, "--json").output)
    assert plan["algorithm"] == "OptBern"
    assert plan["relative_error"]["10000"] < 0.05
    bad = run("plan", "distinct", "--epsilon", "0", code=2)
    assert "epsilon" in bad.output


def test_plan_names_says_from_how_many_events_on() -> None:
    ask = ["plan", "names", "--epsilon", "1", "--delta", "1e-6"]
    assert "at least 234.2 events" in run(*ask).output
    plan = json.loads(run(*ask, "--max-item-bytes", "8", "--json").output)
    assert 80 < plan["listing_threshold"] < 90 and plan["claim"]["delta"] == 1e-6
    run(*ask, "--memory", "1", code=2)


def test_plan_turnstile_compares_counters() -> None:
    ask = ["plan", "turnstile", "cropped-sum", "--epsilon", "1", "--users", "20000", "--universe", "20000"]
    plan = run(*ask, "--crop", "16", "--largest", "160")
    assert "BlockCounter" in plan.output
    missing = run(*ask, code=2)
    assert "crop must be given" in missing.output
    run("plan", "turnstile", "nonsense", "--epsilon", "1", "--users", "5", code=2)


@pytest.mark.parametrize("command", NAMES)
def test_a_command_has_the_same_help_without_the_others(command: str) -> None:
    alone = CliRunner().invoke(app_with(command), [command, "--help"])
    assert alone.exit_code == 0
    assert alone.output == run(command, "--help").output
