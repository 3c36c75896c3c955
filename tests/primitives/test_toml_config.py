"""The reader of configurations: sections with typed values, and errors that name section and key."""

from pathlib import Path
from typing import Any

import pytest

from panstream.errors import ConfigError
from panstream.primitives.toml_config import Section, load_config_file


def test_files_of_toml_and_json(tmp_path: Path) -> None:
    for name, text in {"a.toml": "x = 1\n", "b.json": ' {"x": 1}', "c": "x = 1"}.items():
        (tmp_path / name).write_text(text)
        assert load_config_file(tmp_path / name) == {"x": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no domain file 'f.toml'"),
        (b"x = ", "'f.toml' is not valid TOML"),
        (b'{"x": ', "'f.toml' is not valid JSON"),
        (b"\xff\xfe", "'f.toml' is not valid TOML"),
        (b'{"x":' * 100_000, "'f.toml' is not valid JSON"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "f.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load_config_file(tmp_path / "f.toml", "domain file")
    assert caught.value.__context__ is None


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config_file(tmp_path)


def section(**values: Any) -> Section:
    return Section("[part]", values, {"name", "size", "rate", "every", "mode", "parts"})


def test_values() -> None:
    table = section(name="a", size=3, rate=2, every="1 hour", mode="fast", parts=[1])
    assert table.required("name", str) == "a"
    assert table.integer("size", 1, 3) == 3
    assert table.required("rate", float) == 2.0
    assert table.duration("every") == 3600.0
    assert table.choice("mode", ("fast", "slow")) == "fast"
    assert table.optional("parts", list) == [1]
    assert section().optional("rate", float, 0.5) == 0.5
    assert section().duration("every") is None
    assert section().choice("mode", ("fast",)) is None
    assert section(name=None).has("name") is False


@pytest.mark.parametrize(
    ("values", "read", "words"),
    [
        ({"nome": "a"}, None, r"\[part\]: unknown key 'nome', did you mean 'name'"),
        ({}, lambda table: table.required("name", str), r"\[part\]: name is missing"),
        ({"name": 1}, lambda table: table.required("name", str), "name must be a string"),
        ({"size": True}, lambda table: table.integer("size", 0, 9), "size must be a whole number"),
        ({"size": 10}, lambda table: table.integer("size", 0, 9), r"size must be in 0\.\.9, got size=10"),
        ({"rate": float("nan")}, lambda table: table.optional("rate", float), "rate must be a finite number"),
        ({"rate": 0}, lambda table: table.positive_number("rate"), "rate must be positive, got rate=0"),
        ({"every": "soon"}, lambda table: table.duration("every"), r"\[part\]: every must be a duration"),
        ({"mode": "odd"}, lambda table: table.choice("mode", ("fast",)), "mode must be one of fast, got 'odd'"),
    ],
)
def test_refused(values: dict[str, Any], read: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(section(**values))


def test_a_section_is_a_table() -> None:
    with pytest.raises(ConfigError, match=r"\[part\] must be a table"):
        Section("[part]", [1], set())
