"""The number of shards in a stream's directory, and moving all cells when it changes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panstream.distributed.sharded._backend import ClusterBackend
from panstream.distributed.sharded._partitioning import partitioning_for, wipe_state
from panstream.distributed.sharded._shard import query_of
from panstream.distributed.sharded._transport import InProcessShardTransport, ShardCall
from panstream.engine.storage.disk import Disk
from panstream.errors import ConfigError


def read_shard_count(directory: Path) -> int | None:
    """Return the number of shards in a stream's directory; None if it has none yet."""
    note = directory / "cluster.json"
    return int(json.loads(note.read_text())["shards"]) if note.exists() else None


def write_shard_count(directory: Path, shards: int) -> None:
    """Record the number of shards, then destroy the directories of any other number.

    Replacing ``cluster.json`` is the commit point of a resharding: until then the old shards are the valid ones.
    """
    if read_shard_count(directory) != shards:
        new = directory / "cluster.json.new"
        with new.open("w") as file:
            json.dump({"shards": shards}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, directory / "cluster.json")
        Disk().sync_directory(directory)
    _destroy_stale_shards(directory, shards)


def _destroy_stale_shards(directory: Path, shards: int) -> None:
    """Make the directories of any other number of shards unreadable, and remove them."""
    for other in directory.glob("shards-*"):
        if other.name != f"shards-{shards}":
            for shard in other.iterdir():
                _destroy(shard)
            other.rmdir()


def reshard(shards: int, algorithms: Mapping[str, Any], directory: Path, operator_key: bytes | None = None) -> None:
    """Move every cell to its owner under a new number of shards, if that differs from the directory's.

    A crash before the commit point leaves the old shards valid, and the new ones are destroyed at the next start.

    Args:
        shards: New number of shards.
        algorithms: The algorithm of every sharded query.
        directory: Parent of all shard directories, which must be local to this process.
        operator_key: Part of the key of the snapshot stores.
    """
    old_shard_count = read_shard_count(directory)
    if old_shard_count is None:
        return
    _destroy_stale_shards(directory, old_shard_count)  # of an interrupted resharding
    if old_shard_count == shards:
        return
    old = InProcessShardTransport(old_shard_count)
    new = InProcessShardTransport(shards)
    try:
        for transport in (old, new):
            transport.open(algorithms, directory, operator_key)
        _move(old, new, algorithms)
    finally:
        old.close()
        new.close()
    write_shard_count(directory, shards)


def _move(old: InProcessShardTransport, new: InProcessShardTransport, algorithms: Mapping[str, Any]) -> None:
    backend = ClusterBackend(old)
    statuses = backend.join()
    _, recent, absorbed, names, _ = statuses[0]
    positions = sorted(recent), sorted(absorbed), None
    if any((sorted(status.recent), sorted(status.absorbed), status.reading) != positions for status in statuses):
        raise ConfigError(
            "the shards are at different positions, probably after a crash: start once with the old number of "
            f"shards, {old.shards}, and feed the same input; then change it"
        )
    parts: list[dict[str, bytes]] = [{} for _ in range(new.shards)]
    for name in names:
        algorithm = algorithms.get(query_of(name))
        if algorithm is None:
            raise ConfigError(f"query {query_of(name)!r} is stored but not configured: keep it while shards are moved")
        state = backend.assemble(name, algorithm, 0)
        partitioning = partitioning_for(algorithm, new.shards)
        for shard, shard_parts in enumerate(parts):
            part = partitioning.extract_shard(state, shard)
            shard_parts[name] = partitioning.encode(part, shard)
            wipe_state(part)
        wipe_state(state)
    # The new shards are durable when this returns, next to the old ones; `write_shard_count` then decides for them.
    new.send(
        [ShardCall(shard, "replace", (backend.step + 1, parts[shard], recent, absorbed)) for shard in range(new.shards)]
    )


def _destroy(directory: str | os.PathLike[str]) -> None:
    """Make a shard's directory unreadable: overwrite its key, then remove it."""
    path = Path(directory)
    names = [path / name for name in ("state.sealed", "state.new")]
    # The key is in the same file: once it is zeros, ciphertext that the disk still has cannot be decrypted.
    for name in names:
        with contextlib.suppress(FileNotFoundError), name.open("r+b", buffering=0) as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            os.fsync(file.fileno())
    for name in [*names, path / "lock"]:
        name.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()
