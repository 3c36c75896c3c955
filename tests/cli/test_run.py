"""panstream run and its companions as a user runs them: tables, JSON, files, exit codes, Ctrl-C, what stays unsaid."""

import contextlib
import csv
import importlib
import json
import os
import pkgutil
import signal
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from panstream.cli.hardening import ENVIRONMENT, MARK
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import InvalidParameter
from tests.cli.running import run as run_command
from tests.waiting import until

HIDDEN_DETAILS_NOTE = "note: rows that cannot be used are left out; run this in a terminal to see which"
CONFIG = """
[stream]
name = "visits"
user = "visitor"
time = "at"
{stream}
[stream.columns]
at = "timestamp"
visitor = "string"
page = "string"
seconds = "double"

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT visitor) FROM visits WHERE page = '/news'"
epsilon = 1.0
expected = 1000

[[query]]
name = "visits"
sql = "SELECT COUNT(*) FROM visits"
epsilon = 1.0
every = "1 hour"
horizon = 24

[[query]]
name = "stay"
sql = "SELECT page, AVG(seconds) FROM visits WHERE seconds > 0 GROUP BY page"
epsilon = 1.0
lower = 0
upper = 100
groups = {{ page = ["/", "/news"] }}
{more}
[store]
directory = "state"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    with open("visits.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["at", "visitor", "page", "seconds"])
        for row in range(6000):
            minute = row // 20
            stamp = f"2026-03-01 {minute // 60:02d}:{minute % 60:02d}:00"
            out.writerow([stamp, f"secret-{row % 900}", "/news" if row % 2 else "/", 20 + row % 41])
    return tmp_path


def write_config(directory: Path, *, stream: str = "", more: str = "") -> None:
    (directory / "panstream.toml").write_text(CONFIG.format(stream=stream, more=more))


def run(*arguments: str, code: int = 0, **options: Any) -> Any:
    result = run_command(*arguments, code=code, **options)
    assert "secret-" not in result.output + result.stderr
    return result


def answers(*arguments: str) -> dict[str, dict[str, Any]]:
    lines = run("run", "panstream.toml", *arguments, "--json").stdout.splitlines()
    return {answer["name"]: answer for answer in map(json.loads, lines)}


def test_json_answers_are_near_the_truth(here: Path) -> None:
    found = answers("visits.csv")
    assert set(found) == {"visitors", "visits", "stay [page=/]", "stay [page=/news]", "unusable rows"}
    for name, truth in {"visitors": 450, "visits": 6000, "stay [page=/news]": 40}.items():
        assert abs(found[name]["value"] - truth) < 8 * found[name]["standard_error"]
    for answer in found.values():
        assert {"name", "value", "standard_error", "interval", "epsilon", "claim"} <= set(answer)
        assert answer["interval"][0] <= answer["value"] <= answer["interval"][1]
        assert answer["claim"]["locations"] == ["memory", "disk"]


def test_a_second_run_reads_nothing_anew_and_draws_nothing(here: Path) -> None:
    assert answers("visits.csv") == answers("visits.csv")
    assert "no answers are left" not in run("run", "panstream.toml", "visits.csv").stderr, "nothing was taken in"


def test_rows_taken_in_after_the_last_answer_are_told_of(here: Path) -> None:
    """The old answer was repeated without a word; how many rows came is not said."""
    first = answers("visits.csv")
    with open("visits.csv", "a") as file:
        file.write("2026-03-01 06:00:00,secret-one,/news,30\n" * 777)
    result = run("run", "panstream.toml", "visits.csv", "--json")
    again = {answer["name"]: answer for answer in map(json.loads, result.stdout.splitlines())}
    assert again["visitors"] == first["visitors"]
    assert again["visits"] != first["visits"]
    assert "rows were counted, but visitors, stay: no answers are left" in result.stderr
    assert "releases =" in result.stderr
    assert "777" not in result.stderr


MOMENTS = [
    "panstream.engine.planner.person_division.load_divided_config",
    "panstream.engine.runtime.ingest.open_configured_source",
    "panstream.engine.runtime.selector.Selector.__init__",
    "panstream.engine.runtime.engine.Engine.__init__",
    "panstream.engine.runtime.engine.Engine.positions",
    "panstream.engine.runtime.ingest.ingest_all",
]


@pytest.mark.slow
@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_before_the_first_step_is_noticed(
    here: Path, monkeypatch: pytest.MonkeyPatch, moment: str, number: int, swallowed: bool
) -> None:
    """The signal's exit code and no row taken, wherever it finds the command, and whoever swallows what is raised."""
    for module in (
        "adhoc",
        "runtime.selector",
    ):  # imported while a moment is patched, they would hold the patch for good
        importlib.import_module(f"panstream.engine.{module}")
    owner, name = moment.rsplit(".", 1)
    target: Any = pkgutil.resolve_name(owner)
    real = getattr(target, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(*[KeyboardInterrupt] if swallowed else []):
            os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted)
        result = run("run", "panstream.toml", "visits.csv", code=128 + number)
    assert result.stdout == ""
    assert "interrupted" in result.stderr
    assert abs(answers("visits.csv")["visits"]["value"] - 6000) < 300, "nothing was taken before, all of it now"


