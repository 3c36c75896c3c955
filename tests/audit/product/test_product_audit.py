"""Nothing that can be seen of the product depends on one person's rows, and a leak in any compared place would be
caught.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from panstream.audit.product._driver import BACK, IngestPath
from panstream.audit.product._neighbouring_inputs import Neighbour, generate_rows, is_logged, neighbours
from panstream.audit.product._person_neighbours import person_neighbours
from panstream.audit.product.audit import INGEST_PATHS, AuditInputs, SystemReport, audit_system, bundled
from panstream.audit.product.fork_server_client import ForkServer
from panstream.engine.config.config import load_config
from panstream.engine.runtime.ingest import find_invalid_rows
from tests.fault_injection import leaks
from tests.fault_injection.leaks import INJECTED_LEAKS, INSTRUMENT, LEAK_OF_A_PERSON, PERSON, run_positive_controls

FULL = os.environ.get("PANSTREAM_FULL") == "1"
NOW = 1_800_000_000.0
CONFIGURATIONS = {path.stem: path for path in bundled()}


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer.started(INSTRUMENT) as started:
        yield started


def said(report: SystemReport) -> str:
    return "\n".join(
        f"{d.ingest_path}, {d.neighbour}: {d.field}: {d.before} / {d.after}" for d in report.undeclared[:10]
    )


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_rows_are_made_for_every_configuration(name: str, tmp_path: Path) -> None:
    """A time column of type date got moments, so that no row could be used and nothing was compared."""
    config = load_config(CONFIGURATIONS[name])
    rows = generate_rows(config, NOW)
    path = tmp_path / "rows.csv"
    usable = Neighbour(name="the original", rows=generate_rows(config, float(int(time.time()))))
    path.write_bytes(usable.encode(config.stream.columns, "csv"))
    assert not list(find_invalid_rows(config, [str(path)]))
    columns = config.stream.columns
    tried = list(neighbours(config, rows, NOW))
    assert len(tried) == len({each.name for each in tried}) >= 15
    original = Neighbour(name="the original", rows=rows)
    logged = ("log",) if is_logged(config) else ()
    for format in ("csv", "json", "parquet", "arrow", *logged):
        data = original.encode(columns, format)
        assert all(each.encode(columns, format) != data for each in tried if each.fits(format))


@pytest.mark.slow
def test_runs_on_files_show_nothing_of_one_row(fork_server: ForkServer) -> None:
    report = audit_system(CONFIGURATIONS["windows"], fork_server, ingest_paths=INGEST_PATHS[:3])
    assert report.ok, said(report)
    assert report.fields > 3_000


def audit_clean(
    config: Path, fork_server: ForkServer, ingest_paths: Sequence[IngestPath], some: Sequence[str], **options: Any
) -> SystemReport:
    """Return the report on some neighbours, which must show nothing undeclared."""
    report = audit_system(
        config, fork_server, ingest_paths=ingest_paths, choose=lambda neighbour: neighbour.name in some, **options
    )
    assert report.ok, said(report)
    assert report.neighbours == len(some)
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ingest_path", "some"),
    [
        (
            "sections", INGEST_PATHS[0],
            ("event removed", "note: unknown", "note: a number", "country: unknown", "path: empty",
             "seconds: far outside"),
        ),
        (
            "access", IngestPath(command="run", format="log"),
            ("event removed", "user without a name", "time: no time", "path: quotes and a line break",
             "status: no number", "agent: unknown", "a field missing", "half a line"),
        ),
        (
            "continual", INGEST_PATHS[3],
            ("event removed", "event of a newcomer added", "power: NaN", "power: no number", "time: from the future"),
        ),
    ],
    ids=["expressions and views", "access logs", "a server"],
)  # fmt: skip
def test_the_product_shows_nothing_of_one_row(
    fork_server: ForkServer, name: str, ingest_path: IngestPath, some: tuple[str, ...]
) -> None:
    audit_clean(CONFIGURATIONS[name], fork_server, [ingest_path], some)


@pytest.mark.slow
@pytest.mark.parametrize("ingest_path", [INGEST_PATHS[0], INGEST_PATHS[3], INGEST_PATHS[7], INGEST_PATHS[8]], ids=str)
def test_names_that_nobody_listed_show_nothing_of_one_row(fork_server: ForkServer, ingest_path: IngestPath) -> None:
    some = ("path: long",) if ingest_path.workers or ingest_path.command == "query" else ("event removed", "path: long")
    report = audit_clean(CONFIGURATIONS["names"], fork_server, [ingest_path], some, workers=lambda neighbour: True)
    if ingest_path.command != "query":
        assert any("unread" in name for name in report.names)  # tables are stored before names are read


@pytest.mark.slow
def test_a_cluster_shows_nothing_of_one_row(fork_server: ForkServer) -> None:
    report = audit_system(
        CONFIGURATIONS["visitors"],
        fork_server,
        ingest_paths=INGEST_PATHS[7:8],
        workers=lambda each: each.name in ("section: unknown",),
    )
    assert report.ok, said(report)
    assert report.runs == 2


@pytest.mark.slow
def test_a_question_about_a_file_shows_nothing_of_one_row(fork_server: ForkServer, tmp_path: Path) -> None:
    config = tmp_path / "one.toml"
    config.write_text(CONFIGURATIONS["visitors"].read_text().rpartition("[[query]]")[0].rpartition("[[query]]")[0])
    report = audit_clean(config, fork_server, INGEST_PATHS[8:9], ("event removed", "visitor: no number"))
    assert not report.differences  # the guess is public, but one row of 42 did not change it
    telling = "user removed"  # the leak counts selected rows, and the event removed above is none
    leaky = audit_system(
        config,
        fork_server,
        ingest_paths=INGEST_PATHS[8:9],
        injected_leaks=["standard error"],
        choose=lambda each: each.name == telling,
    )
    assert not leaky.ok


@pytest.mark.slow
def test_a_row_that_opens_a_window_of_a_queried_file_shows_nothing_undeclared(fork_server: ForkServer) -> None:
    """Which windows have a row is a public fact; it covers the answers, and only where the windows do differ."""
    some = ("time: late", "event removed", "symptom: unknown")
    report = audit_clean(CONFIGURATIONS["windows"], fork_server, INGEST_PATHS[8:9], some)
    assert {(difference.neighbour, difference.fact) for difference in report.differences} == {
        ("time: late", "which windows have a row")
    }


@pytest.mark.slow
def test_beacons_show_nothing_of_one_of_them(fork_server: ForkServer) -> None:
    """One beacon more or less, one visitor less, and beacons that cannot be read."""
    some = ("event removed", "event added", "user removed", "event: unknown", "value: NaN", "half a line")
    report = audit_clean(CONFIGURATIONS["site"], fork_server, [IngestPath(command="serve", format="beacon")], some)
    assert report.fields > 3_000
    assert all(run_positive_controls(fork_server, only=("number of beacons",)).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "format", "odd"),
    [("visitors", "csv", "section: unknown"), ("access", "log", "half a line"), ("weblog", "log", "event: unknown")],
)
def test_a_followed_file_shows_nothing_of_one_row(fork_server: ForkServer, name: str, format: str, odd: str) -> None:
    """Served as it grows: what it shows is how far it was read, which is declared."""
    ingest_path = IngestPath(command="follow", format=format)
    report = audit_clean(CONFIGURATIONS[name], fork_server, [ingest_path], ("event removed", odd))
    assert {each.fact for each in report.differences} == {"how far a file was read"}
    assert any("/v1/releases" in name for name in report.names)
    if name == "visitors":
        assert all(run_positive_controls(fork_server, only=("commits of followed rows",)).values())


def test_every_leak_replaces_something_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[tuple[str, str]] = []
    monkeypatch.setattr(leaks, "_wrap", lambda owner, name, change: targets.append((owner, name)))
    monkeypatch.setattr(leaks, "_ending", [])
    for _, inject in INJECTED_LEAKS.values():
        inject()
    assert not [(owner, name) for owner, name in targets if not hasattr(resolve_name(owner), name)]
    assert len(targets) > 15


@pytest.mark.slow
def test_leaks_are_caught(fork_server: ForkServer) -> None:
    some = ("number of rows in the store", "times of bad rows are lost", "public field of a state", "standard error")
    found = run_positive_controls(fork_server, only=some)
    assert set(found) == set(some) <= set(INJECTED_LEAKS)
    assert all(found.values()), found


@pytest.mark.slow
def test_sparse_sums_of_workers_are_caught(fork_server: ForkServer) -> None:
    """Workers that leave out windows without selected rows show which have some."""
    assert all(run_positive_controls(fork_server, only=("sparse sums of windows",)).values())


@pytest.mark.slow
def test_only_a_person_shows_a_leak_of_several_rows(fork_server: ForkServer) -> None:
    """A public counter of users with several rows in a window: every single event leaves it as it is."""
    found = {
        person: audit_system(
            CONFIGURATIONS["visitors"],
            fork_server,
            ingest_paths=INGEST_PATHS[:1],
            injected_leaks=[LEAK_OF_A_PERSON],
            choose=lambda each, person=person: (each.name == PERSON) is person,
        )
        for person in (True, False)
    }
    assert {difference.field for difference in found[True].undeclared} >= {"store/state.sealed meta: eager"}
    assert found[False].ok, said(found[False])
    assert found[False].neighbours > 15


@pytest.mark.slow
def test_what_senders_may_not_send_changes_nothing(fork_server: ForkServer) -> None:
    """Without noise, so that a row that is counted beyond the bound shows in an answer, and a break of it is caught."""
    report = audit_clean(CONFIGURATIONS["counted"], fork_server, INGEST_PATHS[:1], ("event removed", PERSON))
    assert report.runs == 5  # the original, each neighbour, and a person within her sender's bound and beyond it
    breaks = ("rows above a sender's bound are counted", "windows of a sender are not compared")
    for name, field in run_positive_controls(fork_server, only=breaks).items():
        assert field.startswith(("answers file", "store", "stdout")), name


@pytest.mark.slow
@pytest.mark.parametrize("ingest_path", [path for path in INGEST_PATHS if path.has_client], ids=str)
def test_clients_that_number_rows_keep_to_their_bound(fork_server: ForkServer, ingest_path: IngestPath) -> None:
    """Three rows or seven in each of three windows, in two runs of the client each: the server counts the same."""
    report = audit_clean(CONFIGURATIONS["counted_arrivals"], fork_server, [ingest_path], ())
    assert report.runs == 2
    breaks = (
        f"a sender, {ingest_path.format}, ignores its bound",
        f"a sender, {ingest_path.format}, forgets its numbers when it restarts",
    )
    for name, field in run_positive_controls(fork_server, only=breaks).items():
        assert field.startswith(("/metrics", "/v1", "store")), name


@pytest.mark.slow
def test_rows_beyond_a_files_bound_change_nothing(fork_server: ForkServer) -> None:
    report = audit_clean(CONFIGURATIONS["limits"], fork_server, [INGEST_PATHS[8]], ("event removed",))
    assert report.runs == 4
    leaked = run_positive_controls(fork_server, only=["rows above a file's bound are counted"])
    assert all(": stdout" in field for field in leaked.values()), leaked


@pytest.mark.slow
def test_workers_cap_the_rows_of_a_sender_too(fork_server: ForkServer) -> None:
    report = audit_clean(CONFIGURATIONS["counted"], fork_server, [INGEST_PATHS[6]], ("event removed",))
    assert report.runs == 4


@pytest.mark.slow
@pytest.mark.parametrize("ingest_path", [INGEST_PATHS[0], INGEST_PATHS[3]], ids=str)
@pytest.mark.parametrize("name", ["windows", "arrivals"])
def test_all_rows_of_a_person_show_nothing(fork_server: ForkServer, name: str, ingest_path: IngestPath) -> None:
    """Where the time of arrival counts, the rows of a server come in windows one after the other."""
    audit_clean(CONFIGURATIONS[name], fork_server, [ingest_path], (PERSON, "all rows of a person changed"))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_person_comes_in_several_windows(name: str) -> None:
    config = load_config(CONFIGURATIONS[name])
    inputs = AuditInputs.read(CONFIGURATIONS[name])
    added, changed = list(person_neighbours(config, inputs.original.rows, inputs.now))
    most = min((query.contributions for query in config.queries if query.contributions), default=3)
    assert added.length == 3 * most
    assert len({original for original, _ in added.cuts}) == 3
    assert changed.length == 0
    assert sum(one != two for one, two in zip(changed.rows, inputs.original.rows, strict=True)) >= 2
    if config.stream.time is not None and any(query.window or query.every for query in config.queries):
        times = [added.rows[end - 1][config.stream.time] for _, end in added.cuts]
        assert len(set(times)) == 3


@pytest.mark.slow
def test_stopping_at_a_bad_row_is_caught(fork_server: ForkServer, tmp_path: Path) -> None:
    text = CONFIGURATIONS["visitors"].read_text().replace('name = "site"', 'name = "site"\non_bad_row = "stop"', 1)
    config = tmp_path / "stop.toml"
    config.write_text(text)
    report = audit_system(
        config, fork_server, ingest_paths=INGEST_PATHS[:1], choose=lambda each: each.name == "visitor: no number"
    )
    assert "exit code" in {each.field for each in report.undeclared}


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("time,visitor,section\n" + "".join(f"2026-03-01T00:00:{n:02},{n},account\n" for n in range(20)))
    command = [sys.executable, "-P", "-m", "panstream.cli", "audit", "system"]
    missing = subprocess.run([*command, "none.toml"], capture_output=True, text=True, cwd=tmp_path)
    assert missing.returncode == 2
    assert "none.toml" in missing.stderr
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    given = [*command, str(CONFIGURATIONS["visitors"]), "--json", "--rows"]
    refused = subprocess.run([*given, str(other)], capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 2
    assert "no column" in refused.stderr
    assert json.dumps("undeclared")  # the shape of --json is checked by the long form in make soak


@pytest.mark.slow
@pytest.mark.parametrize("back", BACK if FULL else BACK[:1])
def test_a_clock_that_goes_back_shows_nothing_of_one_row(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch, back: float
) -> None:
    """After the step back a neighbour sends a row less: it shows where windows that are over are opened again."""
    monkeypatch.setattr("panstream.audit.product._driver.BACK", (back,))
    some = ("event removed", "event added") if FULL else ("event removed",)
    ingest_paths = [INGEST_PATHS[at] for at in ((3, 4, 5, 12) if FULL else (3,))]
    report = audit_clean(CONFIGURATIONS["arrivals"], fork_server, ingest_paths, some)
    assert f"/v1/releases, clock set back by {back:g} s: size" in report.names
    found = run_positive_controls(fork_server, only=("windows opened by a clock that went back",))
    assert all(found.values()), found
