"""kill -9 at random moments under load: nothing acknowledged is lost or counted twice, no answer changes.

12 kills by default; PANSTREAM_KILLS=200 for the long form.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.errors import StoreError
from tests.engine.runtime.crash_child import NOISY_QUERIES, QUERIES, SIZE, USERS, file_of, sharing
from tests.engine.runtime.streams import COUNT, config, rows

KILLS = int(os.environ.get("PANSTREAM_KILLS", "12"))
ROOT = Path(__file__).parents[3]


class Load:
    """Starts processes under load one after the other, and kills them."""

    def __init__(self, directory: Path, noisy: str) -> None:
        self.draw = random.Random(7)
        self.launcher = subprocess.Popen(
            [sys.executable, "-u", str(Path(__file__).with_name("crash_child.py")), str(directory), noisy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run_and_kill(self) -> list[str]:
        """Let a process say some lines and go on a little longer, kill it, and return what it said."""
        assert self.launcher.stdin
        assert self.launcher.stdout
        self.launcher.stdin.write("go\n")
        self.launcher.stdin.flush()
        child = 0
        said = []
        moment = self.draw.randint(1, 25)
        while not child or len(said) < moment:
            line = self.launcher.stdout.readline().strip()
            assert line != "end", "the process ended by itself"
            if line.startswith("child "):
                child = int(line.split()[1])
            else:
                said.append(line)
        # From between two steps to any point within one: a step takes a few milliseconds.
        threading.Event().wait(self.draw.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        while (line := self.launcher.stdout.readline().strip()) != "end":
            said.append(line)
        return said

    def close(self) -> None:
        self.launcher.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("noisy", ["exact", "noisy"])
def test_kill_nine(tmp_path: Path, noisy: str) -> None:
    acknowledged = -1
    published = {}
    load = Load(tmp_path, noisy)
    for _ in range(max(KILLS // 2, 1)):
        said = load.run_and_kill()
        assert said[0] == "open" or said[0].startswith("published"), "the file must always open"
        for line in said:
            word, *rest = line.split()
            if word == "applied":
                assert int(rest[0]) > acknowledged, "an acknowledged batch was asked for again"
                acknowledged = int(rest[0])
            elif word == "published":
                name, number, value = rest
                assert published.setdefault((name, number), value) == value, "an answer was drawn twice"
    load.close()
    queries = NOISY_QUERIES if noisy == "noisy" else QUERIES
    with Engine(config(*queries, directory=tmp_path, time="at"), zero_noise=noisy != "noisy") as engine:
        last = engine.last_sequence("load")
        assert last in (acknowledged, acknowledged + 1), "the last batch may be durable and not yet acknowledged"
        log = {(r.query, str(r.number)): repr(r.record["value"]) for r in engine.log.history()}
        assert published.items() <= log.items(), "every published value is in the log, with the same value"
        assert {name for name, _ in engine.ledger} == {query["name"] for query in queries}
        if noisy == "exact":
            batches = last + 1
            assert engine.release("distinct")[0].record["value"] == pytest.approx(batches * SIZE)
            engine.finish()
            assert engine.log.last("sum").record["value"] == pytest.approx(batches * SIZE * 2)  # type: ignore[union-attr]


@pytest.mark.slow
def test_kill_nine_while_batches_of_a_file_share_a_commit(tmp_path: Path) -> None:
    load = Load(tmp_path, "file")
    stored = 0
    file_of(tmp_path)
    for _ in range(max(KILLS // 2, 1)):
        first, *rest = load.run_and_kill()
        start = int(first.removeprefix("open "))
        assert stored <= start, "what was durable is gone"
        done = start + max((int(line.removeprefix("fed ")) for line in rest), default=0)
        stored = done - 4 * SIZE  # the fifth batch brings the commit, before it is said
    load.close()
    with Engine(sharing(tmp_path, rows=5000), zero_noise=True) as engine:
        assert sum(engine.positions().values()) >= stored
        ingest(engine, [str(file_of(tmp_path))])
        engine.finish()
        values = [engine.log.last(name).record["value"] for name in ("distinct", "sum")]  # type: ignore[union-attr]
        assert values == [pytest.approx(USERS), pytest.approx(USERS)]


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    """A limit on the size of files makes writing fail half-way, as a full disk does."""
    with Engine(config(COUNT, directory=tmp_path), zero_noise=True) as engine:
        engine.apply(rows(["count"], count=5, producer="p", sequence=1))
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.engine.runtime.streams import COUNT, config, rows\n"
        "from panstream.engine.runtime.engine import Engine\n"
        "from panstream.errors import StoreError\n"
        "with Engine(config(COUNT, directory=Path(sys.argv[1])), zero_noise=True) as engine:\n"
        "    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "    try:\n"
        "        engine.apply(rows(['count'], count=7, producer='p', sequence=2))\n"
        "    except StoreError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "what was stored before is intact" in done.stdout, done.stderr
    with Engine(config(COUNT, directory=tmp_path), zero_noise=True) as engine:
        assert engine.last_sequence("p") == 1
        engine.finish()
        assert engine.log.last("count").record["value"] == 5  # type: ignore[union-attr]


MOUNTED = """
import subprocess, sys
from pathlib import Path
from tests.engine.runtime.streams import COUNT, config, rows
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.errors import PanstreamError

