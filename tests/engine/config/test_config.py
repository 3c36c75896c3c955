"""panstream.toml: read, or rejected with section and rule."""

from pathlib import Path
from typing import Any

import pytest

from panstream.engine.config.config import load_config, read_config
from panstream.errors import ConfigError, InvalidParameter
from panstream.primitives.durations import format_duration, parse_duration

GOOD = """
[stream]
name = "clinic"
user = "patient"
time = "at"
lateness = "5 min"
[stream.columns]
patient = "int"
symptom = "string"
age = "int"
at = "timestamp"
[stream.budget]
user = 3.0

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT patient) FROM clinic WHERE symptom = 'YES'"
epsilon = 1.0
universe = 50000

[[query]]
name = "ages"
sql = "SELECT symptom, AVG(age) FROM clinic GROUP BY symptom"
epsilon = 0.5
lower = 0
upper = 120
every = "1 hour"
horizon = 720
groups = { symptom = ["YES", "NO"] }

[store]
directory = "state"
durability = "batch"
"""


def changed(old: str, new: str) -> dict[str, Any]:
    import tomllib

    assert old in GOOD
    return tomllib.loads(GOOD.replace(old, new))


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "panstream.toml"
    path.write_text(GOOD)
    config = load_config(path)
    assert config.stream.columns["age"] == "int"
    assert config.stream.lateness == 300.0
    assert config.directory == tmp_path / "state"
    assert config.query("visitors").universe == 50_000
    ages = config.query("ages")
    assert (ages.every, ages.horizon) == (3600.0, 720)
    assert ages.groups == {"symptom": ("YES", "NO")}
    assert ages.parsed.value == "age"
    with pytest.raises(ConfigError, match="no query named 'nothing'; known: visitors, ages"):
        config.query("nothing")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epsilon = 1.0", "epsilom = 1.0", "unknown key 'epsilom', did you mean 'epsilon'"),
        ("epsilon = 1.0", "epsilon = -1", "epsilon must be positive, got epsilon=-1"),
        ("epsilon = 1.0", "", "visitors: epsilon is missing"),
        ("epsilon = 1.0", "epsilon = inf", "epsilon must be a finite number"),
        ("epsilon = 1.0", 'epsilon = "one"', "epsilon must be a finite number"),
        ('user = "patient"', 'user = "nobody"', "column 'nobody' is not declared"),
        ('time = "at"', 'time = "symptom"', "must be a timestamp"),
        ('age = "int"', 'age = "number"', "type must be one of"),
        ("WHERE symptom", "WHERE symptoms", "visitors sql: line 1, column"),
        ("universe = 50000", "universe = 0", "universe must be in"),
        ("universe = 50000", "universe = true", "universe must be a whole number"),
        ('every = "1 hour"', 'every = "soon"', "every must be a duration"),
        ("groups = {", "group = {", "unknown key 'group', did you mean 'groups'"),
        ('groups = { symptom = ["YES", "NO"] }', "", "GROUP BY symptom needs its keys declared"),
        ('["YES", "NO"]', '["YES", "YES"]', "must list different keys"),
        ("groups = {", "groups = { age = [1], ", "which the query does not group by"),
        ('user = "patient"', 'user = "patient"\nahead = "1 hour"', "unknown key 'ahead', did you mean 'max_ahead'"),
        ('user = "patient"', 'user = "patient"\nmax_jump = 1', "unknown key 'max_jump', did you mean 'max_clock_jump'"),
        ('user = "patient"', 'user = "patient"\nmax_gap = 1', "unknown key 'max_gap', did you mean 'max_clock_gap'"),
        ('durability = "batch"', 'durability = "always"', "durability must be one of batch, interval, none"),
        ("user = 3.0", "users = 3.0", "unknown key 'users', did you mean 'user'"),
        ("user = 3.0", "user = 0", "user must be positive, got user=0"),
        ("user = 3.0", "person = -1", "person must be positive, got person=-1"),
        ("user = 3.0", 'period = "a month"', "period must be a duration"),
        ('name = "ages"', 'name = "visitors"', "two queries are named 'visitors'"),
        ("[store]", "[stores]", "unknown key 'stores', did you mean 'store'"),
        ("horizon = 720", "horizon = 720.5", "horizon must be a whole number"),
    ],
)
def test_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config(changed(old, new))


def test_missing_parts() -> None:
    with pytest.raises(ConfigError, match="stream is missing"):
        read_config({})
    with pytest.raises(ConfigError, match=r"at least one \[\[query\]\]"):
        read_config({"stream": {"name": "s", "columns": {"a": "int"}}})
    with pytest.raises(ConfigError, match="must declare at least one column|columns is missing"):
        read_config({"stream": {"name": "s", "columns": {}}})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("[stream\n")
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        load_config(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20 ms", 0.02),
        ("1 hour", 3600),
        ("1.5 hours", 5400),
        ("7 days", 604800),
        ("90s", 90),
        ("2 minutes", 120),
        (5, 5),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text, name="every") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "1 fortnight", "-1 hour", True, None, 0])
def test_bad_durations(text: object) -> None:
    with pytest.raises(InvalidParameter, match="every must be"):
        parse_duration(text, name="every")


def test_durations_in_words() -> None:
    assert [format_duration(s) for s in (604800, 3600, 5400, 1, 0.5)] == [
        "1 week",
        "1 hour",
        "90 minutes",
        "1 second",
        "500 ms",
    ]
