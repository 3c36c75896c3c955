"""An audit in parts: on several fork servers, with progress, and with what it has found when it is interrupted."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from panstream.audit.product import fork_server, parallel
from panstream.audit.product.audit import INGEST_PATHS, AuditInputs, SystemReport, bundled
from panstream.audit.product.fork_server_client import ForkServer
from panstream.audit.product.parallel import AuditPart, audit_parts, parts_of
from panstream.errors import PanstreamError
from tests.cli.running import run as run_command
from tests.waiting import until

CONFIGURATIONS = {path.stem: path for path in bundled()}
WAIT = 60.0  # seconds until a part that should have ended counts as lost


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class _ForkServer:
        @classmethod
        @contextlib.contextmanager
        def started(cls) -> Iterator[None]:
            yield None

    monkeypatch.setattr(parallel, "ForkServer", _ForkServer)


def replace_audit(monkeypatch: pytest.MonkeyPatch, audit: Callable[[AuditPart, Callable[[], None]], None]) -> None:
    """Have every part audited by a function."""

    def audited(
        inputs: AuditInputs, ingest_path: Any, fork_server: Any, report: SystemReport, *, before_run: Any
    ) -> None:
        audit(AuditPart(inputs=inputs, ingest_path=ingest_path, report=report), before_run)

    monkeypatch.setattr(parallel, "audit_ingest_path", audited)


def read(*names: str) -> list[AuditInputs]:
    return [AuditInputs.read(CONFIGURATIONS[name]) for name in names]


def test_parts_are_what_fits_the_longest_first() -> None:
    parts = [(part.inputs.name, str(part.ingest_path)) for part in parts_of(read("visitors", "access"), INGEST_PATHS)]
    assert len(parts) == len(set(parts)) == 11 + 13  # only access logs are read as logs, and neither takes beacons
    assert parts[0][1].endswith("--workers 2")
    assert not parts[-1][1].endswith("--workers 2")
    assert ("access.toml", "run log") in parts
    assert ("visitors.toml", "run log") not in parts


@pytest.mark.usefixtures("without_processes")
def test_every_part_is_reported_and_one_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def audit(part: AuditPart, before_run: Callable[[], None]) -> None:
        before_run()
        part.report.runs += 1
        part.report.fields += 1
        if part.ingest_path.format == "json":
            raise PanstreamError("does not work on the rows")

    replace_audit(monkeypatch, audit)
    parts = parts_of(read("visitors"), INGEST_PATHS[:4])
    finished = [part for part in audit_parts(parts, jobs=3) if part is not None]
    assert sorted(map(str, finished)) == sorted(map(str, parts))
    assert {str(part.ingest_path): part.ok for part in parts} == {
        "serve csv": True, "run csv": True, "run json": False, "run parquet": True,
    }  # fmt: skip
    assert [part.error for part in parts if part.error] == ["does not work on the rows"]


@pytest.mark.usefixtures("without_processes")
def test_an_interrupted_audit_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = threading.Event()

    def audit(part: AuditPart, before_run: Callable[[], None]) -> None:
        before_run()
        part.report.runs += 1
        if part.ingest_path.command == "run":
            assert interrupted.wait(WAIT)
            while True:  # until the audit is told to stop
                before_run()

    replace_audit(monkeypatch, audit)
    parts = parts_of(read("visitors"), [INGEST_PATHS[0], INGEST_PATHS[3]])
    progress = audit_parts(parts, jobs=2)
    assert next(part for part in progress if part is not None).ingest_path.command == "serve"
    interrupted.set()
    progress.close()  # type: ignore[attr-defined]
    assert [(part.is_done, part.ok) for part in parts] == [(True, False), (False, False)]  # no field was compared
    assert parts[0].report.runs == 1


@pytest.mark.usefixtures("without_processes")
def test_a_fault_of_the_audit_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def audit(part: AuditPart, before_run: Callable[[], None]) -> None:
        raise ZeroDivisionError

    replace_audit(monkeypatch, audit)
    with pytest.raises(ZeroDivisionError):
        list(audit_parts(parts_of(read("visitors"), INGEST_PATHS[:2]), jobs=2))


def test_what_the_fork_server_replaces_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant was renamed; audited files were committed every second again, so slow runs differed from fast ones."""
    replaced: list[str] = []

    def looked_up(owner: Any, name: str, value: Any) -> None:
        getattr(owner, name)
        replaced.append(name)

    monkeypatch.setattr(fork_server, "_replace", looked_up)
    fork_server._count_steps()
    fork_server._count_looks()
    fork_server._mask_estimates()
    assert {"_CLOCK_CHECK", "next", "batches", "release_record"} <= set(replaced)


def test_the_fork_server_replaces_nothing_that_does_not_exist() -> None:
    with pytest.raises(AttributeError):
        fork_server._replace(parallel, "_NO_SUCH", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--path", "run xml"], "--path 'run xml' is no ingest path; there are: run csv, run json"),
        (["none.toml"], "bundled ones are windows"),
        (["visitors", "--path", "run log"], "does not fit the columns of visitors.toml"),
    ],
)
def test_what_cannot_be_audited_is_refused(arguments: list[str], message: str) -> None:
    result = run_command("audit", "system", *arguments, code=2)
    assert message in result.stderr


@pytest.mark.slow
def test_one_path_of_one_configuration(tmp_path: Path) -> None:
    result = run_command("audit", "system", "visitors", "--path", "run csv", "--json", "--jobs", "1")
    (part,) = json.loads(result.stdout)["parts"]
    assert (part["configuration"], part["ingest_path"], part["finished"]) == ("visitors.toml", "run csv", True)
    assert part["fields"] > 10_000
    assert part["undeclared"] == []


def test_runs_end_with_their_fork_server(tmp_path: Path) -> None:
    """Also if it is killed: a server would otherwise stay for ever."""
    configuration = (
        '[stream]\nname = "s"\nuser = "u"\ncolumns = { u = "int" }\n[[query]]\nname = "q"\n'
        'sql = "SELECT COUNT(DISTINCT u) FROM s"\nepsilon = 1.0\nexpected = 100\n'
    )
    (tmp_path / "audit.toml").write_text(configuration)
    job = {"directory": str(tmp_path), "stdout": "out", "stderr": "err", "real_clock": False, "exact": False}
    job |= {"plants": [], "client": None, "argv": ["serve", "audit.toml", "--port", "0", "--no-hardening"]}
    out = tmp_path / "out"
    with contextlib.suppress(BrokenPipeError), ForkServer.started() as fork_server:
        child = fork_server.ask(job)["pid"]
        until(lambda: out.exists() and "serving" in out.read_text())
        os.kill(fork_server._process.pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])
