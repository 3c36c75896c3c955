"""Two machines and a thief who visits them by turns: three processes, an answer, and what the loot tells.

    python examples/two_machines/demo.py

Both machines run on this host, so nothing is promised here: it shows how the pieces fit. Run them on two hosts that do
not share an operator (docs/howto/two-machines.md).
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import StoreError
from panstream.models.federated import Authority

USERS = 2000
HERE = range(0, 2000, 4)
BLIND = 0.2
CONFIG = """
[stream]
name = "visits"
columns = {{ user = "int" }}
user = "user"
machines = ["https://127.0.0.1:{a}", "https://127.0.0.1:{b}"]

[two_party]
names = ["a", "b"]
certificate = "certificates/front.pem"
key = "certificates/front.key"
authority = "certificates/authority.pem"

[store]
directory = "front"

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT user) FROM visits"
universe = {users}
epsilon = 1.0
"""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def start_party(folder: Path, name: str, ports: dict[str, int]) -> subprocess.Popen[str]:
    """Start machine a or b, and wait until it answers."""
    files = folder / "certificates"
    other = "b" if name == "a" else "a"
    command = [
        *(sys.executable, "-m", "panstream.cli", "party", str(folder / name), "--stream", "visits", "--as", name),
        *("--front", "front", "--peer-name", other, "--listen", f"127.0.0.1:{ports[name]}"),
        *("--certificate", str(files / f"{name}.pem"), "--key", str(files / f"{name}.key")),
        *("--authority", str(files / "authority.pem"), "--blind", f"{int(1000 * BLIND)} ms"),
        *(["--peer", f"https://127.0.0.1:{ports['b']}"] if name == "a" else []),
    ]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    print(f"  {made.stdout.readline().strip()}")
    return made


def steal(folder: Path, name: str) -> tuple[int, np.ndarray]:
    """Copy a machine's disk, and return its step and its share of every user's bit; again if a step is under way."""
    while True:
        with tempfile.TemporaryDirectory() as loot:
            copy = Path(loot) / name
            shutil.copytree(folder / name, copy, ignore=shutil.ignore_patterns("lock"))
            try:
                with SnapshotStore(copy) as store:
                    parts = store.load() or {}
            except StoreError:  # copied in the middle of a write
                continue
        if "next" not in parts:
            cells = np.frombuffer(parts["now/0/0/visitors"], np.uint8)
            return int(json.loads(parts["now"])["step"]), np.unpackbits(cells, count=USERS, bitorder="little")


def advantage(first: np.ndarray, second: np.ndarray) -> float:
    """Return by how much the loot tells visitors from others: 0 is nothing, 1 is everything."""
    opened = first ^ second
    came = np.isin(np.arange(USERS), HERE)
    return abs(float(opened[came].mean() - opened[~came].mean()))


def main() -> None:
    """Start everything, answer, and let the thief have his turns."""
    running: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ports = {"a": free_port(), "b": free_port()}
        authority = Authority(folder / "certificates")
        for name in ("a", "b", "front"):
            authority.issue(name)
        (folder / "panstream.toml").write_text(CONFIG.format(users=USERS, **ports))
        (folder / "visits.csv").write_text("user\n" + "".join(f"{user}\n" for user in HERE))
        print("One host is one machine: nothing is promised here.")
        try:
            running += [start_party(folder, "b", ports), start_party(folder, "a", ports)]
            command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", "visits.csv"]
            subprocess.run(command, cwd=folder, check=True)
            visits: list[tuple[str, int, np.ndarray]] = []
            for turn in range(8):
                name = "ab"[turn % 2]
                while True:  # at least one whole step that nobody saw since the last look
                    step, cells = steal(folder, name)
                    if not visits or step >= visits[-1][1] + 2:
                        break
                    time.sleep(BLIND)
                visits.append((name, step, cells))
            seen = {which: {step for name, step, _ in visits if name == which} for which in "ab"}
            assert not seen["a"] & seen["b"], "an epoch was seen at both machines"
            found = max(advantage(one[2], two[2]) for one in visits[::2] for two in visits[1::2])
            print(f"A thief in a and b by turns, eight times, never in one epoch: advantage at most {found:.2f}")
            print(f"  (with {USERS:,} coins instead of loot, sixteen pairs show about {2.2 * 2.3 / USERS**0.5:.2f})")
            while True:
                one = steal(folder, "a")
                two = steal(folder, "b")
                if one[0] == two[0]:
                    break
            print(f"Both machines in one epoch, which is not covered: advantage {advantage(one[1], two[1]):.2f}")
        finally:
            for each in reversed(running):
                each.terminate()
                each.wait()


if __name__ == "__main__":
    main()
