"""Three hospitals as Flower nodes on this machine, with TLS and a key for every node.

    python examples/flower/run.py
    python examples/flower/run.py --secure     # all pairs by secure sums, with the noise of one hospital

Starts a SuperLink and three SuperNodes, registers the nodes' public keys, runs the app in this folder, prints what
every hospital spent, and stops everything again. Needs ``pip install 'panstream[flower]'`` (best in an environment of
its own).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from panstream.models.federated import Authority, write_signing_key
from panstream.models.networks import load, read_metadata

HERE = Path(__file__).parent
DATA = HERE.parent / "data" / "hospitals"
PROGRAMS = Path(sys.executable).parent
PATIENCE = float(os.environ.get("PANSTREAM_FLOWER_SECONDS", "400"))
HOSPITALS = ("north", "south", "west")
BUDGET = "epsilon = 2.0\ndelta = 1e-6\n"


def main(secure: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="panstream-flower-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        server = Authority(folder / "certificates").issue("superlink")
        ports = free_ports(1 + len(HOSPITALS))
        link = f"127.0.0.1:{ports[0]}"
        environment = {**os.environ, "FLWR_HOME": str(folder / "flower"), "FLWR_TELEMETRY_ENABLED": "0"}
        environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
        configure(folder, link, server.authority)

        def start(name: str, *command: str) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen(
                [str(PROGRAMS / command[0]), *command[1:]],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
            stack.callback(stop, process)

        def flower(*command: str) -> str:
            done = subprocess.run(
                [str(PROGRAMS / "flwr"), *command],
                capture_output=True,
                text=True,
                env=environment,
                timeout=PATIENCE,
                check=False,
            )
            return done.stdout + done.stderr

        tls = (
            "--ssl-certfile",
            str(server.certificate),
            "--ssl-keyfile",
            str(server.key),
            "--ssl-ca-certfile",
            str(server.authority),
        )
        start(
            "superlink",
            "flower-superlink",
            *tls,
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *("--host", "127.0.0.1", "--port", str(ports[0])),
        )
        wait_for(ports[0])
        rosters = exchange_keys(folder) if secure else {}
        for name, port in zip(HOSPITALS, ports[1:], strict=True):
            private, public = node_key(folder, name)
            said = flower("supernode", "register", str(public), "here", "--name", name)
            if "rror" in said:
                raise SystemExit(f"{name} could not be registered: {said}")
            start(
                name,
                "flower-supernode",
                *("--superlink", link, "--root-certificates", str(server.authority)),
                *("--auth-supernode-private-key", str(private), "--host", "127.0.0.1", "--port", str(port), *tls),
                *("--node-config", f'holder="{holder_file(folder, name, rosters.get(name, ""))}"'),
            )
        out = folder / "network.json"
        begun = time.monotonic()
        given = f'federation="{run_file(folder, secure)}" out="{out}"'
        print(flower("run", str(HERE), "here", "--run-config", given).strip())
        while not out.exists():
            if time.monotonic() > begun + PATIENCE:
                for log in sorted(folder.glob("*.log")):
                    print(f"== {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
                raise SystemExit(f"no network after {PATIENCE:g} s")
            time.sleep(0.5)
        time.sleep(0.5)
        about = read_metadata(out.read_text("utf-8"))
        print(f"{about['method']}: {load(out)} after {time.monotonic() - begun:.0f} s")
        print("spent by each hospital's own ledger:", json.dumps(about["spent"]))
        print(
            f"claim: epsilon {about['claim']['epsilon']:g}, delta {about['claim']['delta']:g} for one record, "
            f"replace-one; {about['claim'].get('note', '')}"
        )


def configure(folder: Path, link: str, authority: Path) -> None:
    home = folder / "flower"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{link}"\nroot-certificates = "{authority}"\n'
    )


def node_key(folder: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    private = folder / f"{name}.ssh"
    public = folder / f"{name}.ssh.pub"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return private, public


def exchange_keys(folder: Path) -> dict[str, str]:
    """Give every hospital a signing key, and all of them everybody's public key: in earnest they do so themselves."""
    keys = {name: write_signing_key(folder / f"{name}.signing").hex() for name in HOSPITALS}
    members = "[holder.members]\n" + "".join(f'{name} = "{key}"\n' for name, key in keys.items())
    return {name: f'signing_key = "{folder}/{name}.signing"\n{members}' for name in HOSPITALS}


def holder_file(folder: Path, name: str, roster: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(
        f'[holder]\nname = "{name}"\ndata = "{DATA}/{name}.csv.gz"\ndomain = "{DATA}/domain.json"\n{BUDGET}'
        f'ledger = "{folder}/{name}.sqlite"\n{roster}'
    )
    return path


def run_file(folder: Path, secure: bool) -> Path:
    holders = "".join(f'[[holder]]\nname = "{name}"\ndata = "{DATA}/{name}.csv.gz"\n{BUDGET}' for name in HOSPITALS)
    path = folder / "federation.toml"
    method = 'method = "pairs"\nsecure = true\n' if secure else 'method = "tree"\n'
    path.write_text(
        f'[federation]\n{method}epsilon = 1.0\ndelta = 1e-6\ndomain = "{DATA}/domain.json"\nminimum = 3\n'
        f"timeout = {PATIENCE / 2}\n{holders}"
    )
    return path


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the SuperLink does not listen")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started: it leads a session of its own."""
    for sign in (15, 9):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=8)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    main(secure="--secure" in sys.argv[1:])
