"""Expand paths, globs and directories to a list of files with stable names."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal, get_args

from panstream.engine.storage.ledger_file import LEDGER
from panstream.errors import InvalidParameter, SourceError

Format = Literal["csv", "tsv", "json", "log", "caddy", "parquet", "arrow"]
_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".log": "log",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_INSTEAD = {
    **dict.fromkeys(
        ("postgresql", "postgres", "mysql", "sqlite", "duckdb"), "export the table to Parquet or CSV first"
    ),
    **dict.fromkeys(("redis", "rediss", "mqtt", "mqtts", "kafka"), "panstream run and serve read them"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file (standard input if ``path`` is ``None``), its format, and the name of its rows' producer."""

    path: Path | None
    format: Format
    name: str


def format_from_name(path: Path) -> Format | None:
    """Return the format by a file's name, ignoring ``.gz``, ``.bz2``, ``.xz`` and ``.zst``; None if unknown.

    >>> format_from_name(Path("visits.csv.gz"))
    'csv'
    """
    name = path.name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return _ENDINGS.get(Path(name).suffix)


def expand_paths(inputs: Sequence[str], *, format: Format | None = None, must_exist: bool = True) -> list[InputFile]:
    """Return the files of ``inputs``: paths, globs, directories (recursively, sorted), and "-".

    A file's name is its path relative to the given directory or the fixed part of the glob, so that it stays the same
    when the directory is moved.
    """
    if format is not None and format not in get_args(Format):
        raise InvalidParameter(f"format must be one of {', '.join(get_args(Format))}, got {format!r}")
    if not inputs:
        raise InvalidParameter('at least one input is needed: a file, a glob, a directory, or "-" for standard input')
    files: list[InputFile] = []
    for pattern in inputs:
        for path, below in _listed(pattern, must_exist=must_exist):
            kind = format or (format_from_name(path) if path is not None else "csv")
            if kind is None:
                if Path(pattern).is_dir():
                    continue  # a README among the data
                raise SourceError(
                    f"{below}: the file name does not say the format; give one of {', '.join(get_args(Format))}"
                )
            files.append(InputFile(path=path, format=kind, name=below))
    names = [file.name for file in files]
    twice = next((n for n in names if names.count(n) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise SourceError(
            f"two inputs would have the same name, {twice!r}; give the directory above them, or rename one"
        )
    return files


def _listed(pattern: str, *, must_exist: bool) -> list[tuple[Path | None, str]]:
    if pattern == "-":
        return [(None, "standard input")]
    if (scheme := _SCHEME.match(pattern)) is not None:
        advice = _INSTEAD.get(scheme[1].lower(), "download or mount the file first")
        raise SourceError(f"{scheme[0]} addresses cannot be read here: {advice}")
    path = Path(pattern)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.suffix != LEDGER]
        below = {file: file.relative_to(path) for file in files}
        hidden = (".", "_")
        return [
            (file, relative.as_posix())
            for file, relative in below.items()
            if not any(p.startswith(hidden) for p in relative.parts)
        ]
    if glob.has_magic(pattern) and not path.exists():
        base = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
        files = sorted(Path(match) for match in glob.glob(pattern, recursive=True))
        files = [file for file in files if file.is_file() and file.suffix != LEDGER]
        if not files and must_exist:
            raise SourceError(f"no file matches {path.name!r}")
        return [(file, file.relative_to(base).as_posix()) for file in files]
    if must_exist and not path.exists():
        raise SourceError(f"{path.name} does not exist")
    if path.suffix.lower() in _WORKBOOKS:
        raise SourceError(
            f"{path.name} is a workbook, which is not read: save the sheet as CSV (in Excel: CSV UTF-8), or pass "
            "pandas.read_excel(...) to panstream.query in Python"
        )
    if must_exist and not path.is_file():  # opening a FIFO without a writer would block
        raise SourceError(f"{path.name} is not a regular file; give - and pipe it to standard input")
    return [(path, path.name)] if path.exists() or must_exist else []