STARTER = """
import ctypes, functools, operator, os, signal
from panstream.cli.main import main
real, kill = os.execve, ctypes.PyDLL(None).kill
def execve(*arguments):
    # One after the other without a line of Python in between, in which the signal would be handled.
    steps = functools.partial(kill, os.getpid(), signal.SIGINT), functools.partial(real, *arguments)
    list(map(operator.call, steps))
os.execve = execve
main()
"""


@pytest.mark.slow
def test_an_interrupt_while_the_command_starts_itself_again_is_noticed(here: Path) -> None:
    script = here / "panstream.py"
    script.write_text(STARTER)
    environment = {key: value for key, value in os.environ.items() if key not in {MARK, *ENVIRONMENT}}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path and path != str(here))
    command = [sys.executable, "-P", str(script), "run", "panstream.toml", "visits.csv"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("state").exists()


@pytest.mark.slow
def test_table_files_and_plot(here: Path) -> None:
    result = run("run", "panstream.toml", "visits.csv", "--out", "a.csv", "--plot", "a.png")
    for words in ("visitors", "stay [page=/news]", "95% interval", "one event", "1 unannounced"):
        assert words in result.stdout
    with open("a.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["number"] for row in rows if row["query"] == "visits"] == ["1", "2", "3", "4", "5"]
    assert (here / "a.png").stat().st_size > 1000
    run("run", "panstream.toml", "visits.csv", "--out", "a.parquet")
    assert parquet.read_table("a.parquet").num_rows == len(rows)
    assert "end in .csv or .parquet" in run("run", "panstream.toml", "visits.csv", "--out", "a.xlsx", code=2).stderr


def test_bad_rows_are_told_by_number_to_the_sender_only(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("visits.csv", "a") as file:
        file.write("2026-03-01 05:00:00,secret-one,/news,long\nyesterday,secret-two,/,1\n")
    monkeypatch.setattr("panstream.cli.commands.run._is_interactive", lambda: True)
    result = run("run", "panstream.toml", "visits.csv", "--json")
    assert "2 rows skipped as bad: 6001, 6002" in result.stderr
    assert "skipped" not in result.stdout  # the number itself may turn up in an estimate's digits


def test_a_log_is_told_the_same_whatever_rows_hold(here: Path) -> None:
    """Under cron or systemd nobody knows who reads what is printed."""
    run("run", "panstream.toml", "visits.csv")
    with open("fine.csv", "w") as file:
        file.write(
            "at,visitor,page,seconds\n2026-03-01 05:00:00,secret-one,/news,1\n2026-03-01 05:00:00,secret-two,/,1\n"
        )
    good = run("run", "panstream.toml", "fine.csv", "--json").stderr
    with open("more.csv", "w") as file:
        file.write("at,visitor,page,seconds\n2026-03-01 05:00:00,secret-one,/news,long\nyesterday,secret-two,/,1\n")
    assert run("run", "panstream.toml", "more.csv", "--json").stderr == good
    assert "left out" in good


def test_stop_at_a_bad_row(here: Path) -> None:
    write_config(here, stream='on_bad_row = "stop"')
    with open("visits.csv", "a") as file:
        file.write("2026-03-01 05:00:00,secret-one,/news,long\n")
    assert "row 6001" in run("run", "panstream.toml", "visits.csv", code=1).stderr


def test_stopping_at_a_bad_row_has_no_claim(here: Path) -> None:
    """One row decides whether 6,000 others count, so there is no finite loss to print."""
    write_config(here, stream='on_bad_row = "stop"')
    reported = run("explain", "panstream.toml").stdout
    assert "lets one row decide" in reported
    for line in run("run", "panstream.toml", "visits.csv", "--json").stdout.splitlines():
        assert json.loads(line)["epsilon"] == "inf"
    from panstream.engine.config.config import load_config
    from panstream.server.server import ServerSettings, make_server

    with pytest.raises(InvalidParameter, match='on_bad_row must be "skip" to be served'):
        make_server(load_config("panstream.toml"), ServerSettings(port=0))
    write_config(here, stream='on_bad_row = "stop"\nbudget = { event = 9.0 }')
    assert "budget" in run("check", "panstream.toml", code=3).stderr


def test_check_refuses_an_epsilon_that_no_state_can_be_started_with(here: Path) -> None:
    stream = 'name = "visits"\ncolumns = { visitor = "string" }\n'
    query = 'name = "rows"\nsql = "SELECT COUNT(*) FROM visits"\nepsilon = 100000.0\nreleases = 1000\n'
    Path("large.toml").write_text(f"[stream]\n{stream}[[query]]\n{query}")
    refused = [
        run(*command, code=2).stderr for command in (["check", "large.toml"], ["run", "large.toml", "visits.csv"])
    ]
    assert all("epsilon must be below" in stderr for stderr in refused)


def test_check_rows_tells_what_is_bad_and_makes_nothing(here: Path) -> None:
    before = sorted(Path().iterdir())
    assert "every row can be used" in run("check", "panstream.toml", "--rows", "visits.csv").stdout
    with open("visits.csv", "a") as file:
        file.write("2026-03-01 05:00:00,secret-one,/news,long\n2099-03-01 05:00:00,secret-two,/,1\n2026-03-01,,/,1\n")
    result = run("check", "panstream.toml", "--rows", "visits.csv", code=1)
    reported = [line for line in result.stdout.splitlines() if ", row " in line]
    assert [line.split(":")[0] for line in reported] == [f"visits.csv, row {number}" for number in (6001, 6002, 6003)]
    assert "seconds" in reported[0]
    assert "the time is in the future" in reported[1]
    assert "visitor" in reported[2]
    assert "2099" not in result.stdout + result.stderr
    assert sorted(Path().iterdir()) == before, "no store, no ledger"


def test_check_rows_asks_every_query(here: Path) -> None:
    write_config(
        here,
        more=MORE + '\n[[query]]\nname = "staff"\nsql = "SELECT COUNT(DISTINCT visitor) FROM visits"\n'
        'epsilon = 1.0\nuniverse = ["anna"]\n',
    )
    result = run("check", "panstream.toml", "--rows", "visits.csv", code=1)
    assert "query 'staff' cannot use its user" in result.stdout
    assert "more" in result.stdout


def test_exit_codes(here: Path) -> None:
    assert "no configuration file" in run("run", "other.toml", "visits.csv", code=2).stderr
    assert "does not exist" in run("run", "panstream.toml", "absent.csv", code=1).stderr
    run("run", "panstream.toml", "visits.csv")
    write_config(here, stream="budget = { event = 3.0 }\n", more=MORE)
    assert "; the limit is" in run("run", "panstream.toml", "visits.csv", code=3).stderr
    text = (here / "panstream.toml").read_text().replace('name = "visits"\nsql', 'name = "other"\nsql')
    (here / "panstream.toml").write_text(text.replace(MORE, ""))
    assert "4.05; the limit is 3" in run("run", "panstream.toml", "visits.csv", code=3).stderr
    with SnapshotStore(here / "state"):
        write_config(here)
        assert "another process" in run("run", "panstream.toml", "visits.csv", code=1).stderr


MORE = """
[[query]]
name = "third"
sql = "SELECT COUNT(*) FROM visits"
epsilon = 1.0
"""


def test_leave_open_then_finish(here: Path) -> None:
    assert answers("visits.csv", "--leave-open")["visits"]["number"] == 4
    found = answers("visits.csv")
    assert found["visits"]["number"] == 5
    assert found["visits"]["value"] == pytest.approx(6000, abs=300)


@pytest.mark.slow
def test_standard_input_and_the_hardened_environment(here: Path) -> None:
    command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", "--json"]
    with open("visits.csv") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[1])["value"] == pytest.approx(6000, abs=300)
    assert done.stderr == f"{HIDDEN_DETAILS_NOTE}\n"
    public = json.loads(run("inspect", "state").stdout)
    assert public["producers"] == 0  # the next pipe is another stream


@pytest.mark.slow
def test_run_starts_again_with_a_wiping_allocator(here: Path) -> None:
    for options, expected in (([], True), (["--no-hardening"], False)):
        command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", *options]
        usual = {key: value for key, value in os.environ.items() if key not in (*ENVIRONMENT, MARK)}
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=usual
        )
        try:
            until((here / "state" / "state.sealed").exists)
            if expected and os.geteuid() != 0:
                with pytest.raises(
                    PermissionError
                ):  # tests/cli/test_hardening.py has such a process tell its environment
                    Path(f"/proc/{child.pid}/environ").read_bytes()
                continue
            raw = Path(f"/proc/{child.pid}/environ").read_bytes()
            environment = raw.replace(b"\0", b":").decode()  # glibc puts zeros between the tunables that it has read
            found = {key: f"{key}={value}" in environment for key, value in ENVIRONMENT.items()}
            assert found == dict.fromkeys(ENVIRONMENT, expected)
        finally:
            child.send_signal(signal.SIGINT)
            child.communicate()
            for path in (here / "state").iterdir():
                path.unlink()
        assert child.returncode == 130


@pytest.mark.slow
def test_ctrl_c_keeps_the_state(here: Path) -> None:
    command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", "visits.csv", "--follow"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
    log = here / "state" / "releases.sqlite"
    until((here / "state" / "state.sealed").exists)
    until(log.exists)

    def four_are_made() -> bool:
        with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(log) as connection:  # no table yet
            return bool(connection.execute("SELECT count(*) FROM releases").fetchone()[0] >= 4)
        return False

    until(four_are_made, every=0.1)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert child.returncode == 130, errors
    assert b"Traceback" not in errors
    public = json.loads(run("inspect", "state").stdout)
    assert public["queries"]["visits"]["releases made"] == 4


@pytest.mark.slow
def test_inspect_shows_public_parameters_only(here: Path) -> None:
    run("run", "panstream.toml", "visits.csv")
    public = json.loads(run("inspect", "state").stdout)
    assert public["queries"]["visitors"]["algorithm"] == "Bitmap"
    assert public["announced intrusions"] == []
    assert "bits" not in json.dumps(public)
    run("inspect", "state", "--state", input="n\n", code=1)
    assert json.loads(run("inspect", "state").stdout)["announced intrusions"] == []
    shown = json.loads(run("inspect", "state", "--state", "--yes").stdout)
    assert set(shown["0/0/visitors"]["bits"]) <= {0, 1}
    assert len(json.loads(run("inspect", "state").stdout)["announced intrusions"]) == 1
    assert "holds no store" in run("inspect", ".", code=2).stderr


@pytest.mark.slow
def test_a_state_that_cannot_be_refreshed_is_shown_once(here: Path) -> None:
    run("run", "panstream.toml", "visits.csv")
    assert "bits" in run("inspect", "state", "--state", "--yes").stdout
    again = run("inspect", "state", "--state", "--yes", code=3)
    assert "'visitors'" in again.stderr
    assert "second one is not covered" in again.stderr
    assert "bits" not in again.stdout
    run("run", "panstream.toml", "visits.csv")  # what was noted outlives the engine's next commit
    run("inspect", "state", "--state", "--yes", code=3)


def test_an_announced_intrusion_says_which_questions_are_covered(here: Path) -> None:
    text = Path("panstream.toml").read_text()
    Path("panstream.toml").write_text(text.replace("expected = 1000", "expected = 1000\nannounced = 1"))
    run("run", "panstream.toml", "visits.csv")
    announce = ("intrusion", "announce", "panstream.toml", "--yes")
    for options, reason in (
        (("--copied-at", "noon"), "--copied-at must be a date and time with a time zone"),
        (("--copied-at", "2026-03-08T03:00:00"), "has none"),
        (("--copied-at", "2999-01-01T00:00:00Z"), "is in the future"),
        (("--copied-at", "2026-03-08T03:00:00Z", "--just-now"), "not both"),
    ):
        assert reason in run(*announce, *options, code=2).stderr
    assert json.loads(run("inspect", "state").stdout)["announced intrusions"] == []
    dated = run(*announce, "--copied-at", "2001-01-01T00:00:00Z").stdout
    assert "visitors: not refreshed, covered: it began later, so it was not copied" in dated
    done = run(*announce, "--just-now").stdout
    assert "visitors: refreshed, covered" in done and "visits: refreshed, covered" in done
    unknown = run(*announce)
    assert "announced before: " in unknown.stderr and "copied just then; covered" in unknown.stderr
    assert "visitors: not refreshed, not covered: rows may have been applied since" in unknown.stdout
    records = json.loads(run("inspect", "state").stdout)["announced intrusions"]
    assert [each["copied"] for each in records] == ["2001-01-01T00:00:00Z", "just now", None]
    assert {each["query"]: each["covered"] for each in records[2]["verdicts"]}["visitors"] is False


def test_an_announced_intrusion_is_the_one_look(here: Path) -> None:
    run("run", "panstream.toml", "visits.csv")
    run("intrusion", "announce", "panstream.toml", "--yes")
    assert "is not covered" in run("inspect", "state", "--state", "--yes", code=3).stderr


@pytest.mark.slow
def test_states_that_are_refreshed_are_shown_again(here: Path) -> None:
    text = Path("panstream.toml").read_text()
    Path("panstream.toml").write_text(text.replace("expected = 1000", "expected = 1000\nannounced = 1"))
    run("run", "panstream.toml", "visits.csv")
    assert "frozen" in run("inspect", "state", "--state", "--yes").stdout
    assert "frozen" in run("inspect", "state", "--state", "--yes").stdout, "one refresh was paid for"
    run("inspect", "state", "--state", "--yes", code=3)


@pytest.mark.slow
def test_recover_goes_back_when_asked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("run", "panstream.toml", "visits.csv", "--leave-open")
    assert "nothing to recover" in run("recover", "state").stdout
    file = Path("state") / "state.sealed"
    with SnapshotStore("state") as store:
        parts = store.load() or {}
        parts["meta"] = json.dumps({**json.loads(parts["meta"]), "applied": 1}).encode()
        store.commit(parts)
        before = file.read_bytes()
        monkeypatch.setattr(store, "_overwrite", lambda slot: None)
        store.commit(parts)
    found = bytearray(file.read_bytes())
    before += bytes(len(found) - len(before))
    found[next(at for at in range(2 * 4096, len(found)) if before[at] != found[at])] ^= 1
    file.write_bytes(found)
    for command in (("run", "panstream.toml", "visits.csv"), ("inspect", "state")):
        assert "panstream recover" in run(*command, code=1).stderr
    run("recover", "state", input="n\n", code=1)
    assert file.read_bytes() == found
    assert "restored" in run("recover", "state", "--yes").stdout
    with SnapshotStore("state") as store:  # a copy may have shown the rows that were lost
        assert json.loads((store.load() or {})["meta"])["applied"] > 1
    assert "visitors" in run("run", "panstream.toml", "visits.csv").stdout


def test_a_state_older_than_its_answers_is_refused(here: Path) -> None:
    """A whole backup put back: the answers published since then would be drawn again."""
    run("run", "panstream.toml", "visits.csv", "--leave-open")
    old = (Path("state") / "state.sealed").read_bytes()
    run("run", "panstream.toml", "visits.csv")
    (Path("state") / "state.sealed").write_bytes(old)
    assert "rolled back" in run("run", "panstream.toml", "visits.csv", code=1).stderr


def test_inspect_a_state_file(here: Path) -> None:
    from panstream.algorithms.density import OptBern

    Path("one.state").write_bytes(OptBern(universe=100, epsilon=1.0).start().to_bytes())
    shown = json.loads(run("inspect", "one.state").stdout)
    assert shown["algorithm"] == "OptBern"
    assert "a single file cannot record" in run("inspect", "one.state", "--state", code=1).stderr


def test_announce_an_intrusion(here: Path) -> None:
    run("run", "panstream.toml", "visits.csv", "--leave-open")
    result = run("intrusion", "announce", "panstream.toml", "--yes")
    assert "visits: refreshed" in result.stdout
    assert "visitors: not refreshed" in result.stdout
    assert "is not covered" in result.stderr
    assert answers("visits.csv")["visits"]["value"] == pytest.approx(6000, abs=400)


def test_announced_intrusions_are_priced(here: Path) -> None:
    Path("panstream.toml").write_text(
        Path("panstream.toml").read_text().replace("[[query]]", "[[query]]\nannounced = 1")
    )
    explained = run("explain", "panstream.toml").stdout
    assert "1 paid for in advance; without, the error would be" in explained
    assert "any number is covered, so announced need not be declared" in explained
    run("run", "panstream.toml", "visits.csv", "--leave-open")
    for word, fate in (("refreshed", "paid for in advance"), ("not refreshed", "used up")):
        result = run("intrusion", "announce", "panstream.toml", "--just-now", "--yes")
        assert f"visitors: {word}" in result.stdout
        assert fate in result.stderr


def test_operator_key(here: Path) -> None:
    Path("key.txt").write_text("ab" * 32)
    run("run", "panstream.toml", "visits.csv", "--key-file", "key.txt")
    assert "operator's key" in run("inspect", "state", code=1).stderr
    run("inspect", "state", "--key-file", "key.txt")
    Path("key.txt").write_text("ab")
    assert "64 hexadecimal" in run("inspect", "state", "--key-file", "key.txt", code=2).stderr


@pytest.mark.slow
def test_init_check_explain(here: Path) -> None:
    run("init", "visits.csv", "--out", "new.toml")
    text = Path("new.toml").read_text()
    assert 'visitor = "string"' in text
    assert 'at = "timestamp"' in text
    assert "secret-" not in text
    assert "already exists" in run("init", "visits.csv", "--out", "new.toml", code=2).stderr
    assert "is valid" in run("check", "new.toml").stdout
    assert "ContinualCount" in run("explain", "new.toml").stdout
    assert json.loads(run("explain", "panstream.toml", "--json").stdout)["queries"][0]["name"] == "visitors"
    Path("bad.toml").write_text(text.replace("epsilon", "epsilom"))
    assert "did you mean 'epsilon'" in run("check", "bad.toml", code=2).stderr


@pytest.mark.slow
def test_init_with_a_user_counts_users(here: Path) -> None:
    run("init", "visits.csv", "--user", "visitor", "--out", "new.toml")
    assert "Bitmap" in run("explain", "new.toml").stdout
    assert (
        "must be one of the columns" in run("init", "visits.csv", "--user", "x", "--out", "other.toml", code=2).stderr
    )
    Path("odd.csv").write_text('the "user",n\na,1\n')
    run("init", "odd.csv", "--user", 'the "user"', "--out", "odd.toml")
    assert "Bitmap" in run("explain", "odd.toml").stdout


@pytest.mark.slow
def test_init_finds_the_separator_and_the_time_and_proposes_questions(here: Path) -> None:
    rows = "".join(f"c{i % 9};2024-01-0{1 + i % 4};{i}.5;DE\n" for i in range(40))
    Path("orders.csv").write_text("customer;day;amount;country\n" + rows)
    Path("new.toml").touch()  # as the shell's redirection leaves it
    run("init", "orders.csv", "--user", "customer", "--out", "new.toml")
    text = Path("new.toml").read_text()
    assert 'time = "day"' in text
    assert 'delimiter = ";"' in text
    assert text.count("[[query]]") == 4
    assert text.count("error, 95%") >= 4
    reported = run("run", "new.toml", "orders.csv").stdout
    assert "users per day" in reported
    Path("plain.csv").write_text(rows)
    plain = run("init", "plain.csv", "--out", "-").stdout
    assert "header = false" in plain
    assert 'column1 = "date"' in plain


def test_init_proposes_no_groups_of_numbers_that_count_rows(here: Path) -> None:
    rows = "".join(f"o{i},{i},{7 * i % 90},DE\n" for i in range(40))
    Path("orders.csv").write_text("order_id,row number,amount,country\n" + rows)
    text = run("init", "orders.csv", "--user", "order_id", "--expected", "800", "--out", "-").stdout
    assert "SELECT AVG(amount)" in text and "GROUP BY country" in text and "\nexpected = 800\n" in text
    Path("ids.csv").write_text("orderId,zip\n" + "".join(f"o{i},{i}\n" for i in range(40)))
    assert "GROUP BY" not in (ids := run("init", "ids.csv", "--out", "-").stdout) and "AVG" not in ids
    Path("sales.csv").write_text("Bestellnr,customer,Preis\n" + "".join(f"{i},c{i % 7},{i}.5\n" for i in range(40)))
    sales = run("init", "sales.csv", "--expected", "300", "--out", "-").stdout
    assert "GROUP BY" not in sales and "AVG(Preis)" in sales and "\nexpected = 300\n" in sales
    assert '# user = "customer" ' in sales  # proposed, not decided


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "arrow"])
def test_init_reads_other_headers(here: Path, ending: str) -> None:
    import pyarrow as pa

    table = pa.table({"who": ["secret-1"], "n": [1], "x": [1.5], "ok": [True]})
    path = Path(f"sample.{ending}")
    if ending == "parquet":
        parquet.write_table(table, path)
    elif ending == "jsonl":
        path.write_text('{"who": "secret-1", "n": 1, "x": 1.5, "ok": true}\n')
    else:
        with pa.ipc.new_file(str(path), table.schema) as out:
            out.write_table(table)
    text = run("init", path.name, "--out", "-").stdout
    Path("new.toml").write_text(text)
    assert 'who = "string"\nn = "int"\nx = "double"\nok = "bool"' in text
    run("check", "new.toml")


