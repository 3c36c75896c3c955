"""The unit and the container file: checked by the tools made for that, and by the rules that privacy needs."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.browser.serving import serving
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNIT = (PACKAGING / "panstream.service").read_text()
DOCKERFILE = (PACKAGING / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
TWO_MACHINES = yaml.safe_load((PACKAGING / "two-machines.yaml").read_text())
GOLDEN = ROOT / "tests" / "golden"
OWNER = re.search(r"--uid (\d+)", DOCKERFILE)[1]  # type: ignore[index]


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
        ("SuccessExitStatus", "143", "which is the exit code then"),
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
    assert set(re.findall(r"\"(--[a-z-]+)\"", re.findall("^CMD .*", DOCKERFILE, re.MULTILINE)[0])) <= known


def test_the_service_opens_nothing_but_what_is_handed_to_it() -> None:
    """A user that is made up at every start can read neither root's files nor those of another start."""
    program, *words = shlex.split(setting("ExecStart")[0])
    assert program.startswith("/opt/panstream/")
    opened = [word for word in words if "/" in word]
    handed = {f"%d/{given.split(':')[0]}" for given in setting("LoadCredential")}
    assert set(opened) == handed
    assert "%d/panstream.toml" in handed


@pytest.mark.slow
@pytest.mark.parametrize("store", sorted(GOLDEN.glob("store-*")), ids=lambda path: path.name)
def test_the_unit_s_command_serves_the_store_of_an_old_release(store: Path, tmp_path: Path) -> None:
    """As after an upgrade: the configuration is handed over, the state is where it was."""
    state = tmp_path / "state"
    credentials = tmp_path / "credentials"
    shutil.copytree(store, state)
    credentials.mkdir()
    tokens = credentials / "tokens"
    made = [sys.executable, "-m", "panstream.cli", "token", str(tokens), "reader", "--scope", "read"]
    token = subprocess.run(made, capture_output=True, text=True, check=True).stdout.strip()
    _, _, config, *words = shlex.split(setting("ExecStart")[0].replace("%d", str(credentials)))
    key = words.index("--key-file")
    del words[key : key + 2]  # the old store was not sealed
    words[words.index("--port") + 1] = "0"
    text = (GOLDEN / "store.toml").read_text() + f"\n[store]\ndirectory = {json.dumps(str(state))}\n"
    looked = [sys.executable, "-m", "panstream.cli", "inspect", str(state)]
    assert "visitors of the day" in subprocess.run(looked, capture_output=True, text=True, check=True).stdout
    with serving(credentials, *words, config=text) as server:
        assert config == str(credentials / "panstream.toml")
        assert server.ask("GET", "/healthz")["status"] == "ok"
        found = server.ask("GET", "/v1/releases", Authorization=f"Bearer {token}")
        assert {each["query"] for each in found["releases"]} >= {"visitors", "visits so far"}


def test_the_unit_for_several_streams_is_the_same_but_for_its_instance() -> None:
    several = (PACKAGING / "panstream@.service").read_text()
    body = (
        several.replace("/%i", "").replace(" --port ${PORT}", " --port 8080").replace(" --address-connections 512", "")
    )
    body = re.sub(r"# PORT=.*\nEnvironmentFile=.*\n", "", body)
    assert body.splitlines()[4:] == UNIT.splitlines()[4:]


