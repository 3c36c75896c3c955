"""What a copy of the state tells about 10,000 members, for an intruder who knows everybody else.

She holds two hypotheses about one member, in or out, at even odds, and looks at a copy of the state. A state that is a
function of the set exposes a member whenever the state without him would be another one. Ours is a random function, and
the odds it gives are computed from its bytes by the audit's own membership test.
"""

from __future__ import annotations

from typing import Any

import datasketches

from benchmarks.peers.rows import Row
from benchmarks.peers.speed import redis_server
from panstream import Monitor
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.audit.claims.membership_odds import member_odds

GROUP = "intruder"
MEMBERS = 10_000
BLOCK = 100


def rows() -> list[Row]:
    """Return for every peer how many members its state exposes, against ours."""
    print(f"what an intruder reads: members of {MEMBERS:,} of whom a copy of the state makes her at least 99% sure")
    members = [f"user-{number:05d}" for number in range(MEMBERS)]
    ours = {"Bitmap": exposed_by_ours(Bitmap(epsilon=1.0), members),
            "OptBern": exposed_by_ours(OptBern(universe=members, epsilon=1.0), members)}  # fmt: skip
    worst = max(ours.values())
    peers = {
        "Python set": lambda: MEMBERS,
        "HLL (DataSketches, 12 KiB)": lambda: hll_exposes(members),
        "Theta (DataSketches, 4,096 hashes)": lambda: theta_exposes(members),
        "Redis HyperLogLog": lambda: redis_exposes(members),
        "PyDP Count, serialised": pydp_exposes,
    }
    found = []
    for peer, count in peers.items():
        theirs = count()
        ratio = (theirs + 1) / (worst + 1)
        found.append(Row(group=GROUP, name="members exposed by one copy of the state", peer=peer, ours=f"{worst:,}",
                         theirs=f"{theirs:,}", ratio=ratio, low=ratio, high=ratio, target=1.0))  # fmt: skip
        print(found[-1], flush=True)
    return found


def exposed_by_ours(algorithm: Any, members: list[str]) -> int:
    """Return how many members the stolen bytes make her 99% sure of; the odds never pass e^epsilon."""
    monitor = algorithm.start()
    monitor.update(members)
    stolen = Monitor.from_bytes(monitor.to_bytes())
    return sum(member_odds(stolen, member).posterior >= 0.99 for member in members)


def hll_exposes(members: list[str]) -> int:
    """Return for how many members the registers of all others are different ones.

    Everybody outside a block is added once, so that only the other members of the block are added one by one.
    """
    whole = registers(fill(datasketches.hll_sketch(14), members))
    count = 0
    for start in range(0, MEMBERS, BLOCK):
        block = members[start : start + BLOCK]
        rest = fill(datasketches.hll_sketch(14), members[:start] + members[start + BLOCK :]).serialize_updatable()
        for left_out in block:
            sketch = datasketches.hll_sketch.deserialize(rest)
            count += registers(fill(sketch, [member for member in block if member != left_out])) != whole
    return count


def fill(sketch: Any, members: list[str]) -> Any:
    """Add members and return the sketch."""
    for member in members:
        sketch.update(member)
    return sketch


def registers(sketch: Any) -> bytes:
    """Return the registers without the running estimate, which depends on the order of arrival."""
    return bytes(sketch.serialize_updatable()[40:])


def theta_exposes(members: list[str]) -> int:
    """Return how many members' hashes lie in the sketch: she computes them and looks them up."""
    stolen = set(fill(datasketches.update_theta_sketch(12), members))
    return sum(next(iter(fill(datasketches.update_theta_sketch(12), [member]))) in stolen for member in members)


def redis_exposes(members: list[str]) -> int:
    """Return the same for Redis; merging makes every key dense, so that bytes compare."""
    with redis_server() as client:

        def dense(name: str) -> bytes:
            client.delete("dense")
            client.pfmerge("dense", name)
            return bytes(client.get("dense"))[16:]

        client.pfadd("all", *members)
        whole = dense("all")
        count = 0
        for start in range(0, MEMBERS, BLOCK):
            block = members[start : start + BLOCK]
            client.delete("rest")
            client.pfadd("rest", *members[:start], *members[start + BLOCK :])
            for left_out in block:
                client.delete("less")
                client.pfmerge("less", "rest")
                client.pfadd("less", *(member for member in block if member != left_out))
                count += dense("less") != whole
        return count


def pydp_exposes() -> int:
    """Return the same for a counter that adds noise to its answers only: its bytes hold the exact count."""
    from pydp.algorithms.laplacian import Count

    states = []
    for size in (MEMBERS, MEMBERS - 1):
        counter = Count(epsilon=1.0, l0_sensitivity=1, linf_sensitivity=1)
        counter.add_entries([1] * size)
        states.append(counter.serialize().to_bytes())
    return MEMBERS if states[0] != states[1] else 0