def test_statement_is_written_for_people_who_are_not_engineers(here: Path) -> None:
    assert "Wrote page.html" in run("statement", "panstream.toml", "--html", "page.html").stdout
    page = Path("page.html").read_text(encoding="utf-8")
    assert sha256(Path("panstream.toml").read_bytes()).hexdigest() in page
    assert run("statement", "panstream.toml", "--html", "-").stdout == page
    assert "another file" in run("statement", "panstream.toml", "--html", "panstream.toml", code=2).stderr
    assert "cannot be written" in run("statement", "panstream.toml", "--html", "none/page.html", code=2).stderr


def shares(*arguments: str) -> list[Any]:
    lines = map(json.loads, run("run", "panstream.toml", *arguments, "--json").stdout.splitlines())
    return [line for line in lines if line["name"] == "unusable rows"]


def test_files_have_a_share_of_unusable_rows(here: Path) -> None:
    """It is drawn and charged once, over all runs."""
    with open("visits.csv", "a") as file:
        file.write("2026-03-01 05:00:00,one,/news,long\n" * 2000)
    (share,) = shares("visits.csv")
    assert share["interval"][0] < 0.25 < share["interval"][1]
    assert (share["epsilon"], share["claim"]["unit"]) == (0.05, "event")
    assert shares("visits.csv") == [share]
    with SnapshotStore(here / "state") as store:
        charged = json.loads((store.load() or {})["meta"])["ledger"]["entries"]
    assert [entry[1] for entry in charged if entry[0] == "unusable rows"] == [0.05]


