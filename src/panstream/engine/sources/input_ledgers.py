"""Where the ledgers of inputs are: next to local files and tables; of those in object stores, in the user's home.

A ledger in the home knows the answers of this user on this machine only. It is identified by the address of the file or
table, whatever its contents are by now: a hash of the contents must not be written down, since it would confirm a guess
of all rows.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from panstream.engine.sources.input_files import InputFile
from panstream.engine.sources.object_stores import RemoteFile
from panstream.engine.storage.disk import wrap_os_errors
from panstream.engine.storage.ledger_file import LEDGER, ledger_path_for

_NAME = re.compile(r"[^A-Za-z0-9._-]")


def ledgers_of(files: Sequence[InputFile]) -> list[Path]:
    """Return the ledger files of inputs, each once: of a table it is one for all of its files and snapshots."""
    ledgers: dict[Path, None] = {}
    for file in files:
        if isinstance(file.path, RemoteFile):
            address = file.path.uri if file.table is None else file.table.root
            ledgers[_in_home(address, file.path.store.identity)] = None
        elif file.path is not None and file.table is not None:
            root = Path(file.table.root).resolve()
            ledgers[root.with_name(root.name + LEDGER)] = None
        elif file.path is not None:
            ledgers[ledger_path_for(file.path)] = None
    return list(ledgers)


def _in_home(address: str, store: str) -> Path:
    """Return the ledger of an address in a store; its directory is created."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    directory = Path(state) / "panstream" / "ledgers"
    with wrap_os_errors(lambda why: f"the directory of ledgers, {directory}, cannot be created: {why}"):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = hashlib.sha256(f"{store}\0{address.rstrip('/')}".encode()).hexdigest()[:16]
    name = _NAME.sub("_", address.rstrip("/").rpartition("/")[2])[:64]
    return directory / f"{name}-{key}{LEDGER}"
