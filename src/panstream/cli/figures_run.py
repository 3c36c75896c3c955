"""Computing the points of the papers' figures in parallel, keeping each as soon as it is done."""

from __future__ import annotations

import csv
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from panstream import __version__
from panstream.papers.figures import FigureOptions, FigurePlan, Row, evaluate_point

__all__ = ["FigureFiles", "Results", "run_figures"]

_COLUMNS = ("point", "rows_of_point", "panel", "series", "x", "y", "low", "high", "repetitions")


@dataclass(frozen=True, slots=True)
class FigureFiles:
    """Where a figure's data, manifest and pictures are."""

    directory: Path
    key: str

    @property
    def data(self) -> Path:
        """Return the path of the data."""
        return self.directory / f"{self.key}.csv"

    @property
    def manifest(self) -> Path:
        """Return the path of the manifest."""
        return self.directory / f"{self.key}.json"

    @property
    def pictures(self) -> tuple[Path, Path]:
        """Return the paths of the SVG and the PNG."""
        return self.directory / f"{self.key}.svg", self.directory / f"{self.key}.png"


@dataclass(slots=True)
class Results:
    """The rows of one figure, point by point, and how many points were taken over from an earlier run."""

    plan: FigurePlan
    options: FigureOptions
    files: FigureFiles
    created: str
    points: dict[int, list[Row]] = field(default_factory=dict)
    reused: int = 0

    @property
    def total(self) -> int:
        """Return how many points the figure has."""
        return len(self.plan.points(self.options))

    @property
    def missing(self) -> list[int]:
        """Return the points that are still to be computed."""
        return [index for index in range(self.total) if index not in self.points]

    @property
    def rows(self) -> list[Row]:
        """Return all rows in the order of the points."""
        return [row for index in sorted(self.points) for row in self.points[index]]

    def open(self) -> None:
        """Take over finished points if they were computed with the same settings, and start the files."""
        self.files.directory.mkdir(parents=True, exist_ok=True)
        self.points = self._earlier()
        self.reused = len(self.points)
        self._write_manifest()
        self._write_data()

    def add(self, index: int, rows: Sequence[Row]) -> None:
        """Keep one more point, on disk as well."""
        self.points[index] = list(rows)
        with self.files.data.open("a", newline="") as stream:
            csv.writer(stream).writerows(_cells(index, rows))

    def close(self) -> None:
        """Write data in order, and the manifest of a finished figure."""
        self._write_data()
        self._write_manifest()

    def _earlier(self) -> dict[int, list[Row]]:
        try:
            manifest = json.loads(self.files.manifest.read_text())
            same = manifest["settings"] == self._settings() and manifest["version"] == __version__
        except (OSError, ValueError, KeyError):
            return {}
        return read_data(self.files.data) if same else {}

    def _settings(self) -> dict[str, Any]:
        return asdict(self.options)

    def _write_data(self) -> None:
        with self.files.data.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(_COLUMNS)
            for index in sorted(self.points):
                writer.writerows(_cells(index, self.points[index]))

    def _write_manifest(self) -> None:
        manifest = {
            "figure": self.plan.key,
            "title": self.plan.title,
            "source": self.plan.source,
            "caption": self.plan.caption,
            "settings": self._settings(),
            "version": __version__,
            "created": self.created,
            "points": self.total,
            "finished": not self.missing,
        }
        self.files.manifest.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _cells(index: int, rows: Sequence[Row]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        yield index, len(rows), row.panel, row.series, row.x, row.y, row.low, row.high, row.repetitions


def read_data(path: Path) -> dict[int, list[Row]]:
    """Return the complete points of a data file; one that was cut off in the middle is left out."""
    points: dict[int, list[Row]] = {}
    sizes: dict[int, int] = {}
    try:
        with path.open(newline="") as stream:
            for cells in csv.DictReader(stream):
                index = int(cells["point"])
                sizes[index] = int(cells["rows_of_point"])
                points.setdefault(index, []).append(
                    Row(
                        panel=cells["panel"],
                        series=cells["series"],
                        x=float(cells["x"]),
                        y=float(cells["y"]),
                        low=float(cells["low"]),
                        high=float(cells["high"]),
                        repetitions=int(cells["repetitions"]),
                    )
                )
    except (OSError, ValueError, KeyError, TypeError):  # a last line that was cut off
        pass
    return {index: rows for index, rows in points.items() if len(rows) == sizes[index]}


def run_figures(results: Sequence[Results], *, jobs: int, done: Callable[[Results], None]) -> None:
    """Compute what is missing on ``jobs`` processes; ``done`` is called after each point and when a figure is complete."""
    waiting = [(result, index) for result in results for index in result.missing]
    for result in results:
        if not result.missing:
            result.close()
            done(result)
    if jobs == 1 or not waiting:
        for result, index in waiting:
            _keep(result, index, evaluate_point(result.plan.key, index, result.options), done)
        return
    # Workers are started afresh: a copy of this process would take its progress bar's thread along.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        _run_on(pool, waiting, done)


def _run_on(pool: Executor, waiting: Sequence[tuple[Results, int]], done: Callable[[Results], None]) -> None:
    futures: dict[Future[list[Row]], tuple[Results, int]] = {
        pool.submit(evaluate_point, result.plan.key, index, result.options): (result, index)
        for result, index in waiting
    }
    try:
        for future in as_completed(futures):
            result, index = futures[future]
            _keep(result, index, future.result(), done)
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise


def _keep(result: Results, index: int, rows: Sequence[Row], done: Callable[[Results], None]) -> None:
    result.add(index, rows)
    if not result.missing:
        result.close()
    done(result)
