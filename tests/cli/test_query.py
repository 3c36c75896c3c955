"""``panstream query``: what it prints and where, its ledger, its exit codes."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from click.testing import Result
from pyarrow import csv, parquet

import panstream
from tests.cli.running import run

ROWS = "host;n\n" + "".join(f"h{i % 5};{i}\n" for i in range(40))
SQL = "SELECT COUNT(*) FROM 'visits.csv'"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "visits.csv").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_and_what_it_cost() -> None:
    first = run("query", "SELECT COUNT(DISTINCT host) FROM 'visits.csv'", "--user=host", "--epsilon=1")
    assert first.stdout.split()[:2] == ["estimate", "95%"]
    assert "visits.csv: text separated by a semicolon, with a header line: host string, n int (guessed" in first.stderr
    spent = "So far: epsilon 1 for one user, counting all answers about visits.csv (visits.csv.ledger)."
    assert f"This answer: epsilon 1 for one user. {spent}" in first.stderr
    none = run("query", SQL, "--epsilon=1", "--no-ledger")
    assert "repeated answers add up" in none.stderr


@pytest.mark.slow
def test_users_of_several_files_lose_what_all_of_them_were_charged(folder: Path) -> None:
    (folder / "others.csv").write_text(ROWS)

    def ask(files: str, *options: str, code: int = 0) -> Result:
        sql = f"SELECT COUNT(DISTINCT host) FROM '{files}'"
        return run("query", sql, "--user=host", "--epsilon=1", *options, code=code)

    ask("visits.csv", "--budget=2")
    ask("others.csv", "--budget=2")
    refused = ask("*.csv", code=3)
    assert "3; the limit is 2" in refused.stderr
    allowed = ask("*.csv", "--budget=3")
    assert (
        "epsilon 2 for one event; epsilon 3 for one user, counting all answers about others.csv and visits.csv ("
        in allowed.stderr
    )
    assert "So far: epsilon 4 for one user, counting all answers that spent records (spent)." in (
        [ask("*.csv", "--ledger=spent") for _ in range(4)][-1].stderr
    )


@pytest.mark.slow
def test_groups_share_epsilon_and_rows_of_users_are_warned_of() -> None:
    sql = "SELECT n, COUNT(DISTINCT host) FROM 'visits.csv' GROUP BY n"
    shared = run("query", sql, "--user=host", "--epsilon=1", "--groups=n=1,2,3,4", "--budget=1")
    assert "This answer: epsilon 1 for one user, 0.25 in each of 4 groups." in shared.stderr
    rows = run("query", SQL, "--user=host", "--epsilon=1", "--no-ledger")
    assert "warning: one row is protected, not all rows of one host" in rows.stderr
    for form in ("--csv", "--markdown"):
        bounded = run("query", SQL, "--user=host", "--contributions=10", "--epsilon=1", "--no-ledger", form)
        assert "warning" not in bounded.stderr
        assert "note: counting at most 10 rows per user" in bounded.stderr


@pytest.mark.slow
def test_every_form_goes_to_standard_output(folder: Path) -> None:
    command = ["query", SQL, "--epsilon=1", "--ledger=spent"]
    assert run(*command, "--markdown").stdout.startswith("| estimate |")
    read = csv.read_csv(io.BytesIO(run(*command, "--csv").stdout_bytes))
    assert read.column_names == ["estimate", "low", "high", "standard_error", "unclipped"]
    reported = json.loads(run(*command, "--json").stdout)
    assert reported["guessed"]["delimiter"] == ";"
    assert reported["spent"][0]["epsilon"] == 3.0
    run(*command, "--parquet=answer.parquet")
    streamed = run(*command, "--parquet=-").stdout_bytes
    for written in (folder / "answer.parquet", pa.BufferReader(streamed)):
        assert parquet.read_table(written).num_rows == 1
    assert not (folder / "visits.csv.ledger").exists()


@pytest.mark.slow
def test_exit_codes() -> None:
    run("query", SQL, "--epsilon=1", "--budget=1")
    spent = run("query", SQL, "--epsilon=1", code=3)
    assert spent.stdout == ""
    assert "would bring the total to 1.95; the limit is 1" in spent.stderr
    run("query", "SELECT COUNT(*) FROM 'none.csv'", "--epsilon=1", code=1)
    for wrong in (["--groups=x"], ["--csv", "--json"], ["--ledger=a", "--no-ledger"], ["--type=n=number"]):
        run("query", SQL, "--epsilon=1", *wrong, code=2)


def test_names_of_columns_and_files_do_nothing_to_a_terminal(folder: Path) -> None:
    name = "a\x1b[2J.csv"
    (folder / name).write_text("=h\x1b]0;\u202e,n\n" + "x,1\n" * 9)
    done = run("query", f"SELECT COUNT(*) FROM '{name}'", "--epsilon=1")
    wrong = run("query", f"SELECT COUNT(*) FROM '{name}'", "--epsilon=1", "--user=nobody", code=2)
    for text in (done.stdout, done.stderr, wrong.stderr):
        assert text.replace("\n", "").isprintable()
    assert r"a\x1b[2J.csv: text separated by a comma, with a header line: =h\x1b]0;\u202e string" in done.stderr


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC COUNT(*) FROM '-'", "line 1, column 12"),
        ("SELECT COUNT(*)", "FROM must name the stream"),
        ("SELECT COUNT(*) FROM", "Expected table name\n"),
        ("SELECT COUNT(*) FROM (SELECT * FROM '-')", "FROM must name the stream"),
        ("SELECT COUNT(*) FROM '-' JOIN other ON a = b", "only a public table can be joined"),
        ("SELECT COUNT(*) FROM read_csv('-')", "FROM must name a file"),
        ("", "one SELECT is expected"),
    ],
)
def test_sql_that_cannot_be_read_is_refused_before_standard_input(
    sql: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*args: object) -> NoReturn:
        raise AssertionError("standard input was opened")

    monkeypatch.setattr("panstream.engine.sources.schema_guess.PipeBytes", unexpected)
    done = run("query", sql, "--epsilon=1", code=2)
    assert done.stdout == ""
    assert message in done.stderr
    with pytest.raises(panstream.PanstreamError):
        panstream.query("-", sql, epsilon=1.0)


@pytest.mark.slow
def test_standard_input_is_looked_at_and_read() -> None:
    command = [sys.executable, "-m", "panstream.cli", "query", "SELECT MAX(n) FROM '-'", "--epsilon=1000"]
    data = pa.compress(ROWS.encode(), "zstd", asbytes=True)
    bounds = ["--lower=0", "--upper=64", "--json", "--type=n=double"]
    done = subprocess.run([*command, *bounds], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"][0]["high"] >= 39
    assert b"repeated answers add up" in done.stderr


@pytest.mark.slow
def test_the_note_about_unusable_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal it is there if there were some, by number; elsewhere the output is the same either way."""
    note = "note: rows that cannot be used are left out"
    command = ["query", "SELECT SUM(n) FROM 'bad.csv'", "--epsilon=1", "--lower=0", "--upper=9", "--no-ledger"]
    command += ["--type=n=int", "--csv"]
    for text, reported in (("1\n" * 40, False), ("1\n" * 39 + "x\n", True)):
        (folder / "bad.csv").write_text(f"n\n{text}")
        assert note in run(*command).stderr
        with monkeypatch.context() as patch:
            patch.setattr("panstream.cli.commands.run._is_interactive", lambda: True)
            shown = run(*command).stderr
        assert note not in shown
        assert ("1 row skipped as bad: 40" in shown) == reported