def attempt(step, call):
    try:
        call()
    except PanstreamError as error:
        print(step, "refused:", error, flush=True)
    else:
        print(step, "done", flush=True)

folder = Path(sys.argv[1])
mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
subprocess.run(mount, check=True)  # seen by this process and its children alone
settings = config(COUNT, directory=folder / "state")
with Engine(settings, zero_noise=True) as engine:
    attempt("first", lambda: engine.apply(rows(["count"], count=5, producer="p", sequence=1)))
    with (folder / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError:
            pass
    attempt("in-place", lambda: engine.apply(rows(["count"], count=7, producer="p", sequence=2)))
    attempt("full", lambda: engine.apply(rows(["count"], count=9, producer="q" * 60_000, sequence=1)))
subprocess.run(["mount", "-o", "remount,ro,size=200k", "tmpfs", str(folder)], check=True)
attempt("read-only", lambda: Engine(settings, zero_noise=True))
subprocess.run(["mount", "-o", "remount,rw,size=200k", "tmpfs", str(folder)], check=True)
(folder / "filler").unlink()
with Engine(settings, zero_noise=True) as engine:
    attempt("two", lambda: Engine(settings, zero_noise=True))
    engine.finish()
    print("after", engine.last_sequence("p"), engine.log.last("count").record["value"])
"""


@pytest.mark.slow
def test_a_full_and_a_read_only_file_system(tmp_path: Path) -> None:
    """A small file system of its own; where none may be mounted, a directory without permission to write."""
    unshare = shutil.which("unshare")
    trial = ["-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if unshare is None or subprocess.run([unshare, *trial], capture_output=True).returncode:
        tmp_path.chmod(0o500)
        if not os.access(tmp_path, os.W_OK):  # root writes everywhere
            with pytest.raises(StoreError, match="Permission denied"):
                Engine(config(COUNT, directory=tmp_path / "state"))
        tmp_path.chmod(0o700)
        return
    done = subprocess.run(
        [unshare, "-rm", sys.executable, "-c", MOUNTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said["first"] == said["in-place"] == "done"  # a state that has grown no further needs no more room
    assert "No space left" in said["full"], said
    assert "what was stored before is intact" in said["full"], said
    assert "Read-only file system" in said["read-only"], said
    assert "another process has this store open" in said["two"], said
    assert said["after"] == "2 12.0", said


def test_a_directory_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with pytest.raises(StoreError, match="cannot use the store"):
        Engine(config(COUNT, directory=blocked))
