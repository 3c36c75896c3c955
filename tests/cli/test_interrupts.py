"""A command that is stopped by a signal ends in order, with exit code 128 and the signal's number, whatever it does."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from panstream.cli.common import StopSignal
from panstream.cli.main import main
from panstream.client.client import Client
from panstream.engine.runtime.ingest import ingest_all
from panstream.engine.sources.byte_streams import PipeBytes
from panstream.server.server import _ListeningServer

CONFIG = """
[stream]
name = "visits"
columns = { host = "string" }
[store]
directory = "state"
[[query]]
name = "visits"
sql = "SELECT COUNT(*) FROM visits"
epsilon = 1.0
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM]
COMMANDS: dict[str, tuple[list[str], type | str, str]] = {  # with where the signal finds them
    "query": (["SELECT COUNT(*) FROM '-'", "--epsilon=1"], PipeBytes, "head"),
    "run": (["panstream.toml", "visits.csv"], ingest_all.__module__, "_apply_batch"),
    "send": (["http://127.0.0.1:9", "visits", "visits.csv"], Client, "send_body"),
    "serve": (["panstream.toml", "--port=0"], _ListeningServer, "_start"),
    "web": (["--site=example.org", "--visitors-per-day=1000", "--listen=127.0.0.1:0"], _ListeningServer, "_start"),
}


@pytest.fixture
def handlers() -> Iterator[None]:
    saved = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)


def signalling(real: Callable[..., Any], number: int) -> Callable[..., Any]:
    def works(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    return works


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", COMMANDS)
def test_exit_code_is_128_and_the_signal(
    command: str,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    handlers: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "panstream.toml").write_text(CONFIG)
    (tmp_path / "visits.csv").write_text("host\n" + "a\n" * 100)
    options, owner, name = COMMANDS[command]
    target = sys.modules[owner] if isinstance(owner, str) else owner
    real = getattr(target, name)
    monkeypatch.setattr(target, name, signalling(real, number))
    monkeypatch.setattr(sys.modules[main.__module__], "import_without_gc", lambda *modules: None)
    monkeypatch.setattr(sys, "argv", ["command", command, *options])
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + number
    assert "Traceback" not in capsys.readouterr().err
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_commands_that_serve_wait_for_a_signal(number: int, handlers: None) -> None:
    stop = StopSignal()
    assert not stop.wait(0)
    os.kill(os.getpid(), number)
    assert stop.wait()
    with pytest.raises(typer.Exit) as ended:
        stop.exit()
    assert ended.value.exit_code == 128 + number


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", ["load", "harden"])  # before typer has the command, and after
def test_a_signal_before_the_command_begins(
    moment: str, number: int, monkeypatch: pytest.MonkeyPatch, handlers: None
) -> None:
    def signalled(*modules: str) -> NoReturn:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was not noticed")

    module = sys.modules[main.__module__]
    monkeypatch.setattr(module, "import_without_gc", signalled if moment == "load" else lambda *modules: None)
    monkeypatch.setattr("panstream.cli.commands.serve.reexec_hardened", signalled)
    monkeypatch.setattr(module, "reexec_hardened", lambda: None)
    monkeypatch.setattr(sys, "argv", ["command", "worker", "tcp://127.0.0.1:9"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + number


def test_a_forked_child_is_ended_by_the_signal_of_its_parent() -> None:
    code = """
import os, select, signal
from panstream.primitives.interrupts import INTERRUPTS
with INTERRUPTS.handling():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"x")
        while True:  # a signal that comes just before a call is handled after it, so no call may last for ever
            select.select([], [], [], 0.05)
    os.read(read, 1)
    os.kill(child, signal.SIGTERM)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == signal.SIGTERM
