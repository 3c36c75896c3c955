"""Every key, command, option and exit code stands in the reference, and nothing else does."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from panstream.cli import common as outcome
from panstream.cli.app import app
from panstream.engine.config.config import Config, QueryConfig, StreamConfig, read_config
from panstream.engine.config.sink import SinkConfig
from panstream.engine.config.statement import StatementConfig
from panstream.engine.config.two_party import TwoPartyConfig
from panstream.engine.config.website import WebConfig
from panstream.engine.sql.parser import Aggregate

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CONFIGURATION = (REFERENCE / "configuration.md").read_text()
SQL = (REFERENCE / "sql.md").read_text()
COMMANDS = (REFERENCE / "commands.md").read_text()


# Fields that are no keys of [[query]], and of [store].
INTERNAL = {"parsed", "statement", "of_unusable", "later"}
ELSEWHERE = {"digest", "choices", "stream", "queries", "statements", "lookups", "sink", "two_party", "web", "statement"}


def section(text: str, title: str) -> str:
    """Return what stands below a heading, up to the next of the same rank."""
    return re.split(r"^## ", text.split(f"## {title}\n", 1)[1], flags=re.MULTILINE)[0]


def keys(title: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]*) \|", section(CONFIGURATION, title), re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("title", "declared"),
    [
        ("[stream]", {field.name for field in fields(StreamConfig)} - {"guessed", "cells", "person"}),
        (
            "[[query]]",
            {field.name for field in fields(QueryConfig)} - {"parsed", "statement", "of_unusable", "later", "calendar"}
            | {"bounds"},
        ),
        ("[store]", {field.name for field in fields(Config)} - ELSEWHERE),
        ("[sink]", {field.name for field in fields(SinkConfig)}),
        ("[two_party]", {field.name for field in fields(TwoPartyConfig)} | {"cells"}),
        ("[web]", {field.name for field in fields(WebConfig)}),
        ("[statement]", {field.name for field in fields(StatementConfig)}),
    ],
)
def test_every_key_is_explained(title: str, declared: set[str]) -> None:
    assert keys(title) == declared


def test_the_reader_knows_the_same_keys() -> None:
    """A key of the reference is accepted, whatever its value is worth; another is refused as unknown."""
    base: dict[str, Any] = {
        "stream": {"name": "s", "columns": {"u": "int"}},
        "query": [{"name": "q", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0}],
        "store": {},
    }
    for title, place in (("[stream]", base["stream"]), ("[[query]]", base["query"][0]), ("[store]", base["store"])):
        for key in (*keys(title), "unheard_of"):
            old = place.get(key)
            place[key] = object()
            with pytest.raises(Exception) as refused:  # noqa: PT011
                read_config(base)
            assert ("unknown key" in str(refused.value)) == (key == "unheard_of"), key
            if old is None:
                del place[key]
            else:
                place[key] = old


def test_every_aggregate_is_named() -> None:
    assert all(aggregate.value.partition("(")[0] in SQL for aggregate in Aggregate)


def commands() -> dict[str, Any]:
    """Return every command of the tool by its full name."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {each}": inner[each] for each in inner}
    return found


def test_every_command_and_option_is_explained() -> None:
    table = dict(re.findall(r"^\| `panstream ([a-z-]+(?: [a-z]+)?)[^`]*` \| (.*) \|$", COMMANDS, re.MULTILINE))
    assert set(table) == set(commands())
    for name, command in commands().items():
        given = [option for each in command.params for option in (*each.opts, *each.secondary_opts)]
        options = {option for option in given if option.startswith("--")} - {"--help"}
        text = section(COMMANDS, "panstream run") if name == "run" else table[name]
        assert set(re.findall(r"--[a-z][a-z-]*", text)) == options, name


def test_every_exit_code_is_explained() -> None:
    rows = re.findall(r"^\| (\d+(?: \+ n)?) \| (.*) \|$", section(COMMANDS, "Exit codes"), re.MULTILINE)
    declared = re.findall(r"^ +(\d+(?: \+ n)?) +(.+)$", outcome.__doc__ or "", re.MULTILINE)
    assert rows == declared and len(rows) == 5
