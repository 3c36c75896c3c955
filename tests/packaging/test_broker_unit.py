"""The drop-in of the deploy page: an engineer's way from the unit file to rows that a real Redis hands over."""

import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from redis import Redis as Client

from tests.browser.serving import serving
from tests.engine.sources.test_redis import Server as Redis
from tests.packaging.test_packaging import ROOT, UNIT
from tests.server.server_live import CONFIG
from tests.waiting import until

PAGE = (ROOT / "docs" / "howto" / "deploy.md").read_text()
DROP_IN = re.search(r"(?ms)broker\.conf <<'END'\n(.*?)^END$", PAGE)[1]  # type: ignore[index]


def test_systemd_understands_the_unit_with_its_drop_in(tmp_path: Path) -> None:
    unit = tmp_path / "panstream.service"
    both = UNIT.replace("[Install]", f"{DROP_IN}\n[Install]")
    unit.write_text(both.replace("/opt/panstream/bin/panstream", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert "panstream.service" not in verified.stderr, verified.stderr
    unit.write_text(unit.read_text().replace("LoadCredential=redis", "LoadCredentials=redis"))
    control = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert "panstream.service" in control.stderr


def test_a_database_has_its_driver_and_a_file_for_its_password(tmp_path: Path) -> None:
    """The page shows a PostgreSQL sink: the image has its driver, and the drop-in is one that systemd understands."""
    extras = re.search(r"\.\[([a-z,]+)\]", (ROOT / "packaging" / "Dockerfile").read_text())
    assert extras is not None
    assert {"kafka", "mqtt", "postgres"} <= set(extras[1].split(","))
    drop_in = re.search(r"printf '(\[Service\].*?)' > \S+/postgres\.conf", PAGE)
    assert drop_in is not None
    settings = drop_in[1].replace("\\n", "\n").replace("%%", "%")
    assert "LoadCredential=pgpass:/etc/panstream/pgpass\nEnvironment=PGPASSFILE=%d/pgpass" in settings
    unit = tmp_path / "panstream.service"
    both = UNIT.replace("[Install]", f"{settings}\n[Install]")
    unit.write_text(both.replace("/opt/panstream/bin/panstream", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert "panstream.service" not in verified.stderr, verified.stderr


@pytest.mark.slow
def test_its_command_reads_redis_next_to_the_dashboard(tmp_path: Path) -> None:
    """As systemd runs it, with the credentials in a folder: rows are counted once over a restart, and deleted."""
    redis = Redis(tmp_path, "--requirepass", "of the queue")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "redis-password").write_text("of the queue\n")
    (credentials / "key").write_bytes(bytes(range(32)))
    made = [sys.executable, "-m", "panstream.cli", "token", str(credentials / "tokens"), "operator"]
    scopes = ["--scope", "read", "--scope", "admin"]
    token = subprocess.run([*made, *scopes], capture_output=True, text=True, check=True).stdout.strip()
    bearer = f"Bearer {token}"
    command = re.findall("^ExecStart=(.+)$", DROP_IN, re.MULTILINE)[0]
    _, _, _, *words = shlex.split(command.replace("%d", str(credentials)))
    words[words.index("--port") + 1] = "0"
    words[-1] = words[-1].replace("redis://queue.example:6379/0", redis.url)
    with (
        serving(credentials, *words, config=CONFIG) as server,
        Client(unix_socket_path=str(redis.path), password="of the queue") as client,
    ):
        assert server.ask("GET", "/healthz")["status"] == "ok"
        for expected in (20, 40):
            for number in range(20):
                client.xadd("visits", {"user": f"u{number}", "region": "north", "amount": "1"})
            until(lambda: client.xlen("visits") == 0)
            released = server.ask("POST", "/v1/queries/rows/release", b"", Authorization=bearer)
            assert round(released["releases"][0]["value"]) == expected
            asked = urllib.request.Request(f"{server.address}/metrics", headers={"Authorization": bearer})
            with urllib.request.urlopen(asked) as answer:
                assert b'panstream_source_up{source="redis:visits"} 1.0' in answer.read()
            with urllib.request.urlopen(server.address) as page:
                assert b"<title>panstream" in page.read()
            if expected == 20:
                assert server.stop()[0] == 143
                server.start()
    redis.stop()