def test_wrong_types_and_encodings_are_refused_with_the_option(folder: Path) -> None:
    (folder / "sales.csv").write_bytes("Preis (€);Käufer\n".encode("cp1252") + "1447,53;Müller\n".encode("cp1252") * 40)
    command = ["query", "SELECT SUM(\"Preis (€)\") FROM 'sales.csv'", "--epsilon=1", "--lower=0", "--upper=2000"]
    refused = run(*command, code=1)
    assert refused.stdout == ""
    assert "looks like Windows-1252 (--encoding windows-1252)" in refused.stderr
    command.append("--encoding=windows-1252")
    refused = run(*command, "--type=Preis (€)=double", code=1)
    assert refused.stdout == ""
    message = "none of the first 40 rows has a number in 'Preis (€)'; is the decimal mark a comma? (--decimal ,)"
    assert message in refused.stderr
    assert not (folder / "sales.csv.ledger").exists()
    answered = run(*command, "--decimal=,", "--json")
    assert json.loads(answered.stdout)["answers"][0]["estimate"] == pytest.approx(57901.2, rel=0.5)


def test_messages_name_flags_not_keys() -> None:
    """What the engine says in keys of a configuration, the command says in its own flags."""
    mean = "SELECT AVG(n) FROM 'visits.csv'"
    assert "needs --lower and --upper" in run("query", mean, "--epsilon=1", "--no-ledger", code=2).stderr
    grouped = "SELECT host, AVG(n) FROM 'visits.csv' GROUP BY host"
    assert "--groups host=KEY,KEY,..." in run("query", grouped, "--epsilon=1", "--no-ledger", code=2).stderr
    windowed = run("query", SQL, "--epsilon=1", "--no-ledger", "--window=1 day", code=2)
    assert "the column of event time, --time, and" in windowed.stderr
    density = run("query", "SELECT DENSITY(host) FROM 'visits.csv'", "--user=host", "--epsilon=1", code=2)
    assert "needs --universe" in density.stderr
    weak = run("query", SQL, "--epsilon=0.001", "--no-ledger")
    assert "=," not in weak.stdout + weak.stderr


