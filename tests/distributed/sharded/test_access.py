"""A Dask port executes what it is sent: none accepts others, and none but the worker's own is open at all."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Scheduler, Security
from distributed.comm import connect
from distributed.protocol.pickle import dumps
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.distributed.sharded.dask_setup import check_client, local_cluster, security_for, serve_worker
from panstream.distributed.sharded.session import open_engines
from panstream.engine.config.config import read_config
from panstream.errors import InvalidParameter
from panstream.primitives.certificates import Authority
from tests.waiting import PATIENCE


def _listening() -> Callable[[], set[str]]:
    """Return the function below such that it travels to a worker, whose files nobody else of the same user may look
    at.
    """

    def listening() -> set[str]:
        """Return the addresses that this process listens on."""
        own = set()
        for entry in os.listdir("/proc/self/fd"):
            try:
                own.add(os.readlink(f"/proc/self/fd/{entry}"))
            except OSError:
                continue
        found = set()
        for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                    words = bytes.fromhex(fields[1].split(":")[0])
                    turned = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                    found.add(f"{socket.inet_ntop(family, turned)} {int(fields[1].split(':')[1], 16)}")
        return found

    return listening


listening = _listening()


def certificates(directory: Path) -> dict[str, str]:
    directory.mkdir()
    identity = Authority(directory).issue("localhost")
    roles = ("client", "scheduler", "worker")
    return {
        "distributed.comm.tls.ca-file": str(identity.authority),
        **{f"distributed.comm.tls.{role}.cert": str(identity.certificate) for role in roles},
        **{f"distributed.comm.tls.{role}.key": str(identity.key) for role in roles},
    }


@asynccontextmanager
async def worker(protocol: str) -> AsyncIterator[tuple[str, set[str]]]:
    """Run a worker, and yield its address and what it listens on."""
    secure = Security(require_encryption=protocol == "tls")
    async with Scheduler(
        host="127.0.0.1", port=0, protocol=protocol, security=secure, dashboard_address="127.0.0.1:0", dashboard=False
    ) as scheduler:
        before = listening()
        running = asyncio.create_task(serve_worker(scheduler.address, name=None, scratch=None, listen=None))
        while not scheduler.workers:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.01)
        yield next(iter(scheduler.workers)), listening() - before
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def send_function(address: str, mark: Path, seconds: float, **options: Any) -> None:
    """Send a worker a function to run, as Dask's own client does, and wait for the answer."""
    comm = await connect(address, timeout=seconds, **options)
    try:
        function = dumps(os.mkdir)
        await comm.write(
            {"op": "run", "function": function, "args": dumps((str(mark),)), "kwargs": dumps({}), "wait": True}
        )
        await asyncio.wait_for(comm.read(), seconds)
    finally:
        comm.abort()


@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_a_worker_listens_on_one_port_of_one_address(protocol: str, tmp_path: Path) -> None:
    async def look() -> None:
        async with worker(protocol) as (address, open_ports):
            host, port = address.split("//")[1].rsplit(":", 1)
            assert open_ports == {f"{host} {port}"}
            assert host == "127.0.0.1"

    with dask.config.set(certificates(tmp_path / "own")):
        asyncio.run(look())


@pytest.mark.slow
def test_processes_of_this_machine_listen_on_loopback_only() -> None:
    before = listening()
    with local_cluster(1) as cluster, cluster.get_client() as client:
        assert cluster.scheduler_address.startswith("tls://")
        (worker,) = client.run(listening).values()
        found = {*worker, *listening() - before}
        assert len(found) >= 3
        assert {address.split()[0] for address in found} == {"127.0.0.1"}


def test_a_function_of_an_unknown_sender_does_not_run(tmp_path: Path) -> None:
    own = certificates(tmp_path / "own")
    other = certificates(tmp_path / "other")

    async def attack() -> None:
        async with worker("tls") as (address, _):
            plain = address.replace("tls://", "tcp://")
            with dask.config.set(other):
                foreign = Security().get_connection_args("client")
            for name, where, options in (
                ("plain", plain, {}),
                ("foreign", address, foreign),
            ):
                with pytest.raises((OSError, TimeoutError)):
                    await send_function(where, tmp_path / name, 3, **options)
                assert not (tmp_path / name).exists()
            known = Security(require_encryption=True).get_connection_args("client")
            await send_function(address, tmp_path / "known", PATIENCE, **known)
            assert (tmp_path / "known").exists(), "who has the certificate may: so the attack would work"

    with dask.config.set(own):
        asyncio.run(attack())


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "tcp://0.0.0.0:8786", "10.0.0.1:8786", "ws://127.0.0.1:1"])
def test_plain_addresses_of_other_machines_are_refused(address: str) -> None:
    said = CliRunner().invoke(app, ["worker", address, "--no-hardening"])
    assert said.exit_code == 2
    assert "tls://" in said.output
    assert "worker.cert" in said.output
    asked = {"name": "n", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0}
    config = read_config({"stream": {"name": "s", "columns": {"user": "int"}}, "query": [asked]})
    with pytest.raises(InvalidParameter, match=r"client\.cert"), open_engines(config, address=address):
        pass


def test_a_worker_without_tls_listens_on_loopback_only() -> None:
    said = CliRunner().invoke(app, ["worker", "tcp://127.0.0.1:1", "--listen", "0.0.0.0", "--no-hardening"])
    assert said.exit_code == 2
    assert "loopback" in said.output


def test_tls_needs_certificates_on_both_sides(tmp_path: Path) -> None:
    own = certificates(tmp_path / "own")
    with pytest.raises(InvalidParameter, match=r"worker\.cert"):
        security_for("tls://10.0.0.1:8786", "worker")
    with dask.config.set({**own, "distributed.comm.tls.worker.cert": str(tmp_path / "gone")}):
        with pytest.raises(InvalidParameter, match="there is no cert"):
            security_for("tls://10.0.0.1:8786", "worker")
        assert security_for("tls://10.0.0.1:8786", "client").require_encryption


def test_a_client_of_a_plain_cluster_is_refused() -> None:
    class Client:
        def __init__(self, *addresses: str) -> None:
            self.scheduler = type("S", (), {"address": addresses[0]})
            self.ncores = lambda: dict.fromkeys(addresses[1:], 1)

    for good in ("tls://10.0.0.1:8786", "tcp://127.0.0.1:8786", "inproc://10.0.0.1/2/3"):
        check_client(Client(good, good))
        with pytest.raises(InvalidParameter, match="TLS"):
            check_client(Client(good, "tcp://10.0.0.1:4000"))