@pytest.mark.parametrize("stream", ["unusable_epsilon = 0", "budget = { event = 5.0 }"])
def test_the_share_of_unusable_rows_can_be_left_out(here: Path, stream: str) -> None:
    write_config(here, stream=stream)
    assert shares("visits.csv") == []
    assert "also publishes the share" not in run("explain", "panstream.toml").stdout


def test_another_epsilon_of_the_share_is_charged_on_top(here: Path) -> None:
    (first,) = shares("visits.csv")
    write_config(here, stream="unusable_epsilon = 0.5")
    with open("visits.csv", "a") as file:
        file.write("2026-03-01 05:00:00,one,/news,1\n" * 10)
    (second,) = shares("visits.csv")
    assert (first["epsilon"], second["epsilon"]) == (0.05, 0.5)
    write_config(here)
    assert shares("visits.csv") == [first]


def test_a_declared_share_counts_against_the_budget(here: Path) -> None:
    assert "also publishes the share" in run("explain", "panstream.toml").stdout
    write_config(here, stream="unusable_epsilon = 0.5\nbudget = { event = 3.25 }")
    assert "3.5; the limit is 3.25" in run("run", "panstream.toml", "visits.csv", code=3).stderr
    write_config(here, stream="unusable_epsilon = 0.5\nbudget = { event = 3.5 }")
    assert shares("visits.csv")[0]["epsilon"] == 0.5