@pytest.mark.parametrize(
    ("key", "groups", "first"),
    [
        ("day", "day=2026-03-01,2026-03-02", "2026-03-01"),
        ("date_trunc('month', day)", "m=2026-03,2026-04", "2026-03"),
        ("extract(day FROM day)", "m=1,2,3", "1"),
        ("n % 2 = 0", "m=true,FALSE", "true"),
    ],
)
def test_groups_are_parsed_by_the_type_of_their_key(folder: Path, key: str, groups: str, first: str) -> None:
    days = "".join(f"2026-03-{1 + i % 20:02d},{i}\n" for i in range(400))
    (folder / "days.csv").write_text("day,n\n" + days)
    alias = groups.partition("=")[0]
    sql = (
        f"SELECT {key} AS m, COUNT(*) FROM 'days.csv' GROUP BY m"
        if alias == "m"
        else ("SELECT day, COUNT(*) FROM 'days.csv' GROUP BY day")
    )
    answer = run("query", sql, f"--groups={groups}", "--epsilon=20", "--no-ledger", "--no-unusable-share", "--json")
    rows = json.loads(answer.stdout)["answers"]
    assert str(rows[0][alias]) == first
    expected = {"day": 20, "date_trunc('month', day)": 400, "extract(day FROM day)": 20, "n % 2 = 0": 200}[key]
    assert abs(rows[0]["estimate"] - expected) < 5
    wrong = run("query", sql, f"--groups={alias}=never", "--epsilon=1", "--no-ledger", code=2)
    assert f"--groups {alias} must list different keys of type" in wrong.stderr


def test_what_is_no_file_to_read_is_named(folder: Path) -> None:
    (folder / "book.xlsx").write_bytes(b"PK\x03\x04")
    (folder / "excel.csv").write_text("sep=;\na;b\n" + "1;2\n" * 20)
    for name, reason in {
        "book.xlsx": "book.xlsx is a workbook, which is not read: save the sheet as CSV",
        "excel.csv": "begins with a line for Excel (sep=)",
        "ftp://bucket/rows.csv": "ftp:// addresses cannot be read here: download or mount the file first",
        "postgresql://me:secret@db/rows": "postgresql:// addresses cannot be read here: export the table",
        "kafka://broker/topic": "panstream run and serve read them",
    }.items():
        refused = run("query", f"SELECT COUNT(*) FROM '{name}'", "--epsilon=1", "--no-ledger", code=1)
        assert reason in refused.stderr and "secret" not in refused.stderr
    refused = run("query", "SELECT COUNT(*) FROM 's3://me:secret@bucket/rows.csv'", "--epsilon=1", code=2)
    assert "an address must not contain credentials" in refused.stderr and "secret" not in refused.stderr
