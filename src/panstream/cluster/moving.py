"""How many shards a stream has, and how its cells are dealt out anew when that changes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from panstream.cluster.backend import ClusterBackend
from panstream.cluster.division import Division, wipe_state
from panstream.cluster.links import Call, LocalLink, Opening
from panstream.cluster.shard import destroy, query_of
from panstream.errors import ConfigError

__all__ = ["deal_out_anew", "note_shards", "stored_shards"]


def stored_shards(directory: Path) -> int | None:
    """Return how many shards a stream's directory has, None if it has none yet."""
    note = directory / "cluster.json"
    return int(json.loads(note.read_text())["shards"]) if note.exists() else None


def note_shards(directory: Path, shards: int) -> None:
    """Write how many shards count from now on: the point from which only they do."""
    if stored_shards(directory) != shards:
        new = directory / "cluster.json.new"
        with new.open("w") as file:
            json.dump({"shards": shards}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, directory / "cluster.json")
    _sweep(directory, shards)


def _sweep(directory: Path, shards: int) -> None:
    """Make shards of another number unreadable, and remove them."""
    for other in directory.glob("shards-*"):
        if other.name != f"shards-{shards}":
            for shard in other.iterdir():
                destroy(shard)
            other.rmdir()


def deal_out_anew(opening: Opening, directory: Path) -> None:
    """Move all cells where the number of shards has changed. The directories must be within reach of this process."""
    before = stored_shards(directory)
    if before is None:
        return
    _sweep(directory, before)  # what an interrupted move left
    if before == opening.shards:
        return
    old, new = LocalLink(before), LocalLink(opening.shards)
    try:
        old.open(replace(opening, shards=before))
        new.open(opening)
        _move(old, new, opening)
    finally:
        old.close()
        new.close()
    note_shards(directory, opening.shards)


def _move(old: LocalLink, new: LocalLink, opening: Opening) -> None:
    backend = ClusterBackend(old)
    found = backend.join()
    _, recent, absorbed, names = found[0]
    if any((sorted(other[1]), sorted(other[2])) != (sorted(recent), sorted(absorbed)) for other in found):
        raise ConfigError(
            "the shards stand at different positions, as after a crash: start once with the old number of "
            f"shards, {old.shards}, and feed the same input; then change it"
        )
    parts: list[dict[str, bytes]] = [{} for _ in range(new.shards)]
    for name in names:
        algorithm = opening.algorithms.get(query_of(name))
        if algorithm is None:
            raise ConfigError(f"query {query_of(name)!r} is stored but not asked: name it while the shards are moved")
        state, division = backend.whole(name, algorithm, 0), Division(algorithm, new.shards)
        for shard, own in enumerate(parts):
            part = division.cut(state, shard)
            own[name] = division.encode(part, shard)
            wipe_state(part)
        wipe_state(state)
    new.send(
        [Call(shard, "replace", (backend.step + 1, parts[shard], recent, absorbed)) for shard in range(new.shards)]
    )