def test_waiting_for_the_end_is_longer_than_the_server_s_grace() -> None:
    from panstream.server import server as serve

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
        timeout=PATIENCE,
    )
    exposure = re.search(r"exposure level for panstream\.service: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stderr
    assert float(exposure.group(1)) <= 2.0


def test_container_file_is_clean() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [str(linter), str(PACKAGING / "Dockerfile")], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_gets_every_file_that_the_build_reads() -> None:
    """The backend reads more than the sources; ``python -m benchmarks.release.container`` runs the lines."""
    project = tomllib.loads((PACKAGING.parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    files = [
        *wheel["sbom-files"],
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
    ]
    copied = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", DOCKERFILE)
    names = {name for line in copied for name in line.split()}
    allowed = set((PACKAGING.parent / ".dockerignore").read_text().split())
    for file in files:
        assert file in names or file.partition("/")[0] in names, f"{file} is not copied"
        assert f"!{file}" in allowed or f"!{file.partition('/')[0]}" in allowed, f"{file} is ignored"


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


def test_the_image_s_user_reads_its_files() -> None:
    """The build itself tries, as that user; and what is mounted is installed for it."""
    lines = DOCKERFILE.splitlines()
    assert lines.index(f"USER {OWNER}") < lines.index('RUN ["/opt/panstream/bin/panstream", "--version"]')
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text()
    for name in ("panstream.toml", "tokens", "key", "chain.pem", "key.pem"):
        assert re.search(rf"^install -m 0400 -o {OWNER} .*\b{re.escape(name)}\b.* site/", page, re.MULTILINE), name
    kept = set((ROOT / ".dockerignore").read_text().split())
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        assert {f"!{each}" for each in copied.split()} <= kept


def test_composed_services_are_as_the_schema_says() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    files = [str(PACKAGING / name) for name in ("compose.yaml", "two-machines.yaml", "site/compose.yaml")]
    checked = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def _options(service: dict[str, Any]) -> set[str]:
    return {word.split("=")[0] for word in service["command"] if word.startswith("--")}


def test_a_composed_site_keeps_the_rules() -> None:
    """As the other services do; and nothing in front of the server keeps addresses."""
    folder = PACKAGING / "site"
    composed = yaml.safe_load((folder / "compose.yaml").read_text())
    services = composed["services"]
    server = composed["services"]["server"]
    for key in ("ulimits", "mem_limit", "memswap_limit", "stop_grace_period", "read_only", "cap_drop", "security_opt"):
        assert server[key] == COMPOSE["services"]["server"][key], key
    assert "--tokens" in _options(server)
    assert "ports" not in server, "only the proxy talks to the world"
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
    directives = [line.split()[0] for line in (folder / "Caddyfile").read_text().splitlines() if line.strip()]
    assert "log" not in directives, "an access log would keep every address"
    (subnet,) = composed["networks"]["inside"]["ipam"]["config"]
    page = (ROOT / "docs" / "howto" / "web-analytics.md").read_text()
    assert f"--trusted-proxy {subnet['subnet']}" in page
    (job,) = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["server:8080"]}]
    (source,) = yaml.safe_load((folder / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((folder / "grafana" / "dashboards.yaml").read_text())["providers"]
    shown = [volume.split(":") for volume in services["grafana"]["volumes"] if volume.startswith("../grafana.json")]
    assert Path(shown[0][1]).parent == Path(provider["options"]["path"])


def test_composed_services_keep_the_rules() -> None:
    import typer.main

    from panstream.cli.app import app

    services = COMPOSE["services"]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in ("server", "reader"):
        service = services[name]
        known = {option for parameter in commands[service["command"][0]].params for option in parameter.opts}
        assert _options(service) <= known
        assert service["ulimits"] == {"core": 0, "memlock": -1}
        assert service["mem_limit"] == service["memswap_limit"], "no swap"
        assert service["stop_grace_period"] == f"{setting('TimeoutStopSec')[0]}s"
        assert "/var/lib/panstream" in {volume.split(":")[1] for volume in service["volumes"]}
    assert {"--tokens", "--certificate", "--private-key", "--key-file"} <= _options(services["server"])
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not service.get("privileged"), name
    mounted = [service["volumes"][0].split(":")[0] for service in (services["server"], services["reader"])]
    assert len(set(mounted)) == 2, "a state has one owner"
    assert "ports" not in services["redis"]
    assert services["redis"]["command"] == ["redis-server", "--save", "", "--appendonly", "no"], "no ids on its disk"


def test_two_machines_in_containers_keep_the_rules() -> None:
    import typer.main

    from panstream.cli.app import app

    services = TWO_MACHINES["services"]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {*services} == {"a", "b", "front"}
    for name, service in services.items():
        command = commands[service["command"][0]]
        known = {option for parameter in command.params for option in parameter.opts}
        needed = {parameter.opts[0] for parameter in command.params if parameter.required and "--" in parameter.opts[0]}
        assert needed <= _options(service) <= known, name
        for rule in ("read_only", "cap_drop", "security_opt", "ulimits", "mem_limit", "memswap_limit", "tmpfs"):
            assert service[rule] == COMPOSE["services"]["server"][rule], (name, rule)
        assert not any("no-hardening" in word for word in service["command"]), name
        assert service["volumes"][0] == f"./site/{name}:/etc/panstream:ro"
    volumes = [service["volumes"][1].split(":")[0] for service in services.values()]
    assert len({*volumes}) == 3, "nobody holds two shares"
    assert "ports" not in services["a"] and "ports" not in services["b"]
    assert not {*services["a"]["networks"], *services["b"]["networks"]} & {"outside"}


def test_prometheus_scrapes_by_tls_with_a_token_from_a_file() -> None:
    (job,) = yaml.safe_load((PACKAGING / "prometheus.yml").read_text())["scrape_configs"]
    assert job["scheme"] == "https"
    port = next(word for word in COMPOSE["services"]["server"]["command"] if word.startswith("--port="))
    assert job["static_configs"] == [{"targets": [f"server:{port.removeprefix('--port=')}"]}]
    folder = "/etc/prometheus/site/"
    assert any(volume.split(":")[1] == folder.rstrip("/") for volume in COMPOSE["services"]["prometheus"]["volumes"])
    assert job["authorization"]["credentials_file"].startswith(folder)
    assert job["tls_config"]["ca_file"].startswith(folder)
    assert "insecure_skip_verify" not in job["tls_config"]


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


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code; the comment lets a reader and update tools see the version."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (.+)", path.read_text())
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action) for action in used), used
