"""Expand paths, globs, directories, tables of a lake and addresses of object stores to files with stable names."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from panstream.engine.sources.hive_columns import path_columns
from panstream.engine.sources.lake_tables import ICEBERG_METADATA, InputPath, TableKind, read_snapshot, table_kind
from panstream.engine.sources.object_stores import STORES, RemoteFile, Store, store_scheme
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
    """A file that is read.

    Attributes:
        path: The file; None for standard input.
        format: Its format.
        name: What messages call it, and the name of its rows' producer.
        values: Columns that its path or its table's log says, as text.
        field_ids: Ids that its columns must have; empty if columns are known by name alone.
        table: The table that it is part of.
    """

    path: InputPath | None
    format: Format
    name: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    field_ids: Mapping[str, int] = field(default_factory=dict)
    table: LakeTable | None = None

    @property
    def producer(self) -> str:
        """The name by which a later run knows the rows: of a file in a store, with the time of its last change."""
        if isinstance(self.path, RemoteFile) and self.table is None:  # a table's files are never written again
            return f"{self.name}@{self.path.version}"
        return self.name

    @property
    def size(self) -> int:
        """Bytes of the file; 0 for standard input."""
        if self.path is None:
            return 0
        return self.path.size if isinstance(self.path, RemoteFile) else self.path.stat().st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """A Delta or Iceberg table at one snapshot; ``root`` is its directory or address."""

    name: str
    kind: TableKind
    snapshot: str
    root: str

    @property
    def marker(self) -> str:
        """The name under which a run stores which snapshot it reads: 1 while it does, 2 when all of it is counted."""
        return f"{marker_prefix(self.name)}{self.snapshot}"


def marker_prefix(table: str) -> str:
    """Return the beginning of a table's markers, without the snapshot."""
    return f"{table}#snapshot-"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A file of an input, before its format is known."""

    path: InputPath | None
    name: str
    from_directory: bool = False
    values: Mapping[str, str | None] = field(default_factory=dict)
    field_ids: Mapping[str, int] = field(default_factory=dict)
    table: LakeTable | None = None


def format_from_name(path: Path | PurePosixPath) -> Format | None:
    """Return the format by a file's name, ignoring ``.gz``, ``.bz2``, ``.xz`` and ``.zst``; None if unknown.

    >>> format_from_name(Path("visits.csv.gz"))
    'csv'
    """
    name = path.name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return _ENDINGS.get(Path(name).suffix)


def expand_paths(
    inputs: Sequence[str],
    *,
    format: Format | None = None,
    must_exist: bool = True,
    pinned: Mapping[str, str] | None = None,
) -> list[InputFile]:
    """Return the files of ``inputs``: paths, globs, directories (recursively, sorted), tables, addresses, and "-".

    A file's name is its path relative to the given directory or the fixed part of the glob, so that it stays the same
    when the directory is moved.

    Args:
        inputs: What to read.
        format: The format, if names do not say.
        must_exist: Whether a file that does not exist is an error.
        pinned: The snapshots of tables by name, instead of their newest ones.
    """
    if format is not None and format not in get_args(Format):
        raise InvalidParameter(f"format must be one of {', '.join(get_args(Format))}, got {format!r}")
    if not inputs:
        raise InvalidParameter('at least one input is needed: a file, a glob, a directory, or "-" for standard input')
    files: list[InputFile] = []
    for pattern in inputs:
        for listed in _listed(pattern, must_exist=must_exist, pinned=pinned or {}):
            path = listed.path
            kind = format or (format_from_name(PurePosixPath(path.name)) if path is not None else "csv")
            if listed.table is not None:
                kind = "parquet"
            if kind is None:
                if listed.from_directory:
                    continue  # a README among the data
                raise SourceError(
                    f"{listed.name}: the file name does not say the format; give one of {', '.join(get_args(Format))}"
                )
            files.append(
                InputFile(
                    path=path,
                    format=kind,
                    name=listed.name,
                    values=listed.values,
                    field_ids=listed.field_ids,
                    table=listed.table,
                )
            )
    names = [file.name for file in files]
    twice = next((n for n in names if names.count(n) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise SourceError(
            f"two inputs would have the same name, {twice!r}; give the directory above them, or rename one"
        )
    return files


def _listed(pattern: str, *, must_exist: bool, pinned: Mapping[str, str]) -> list[_Listed]:
    if pattern == "-":
        return [_Listed(path=None, name="standard input")]
    if store_scheme(pattern) is not None:
        return _listed_in_store(pattern, pinned)
    if (scheme := _SCHEME.match(pattern)) is not None:
        advice = _INSTEAD.get(scheme[1].lower(), "download or mount the file first")
        readable = ", ".join(f"{name}://" for name in STORES)
        raise SourceError(f"{scheme[0]} addresses cannot be read here: {advice} (readable: {readable})")
    path = Path(pattern)
    if path.is_dir():
        return _listed_directory(path, pinned)
    if glob.has_magic(pattern) and not path.exists():
        base = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
        files = sorted(Path(match) for match in glob.glob(pattern, recursive=True))
        files = [file for file in files if file.is_file() and file.suffix != LEDGER]
        if not files and must_exist:
            raise SourceError(f"no file matches {path.name!r}")
        return [_plain(file, file.relative_to(base).as_posix(), file.as_posix()) for file in files]
    if must_exist and not path.exists():
        raise SourceError(f"{path.name} does not exist")
    if path.suffix.lower() in _WORKBOOKS:
        raise SourceError(
            f"{path.name} is a workbook, which is not read: save the sheet as CSV (in Excel: CSV UTF-8), or pass "
            "pandas.read_excel(...) to panstream.query in Python"
        )
    if must_exist and not path.is_file():  # opening a FIFO without a writer would block
        raise SourceError(f"{path.name} is not a regular file; give - and pipe it to standard input")
    if ICEBERG_METADATA.fullmatch("/".join(path.parts[-2:])) is not None and path.is_file():
        return _listed_directory(path.parent.parent, pinned, metadata=path.name)
    return [_plain(path, path.name, pattern)] if path.exists() or must_exist else []


def _plain(path: InputPath, name: str, whole: str, *, from_directory: bool = False) -> _Listed:
    return _Listed(path=path, name=name, from_directory=from_directory, values=path_columns(whole))


def _listed_directory(directory: Path, pinned: Mapping[str, str], metadata: str | None = None) -> list[_Listed]:
    files = [file for file in sorted(directory.rglob("*")) if file.is_file() and file.suffix != LEDGER]
    below: dict[str, InputPath] = {file.relative_to(directory).as_posix(): file for file in files}
    return _files_below(below, directory.as_posix(), directory.resolve().name, pinned, metadata)


def _listed_in_store(address: str, pinned: Mapping[str, str]) -> list[_Listed]:
    """Return the files of an address: one file, a glob, a directory, or a table."""
    plain, mark, options = address.partition("?")
    metadata = None
    if ICEBERG_METADATA.fullmatch("/".join(plain.split("/")[-2:])) is not None:
        plain, _, metadata = plain.rsplit("/", 2)
    fixed = "/".join(takewhile(lambda part: not glob.has_magic(part), plain.split("/")))
    store = Store(f"{fixed}{mark}{options}")
    files = store.files_below(store.path)
    if fixed != plain:
        matches = _glob_pattern(plain.removeprefix(fixed).lstrip("/"))
        prefix = f"{store.path.rstrip('/')}/"
        chosen = [file for file in files if matches.fullmatch(file.key.removeprefix(prefix))]
        if not chosen:
            raise SourceError(f"no file matches {plain!r}")
        return [_plain(file, file.key.removeprefix(prefix), file.uri) for file in chosen]
    if not files:
        raise SourceError(f"{plain} does not exist, or has no files")
    if len(files) == 1 and files[0].key == store.path:
        return [_plain(files[0], files[0].name, files[0].uri)]
    prefix = f"{store.path.rstrip('/')}/"
    below: dict[str, InputPath] = {file.key.removeprefix(prefix): file for file in files}
    root = store.uri_of(store.path)
    return _files_below(below, root, plain.rstrip("/").rpartition("/")[2], pinned, metadata)


def _files_below(
    below: Mapping[str, InputPath], root: str, name: str, pinned: Mapping[str, str], metadata: str | None
) -> list[_Listed]:
    """Return the files below a directory, or those of the table that it is."""
    if metadata is not None:
        below = {
            relative: path
            for relative, path in below.items()
            if not ICEBERG_METADATA.fullmatch(relative) or relative == f"metadata/{metadata}"
        }
    kind = table_kind(below)
    if kind is None:
        hidden = (".", "_")
        shown = {
            relative: path
            for relative, path in below.items()
            if not any(part.startswith(hidden) for part in relative.split("/"))
        }
        return [_plain(path, relative, f"{root}/{relative}", from_directory=True) for relative, path in shown.items()]
    snapshot = read_snapshot(kind, below, name, pinned.get(name))
    table = LakeTable(name=name, kind=kind, snapshot=snapshot.id, root=root)
    return [
        _Listed(
            path=file.path,
            name=f"{name}#{file.relative}",
            values=file.values,
            field_ids=file.field_ids,
            table=table,
        )
        for file in snapshot.files
    ]


def _glob_pattern(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression: ``**`` stands for any directories, and ``*`` does not cross ``/``.

    In an address, ``?`` begins the options.

    >>> bool(_glob_pattern("day=*/**/*.csv").fullmatch("day=1/a.csv"))
    True
    """
    words = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*/|\*\*|\*|\[!?[^\]/]+\])", pattern)
    expression = [
        words.get(part) or (f"[{part[1:-1].replace('!', '^', 1)}]" if part.startswith("[") else re.escape(part))
        for part in parts
        if part
    ]
    return re.compile("".join(expression))


def file_tables(files: Iterable[InputFile]) -> list[LakeTable]:
    """Return the tables that files are part of, each once."""
    return list({file.table.name: file.table for file in files if file.table is not None}.values())


def refuse_changed(files: Sequence[InputFile], applied: Mapping[str, int]) -> None:
    """Raise SourceError if rows that were counted may be in other files by now, or others in their files.

    A file in a store is known by the time of its last change; of a table, every file that was counted must still be
    part of the snapshot.
    """
    versions = {file.name: file.producer for file in files}
    in_tables = {table.name for table in file_tables(files)}
    for key in applied:
        name, mark, _ = key.rpartition("@")
        if mark and versions.get(name, key) not in (key, name):
            raise SourceError(
                f"{name} has changed since its rows were counted, and counting it again would count some twice; write "
                "new rows to new files"
            )
        table, mark, _ = key.partition("#")
        if table in in_tables and mark and not key.startswith(marker_prefix(table)) and key not in versions:
            raise SourceError(
                f"the table {table!r} was rewritten since its rows were counted (by OPTIMIZE, compaction, UPDATE, "
                "DELETE or a new version of a file): counting the new files would count rows twice. Count it under "
                "another stream, or keep appending only"
            )
