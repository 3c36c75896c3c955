"""What is stored with a state: its claim never gets stronger, whatever the configuration says
later, and the log of answers has them all.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.config.budget import PersonBudget
from panstream.engine.config.config import Config, QueryConfig, StreamConfig
from panstream.engine.runtime.checkpoint import _NOT_STORED, _STORED_IF_GIVEN, _query_fingerprint
from panstream.engine.runtime.engine import Engine
from panstream.engine.storage.release_log import ReleaseLog
from panstream.errors import ConfigError, PanstreamError, StoreError
from panstream.primitives.noise import SeededSource
from panstream.primitives.time_grid import CalendarGrid
from panstream.privacy.claim import Claim
from tests.engine.runtime.streams import COUNT, config, question, rows

QUESTIONS = (COUNT, question("windows", "SELECT COUNT(*) FROM s", window=10))

# Every setting of a stream and of its store, with another value. A new setting must be put here: see that changing it
# either is refused or leaves claims as they are.
STREAM: dict[str, Any] = {
    "name": "t",
    "columns": {"user": "int", "at": "timestamp"},
    "user": None,
    "weight": "w",
    "time": "at",
    "lateness": 5.0,
    "max_ahead": None,
    "max_clock_jump": 7.0,
    "max_clock_gap": 7.0,
    "on_bad_row": "stop",
    "delimiter": ";",
    "decimal": ",",
    "date_format": ("%d.%m.%Y",),
    "encoding": "latin-1",
    "header": False,
    "unusable_epsilon": 0.5,
    "budget": {"event": 9.0},
    "person": PersonBudget(period=86_400.0),
    "guessed": True,
    "derived": {"twice": "value * 2"},
    "machines": ("https://a", "https://b"),
    "cells": "noisy",
    "user_columns": ("at",),
    "time_zone": "Europe/Berlin",
}
STORE: dict[str, list[Any]] = {
    "durability": ["interval", "none"],
    "interval": [7.0],
    "batch_rows": [7],
    "batch_time": [7.0],
    "keep_tables": [7],
    "keep_prefixes": [7],
    "commit_rows": [7],
    "step": [0.0, 7.0],
}
# A store belongs to one directory; questions are compared key by key; the others are not about states.
ELSEWHERE = {
    "stream",
    "queries",
    "statements",
    "lookups",
    "directory",
    "two_party",
    "sink",
    "web",
    "choices",  # of the planner
    "statement",  # what the operator says
    "digest",  # of the file, for the evidence of an audit
}

CHANGES = [
    *(("stream", key, value) for key, value in STREAM.items()),
    *(("store", key, value) for key, values in STORE.items() for value in values),
]


def changed(settings: Config, section: str, key: str, value: Any) -> Config:
    if section == "stream":
        return replace(settings, stream=replace(settings.stream, **{key: value}))
    return replace(settings, **{key: value})


def promised(settings: Config, *intakes: Any) -> tuple[dict[str, Claim], dict[str, float]]:
    """Return the claims of an engine that has rows, and what its ledger says."""
    with Engine(settings) as engine:
        engine.declare(*intakes)
        if settings.stream.time is None:
            engine.apply(rows([query.name for query in settings.queries], count=1))
        engine.commit()
        return {plan.config.name: plan.claim for plan in engine.plans}, {n: claim.epsilon for n, claim in engine.ledger}


def test_every_setting_is_looked_at() -> None:
    assert {each.name for each in fields(StreamConfig)} == STREAM.keys()
    assert {each.name for each in fields(Config)} == STORE.keys() | ELSEWHERE


@pytest.mark.parametrize("back", [False, True], ids=["changed", "changed back"])
@pytest.mark.parametrize(("section", "key", "value"), CHANGES)
def test_no_setting_changes_the_claim_of_a_stored_state(
    tmp_path: Path, section: str, key: str, value: Any, back: bool
) -> None:
    """Stopping at bad rows, commits now and then, and commits by the batch were forgotten once they were changed."""
    base = config(*QUESTIONS, directory=tmp_path)
    other = changed(base, section, key, value)
    first, second = (other, base) if back else (base, other)
    try:
        before, spent = promised(first, "http")
        after, charged = promised(second, "http")
    except PanstreamError:  # there is no stored state under this value, or the change is refused
        return
    if first.durability == "none":  # the state was not kept: another one begins, and is charged
        assert len(charged) == 2 * len(spent)
        return
    assert after == before
    assert charged == spent


@pytest.mark.parametrize(
    ("name", "stream", "store"),
    [
        ("on_bad_row", {"on_bad_row": "stop"}, {}),
        ("durability", {}, {"durability": "interval"}),
        ("step", {}, {"step": 0.0}),
    ],
)
def test_the_refusal_names_the_setting_and_the_way_out(
    tmp_path: Path, name: str, stream: dict[str, Any], store: dict[str, Any]
) -> None:
    base = config(COUNT, directory=tmp_path)
    promised(replace(base, stream=replace(base.stream, **stream), **store), "http")
    with pytest.raises(ConfigError, match=rf"\] {name} was changed .* change it back, or give the query a new name"):
        promised(base, "http")
    renamed = config({**COUNT, "name": "renamed"}, directory=tmp_path)
    claims, charged = promised(renamed, "http")
    assert claims["renamed"].epsilon == 1.0 and set(charged) == {"count", "renamed"}


def test_a_state_that_was_drawn_from_a_test_source_stays_without_privacy(tmp_path: Path) -> None:
    Engine(config(COUNT, directory=tmp_path), rng=SeededSource(1)).close()
    with pytest.raises(ConfigError, match="no privacy"):
        Engine(config(COUNT, directory=tmp_path))


def test_every_key_of_a_query_is_stored() -> None:
    settings = config(COUNT)
    stored = _query_fingerprint(settings.queries[0], settings)
    assert {each.name for each in fields(QueryConfig)} - {*_NOT_STORED, *_STORED_IF_GIVEN} <= stored.keys()
    options = {"bounded_by": "declared", "counter": "view", "calendar": CalendarGrid("day"), "at_most": 9, "changes": 2}
    given = replace(settings.queries[0], **options)
    assert _query_fingerprint(given, settings).keys() == {*stored, *_STORED_IF_GIVEN}


GROUPED = question(
    "grouped", "SELECT region, COUNT(*) FROM s GROUP BY region", groups={"region": ["a", "b"]}, releases=9
)
ASKED = question("asked", "SELECT COUNT(*) FROM s", releases=9)


def ask(directory: Path, *names: str) -> int:
    """Open a store, ask, and return how many answers are in the log."""
    with Engine(config(ASKED, GROUPED, directory=directory)) as engine:
        for name in names:
            engine.release(name)
        return sum(1 for _ in engine.log.history())


def remove_log(directory: Path) -> None:
    for path in directory.glob("releases.sqlite*"):
        path.unlink()


def empty_log(directory: Path) -> None:
    remove_log(directory)
    ReleaseLog(directory / "releases.sqlite").close()


def cut_log(directory: Path) -> None:
    """Remove one answer of one group, but not the last."""
    with contextlib.closing(sqlite3.connect(directory / "releases.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM releases WHERE query = 'grouped [region=b]' AND number = 1")


def put_older_log(directory: Path) -> None:
    remove_log(directory)
    shutil.copy(directory / "older", directory / "releases.sqlite")


@pytest.mark.parametrize("harm", [remove_log, empty_log, cut_log, put_older_log])
def test_a_log_that_lacks_answers_is_noticed(tmp_path: Path, harm: Any) -> None:
    """It was created anew without a word, and a state put back could then draw its answers twice."""
    ask(tmp_path, "asked", "grouped")
    shutil.copy(tmp_path / "releases.sqlite", tmp_path / "older")
    assert ask(tmp_path, "asked", "grouped") == ask(tmp_path) == 6
    harm(tmp_path)
    with pytest.raises(StoreError, match=r"put the log back, or give the query a new name"):
        ask(tmp_path)
    renamed = [{**query, "name": f"new {query['name']}"} for query in (ASKED, GROUPED)]
    with Engine(config(*renamed, directory=tmp_path)) as engine:
        assert len(engine.ledger) == 4


def test_answers_that_were_not_published_yet_are_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(tmp_path, "grouped")
    published: list[Any] = []

    def full(self: ReleaseLog, release: Any) -> bool:
        published.append(release)
        if len(published) == 4:  # the start publishes the last two again
            raise StoreError("the disk is full")
        return real(self, release)

    real = ReleaseLog.publish
    monkeypatch.setattr(ReleaseLog, "publish", full)
    with pytest.raises(StoreError, match="full"):
        ask(tmp_path, "grouped")
    monkeypatch.undo()
    assert ask(tmp_path) == 4
