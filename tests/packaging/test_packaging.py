"""The unit and the container file: checked by the tools made for that, and by the rules that privacy needs."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNIT = (PACKAGING / "panstream.service").read_text()
DOCKERFILE = (PACKAGING / "Dockerfile").read_text()


def setting(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("LimitCORE", "0", "a core dump is a copy of the state"),
        ("MemorySwapMax", "0", "a swapped page is an older copy of the state"),
        ("LimitMEMLOCK", "infinity", "or memory cannot be locked"),
        ("NoNewPrivileges", "yes", ""),
        ("CapabilityBoundingSet", "", "nothing needs a capability"),
        ("ProtectSystem", "strict", "only the state directory is written"),
        ("StateDirectoryMode", "0700", "nobody else reads the state"),
        ("UMask", "0077", "nobody else reads new files"),
        ("DynamicUser", "yes", "the state belongs to nobody who logs in"),
        ("KillSignal", "SIGTERM", "which ends the server in order"),
    ],
)
def test_unit_rules(name: str, value: str, why: str) -> None:
    assert setting(name) == [value], why


def test_unit_command_is_one_that_exists() -> None:
    """Every option of ExecStart is an option of ``panstream serve``."""
    import typer.main

    from panstream.cli.app import app

    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts}
    given = set(re.findall(r"--[a-z-]+", setting("ExecStart")[0]))
    assert given <= known
    assert set(re.findall(r"\"(--[a-z-]+)\"", DOCKERFILE)) <= known


def test_waiting_for_the_end_is_longer_than_the_server_s_grace() -> None:
    from panstream.server import serve

    assert int(setting("TimeoutStopSec")[0]) > serve._GRACE


def test_unit_is_understood_and_tight(tmp_path: Path) -> None:
    unit = tmp_path / "panstream.service"
    unit.write_text(UNIT.replace("/opt/panstream/bin/panstream", sys.executable))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert "panstream.service" not in verified.stderr, verified.stderr
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    exposure = re.search(r"exposure level for panstream\.service: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stderr
    assert float(exposure.group(1)) <= 2.0


def test_container_file_is_clean() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [str(linter), str(PACKAGING / "Dockerfile")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_container_rules() -> None:
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users, "the container must not run as root"
    assert users[-1] not in ("root", "0")
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert any(line.startswith('ENTRYPOINT ["') for line in lines), "without a shell, SIGTERM reaches the server"
    assert not any(
        re.search(r"token|secret|password", line, re.IGNORECASE) for line in lines if line.startswith(("ENV", "ARG"))
    )
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / each).exists() for each in copied.split()), copied


def test_no_section_of_the_unit_is_misspelt() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(UNIT)
    assert parser.sections() == ["Unit", "Service", "Install"]


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", "workflows/*.yml"), ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml")],
)
def test_hosted_files_are_what_the_host_understands(schema: str, files: str) -> None:
    found = sorted(map(str, (ROOT / ".github").glob(files)))
    assert len(found) == 2
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *found]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_workflows_may_read_only() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        assert "\npermissions:\n  contents: read\n" in text, "nothing more than a job needs"
        assert text.count("actions/checkout@") == text.count("persist-credentials: false")
        assert "pull_request_target" not in text
