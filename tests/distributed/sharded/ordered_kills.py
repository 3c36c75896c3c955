"""kill -9 of workers, scheduler and coordinator while windows and ticks are read, at every phase."""

from __future__ import annotations

import csv
import json
import random
import threading
from collections import Counter
from pathlib import Path

from panstream.engine.runtime.checkpoint import open_log
from tests.distributed.sharded.fork_server import read_settings, topic_settings
from tests.distributed.sharded.ordered_tasks import Records, records_of, run_alone, without_claims, write_lake
from tests.distributed.sharded.processes import Processes, processes

VICTIMS = ("reader", "reader", "worker-0", "worker-1", "worker-0", "worker-1", "scheduler")
KAFKA_ROWS = 800
MOST_KILLS = 8  # in one reading of the lake


def kill_while_reading(directory: Path, kills: int, *, seed: int = 3) -> Counter[tuple[str, str]]:
    """Kill processes so many times; return how often each victim died at each phase of the coordinator.

    The lake is read to its end again and again, without noise and with noise in turn. Without noise, the answers must
    be those of one process; with noise, each must have been drawn once.

    Raises:
        AssertionError: A row was lost or counted twice, or an answer was drawn twice.
    """
    order = random.Random(seed)
    partitions = write_lake(directory / "lake", files=4, rows=300)
    expected, _ = run_alone(read_settings(directory / "unused"), directory / "lake")
    done: Counter[tuple[str, str]] = Counter()
    number = 0
    with processes(directory) as cluster:
        cluster.start_cluster()
        while done.total() < kills:
            noise = ("none", "some")[number % 2]
            state = directory / f"state-{number}"
            command = ("reader", cluster.address, str(state), str(directory / "lake"), noise)
            published = _read_once(cluster, command, done, kills, order)
            assert len(partitions) > 8
            with open_log(read_settings(state)) as log:
                _check(records_of(log), expected, published, noise)
            number += 1
    return done


def kill_while_reading_kafka(directory: Path, kills: int, *, seed: int = 4) -> Counter[tuple[str, str]]:
    """Do the same while workers read the partitions of a topic."""
    from tests.engine.sources.kafka_broker import Broker

    order = random.Random(seed)
    broker = Broker()
    write_lake(directory / "lake", files=1, rows=KAFKA_ROWS, format="csv")
    (file,) = (directory / "lake").iterdir()
    with file.open() as lines:
        messages = [json.dumps({name: value for name, value in row.items() if value}) for row in csv.DictReader(lines)]
    lines_file = directory / "rows" / "rows.jsonl"
    lines_file.parent.mkdir()
    lines_file.write_text("\n".join(messages) + "\n")
    expected, _ = run_alone(topic_settings(directory / "unused"), lines_file.parent)
    done: Counter[tuple[str, str]] = Counter()
    number = 0
    with processes(directory) as cluster:
        cluster.start_cluster()
        while done.total() < kills:
            noise = ("none", "some")[number % 2]
            state = directory / f"state-{number}"
            topic = broker.topic()
            broker.publish(topic, messages)
            command = ("topic", cluster.address, str(state), broker.url(topic), noise, str(KAFKA_ROWS))
            published = _read_once(cluster, command, done, kills, order)
            with open_log(topic_settings(state)) as log:
                _check(records_of(log), expected, published, noise)
            number += 1
    broker.stop()
    return done


def _check(found: Records, expected: Records, published: dict[tuple[str, str], str], noise: str) -> None:
    if noise == "none":
        assert without_claims(found) == without_claims(expected), "rows were lost or counted twice"
    else:
        assert {key: len(group) for key, group in found.items()} == {key: len(group) for key, group in expected.items()}
    log = {
        (query.replace(" ", "_"), str(answer)): {repr(record["value"]) for record in group}
        for (query, answer), group in found.items()
    }
    for key, value in published.items():
        assert value in log[key], "an answer was drawn twice"


def _read_once(
    cluster: Processes,
    command: tuple[str, ...],
    done: Counter[tuple[str, str]],
    kills: int,
    order: random.Random,
) -> dict[tuple[str, str], str]:
    """Read all rows in spite of some kills; return what was published."""
    published: dict[tuple[str, str], str] = {}
    cluster.start("reader", *command)
    remaining = min(MOST_KILLS, kills - done.total())
    wait = order.randint(1, 40)
    while True:
        word, *rest = cluster.next_said().split()
        if word == "done":
            break
        if word == "published":
            query, number, value = rest
            assert published.setdefault((query, number), value) == value, "an answer was drawn twice"
        elif word == "phase":
            wait -= 1
            if not wait and remaining:
                victim = order.choice(VICTIMS)
                threading.Event().wait(order.random() * 0.02)  # from its beginning to any point within it
                cluster.kill(victim)
                done[victim, rest[0]] += 1
                remaining -= 1
                wait = order.randint(1, 40)
    cluster.stop("reader")
    return published
