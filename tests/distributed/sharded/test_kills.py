"""kill -9 of scheduler, workers and coordinator at random moments under load: nothing acknowledged is lost or counted
twice.

14 kills by default; PANSTREAM_CLUSTER_KILLS for more.
"""

import os
import random
import threading
from pathlib import Path

import pytest

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._transport import InProcessShardTransport
from tests.distributed.sharded.fork_server import SIZE, settings
from tests.distributed.sharded.processes import processes

KILLS = int(os.environ.get("PANSTREAM_CLUSTER_KILLS", "14"))


@pytest.mark.slow
def test_kill_nine(tmp_path: Path) -> None:
    draw = random.Random(27)
    state = tmp_path / "state"
    acknowledged = -1
    published = {}
    with processes(tmp_path) as cluster:
        cluster.start_cluster()
        cluster.start("load", "load", cluster.address, str(state))
        victims = ["worker-0", "worker-1", "load", "worker-0", "worker-1", "load", "scheduler"]
        killed = []
        for _ in range(KILLS):
            steps = draw.randint(1, 3)
            while steps:
                word, *rest = cluster.next_said().split()
                if word == "applied":
                    assert int(rest[0]) > acknowledged, "an acknowledged batch was asked for again"
                    acknowledged = int(rest[0])
                    steps -= 1
                elif word == "published":
                    name, number, value = rest
                    assert published.setdefault((name, number), value) == value, "an answer was drawn twice"
            threading.Event().wait(draw.random() * 0.05)  # from between two steps to any point within one
            killed.append(draw.choice(victims))
            cluster.kill(killed[-1])
        assert {"worker-0", "worker-1", "load", "scheduler"} <= set(killed)
    while not cluster.lines.empty():
        word, *rest = cluster.lines.get().split()
        acknowledged = int(rest[0]) if word == "applied" else acknowledged
    with ClusterEngine(settings(state), InProcessShardTransport(2), zero_noise=True) as engine:  # type: ignore[arg-type]
        from tests.distributed.sharded.fork_server import batch

        last = engine.last_sequence("load")
        assert last in (acknowledged, acknowledged + 1), "the last batch may be durable and not yet acknowledged"
        engine.apply(batch(last + 1))  # some shards may have it already
        batches = last + 2
        engine.finish()
        log = {(r.query, str(r.number)): repr(r.record["value"]) for r in engine.log.history()}
        assert published.items() <= log.items(), "every published value is in the log, with the same value"
        assert engine.log.last("distinct").record["value"] == pytest.approx(batches * SIZE)  # type: ignore[union-attr]
        assert engine.log.last("visits").record["value"] == pytest.approx(batches * SIZE * 2)  # type: ignore[union-attr]
        assert engine.log.last("sum").record["value"] == pytest.approx(batches * SIZE * 2)  # type: ignore[union-attr]
        names = engine.log.last("names").record  # type: ignore[union-attr]
        assert {item["name"]: round(item["count"]) for item in names["items"]} == {
            f"r{number}": batches * 2 for number in range(SIZE)
        }
