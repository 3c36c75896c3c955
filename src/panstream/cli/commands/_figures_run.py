"""Compute the points of the papers' figures in parallel, store each as soon as it is done, and draw the figures."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from panstream import __version__
from panstream.cli.common import progress_bar
from panstream.errors import import_optional
from panstream.papers.figures import (
    FIGURES,
    FigureOptions,
    FigurePanel,
    FigurePlan,
    FigureRow,
    evaluate_point,
    find_figure,
)

_COLUMNS = ("point", "rows_of_point", "panel", "series", "x", "y", "low", "high", "repetitions")

# Okabe and Ito's colours, which colour-blind readers can distinguish.
_LOOKS: dict[str, tuple[str, str | None]] = {  # colour, and marker if a series has its own
    "Dwork": ("#D55E00", "s"),
    "OptBern": ("#0072B2", "o"),
    "PPDS": ("#009E73", "^"),
    "Laplace": ("#CC79A7", "D"),
    "quantised Laplace": ("#56B4E9", "v"),
    "truncated Gaussian": ("#E69F00", "P"),
    "truncated Laplace": ("#8A6D3B", None),
    "sound fixed-level PPDS: ids": ("#009E73", "^"),
    "panstream": ("#000000", None),
    "Roth": ("#7F7F7F", None),
    "not seen": ("#0072B2", None),
    "seen": ("#D55E00", None),
    "ratio": ("#0072B2", None),
    "noisy ss": ("#D55E00", "o"),
    "noisy mv": ("#CC79A7", "s"),
    "noisy model": ("#E69F00", "^"),
    "mean of local scores": ("#8A6D3B", "v"),
    "panstream: Gaussian sums": ("#56B4E9", "D"),
    "panstream: federated tree": ("#0072B2", "P"),
    "private independent": ("#009E73", None),
    "true network": ("#000000", ""),
    "greedy, no privacy": ("#444444", ""),
    "independent, no privacy": ("#7F7F7F", ""),
    "simple counter I": ("#8A6D3B", "s"),
    "simple counter II": ("#E69F00", "^"),
    "binary mechanism": ("#0072B2", "o"),
    "hybrid mechanism": ("#56B4E9", "D"),
    "panstream, trees without a horizon": ("#444444", "*"),
    "panstream, delta 1e-6, correlated": ("#CC79A7", "D"),
    "lower bound": ("#009E73", ""),
    "a release of every slot": ("#D55E00", "s"),
    "panstream, delta 1e-6": ("#0072B2", "P"),
    "one holder alone": ("#D55E00", "s"),
    "direct": ("#000000", ""),
    "chain": ("#0072B2", ""),
    "common cause": ("#D55E00", ""),
    "common effect": ("#009E73", ""),
    "Mir's Algorithm 2 as printed": ("#D55E00", "s"),
    "Mir's Algorithm 2, constant": ("#0072B2", "o"),
    "Budaeva et al., values 0 and 1": ("#0072B2", "o"),
    "Budaeva et al., values 0 and 10": ("#D55E00", "s"),
}
_REFERENCE = ("allowed", "allocated", "claimed")


def make_figures(
    out: Path,
    options: FigureOptions,
    *,
    only: Sequence[str] = (),
    jobs: int = 0,
    data_only: bool = False,
    created: str | None = None,
) -> None:
    """Compute and draw the figures named by ``only`` (all if none is), with a progress bar on stderr."""
    plans = [find_figure(key) for key in dict.fromkeys(only)] or list(FIGURES.values())
    if not data_only:
        import_optional("matplotlib", "drawing figures", "plots")
    stamp = created if created is not None else datetime.now(UTC).isoformat(timespec="seconds")
    results = [FigureResults(plan, options, out, stamp) for plan in plans]
    for result in results:
        result.open()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bar(*columns) as progress:
        bar = progress.add_task("points", total=sum(result.total for result in results))

        def done(result: FigureResults) -> None:
            finished = sum(len(panel_result.points) for panel_result in results)
            progress.update(bar, completed=finished, description=f"figure {result.plan.key}")
            if not result.missing and not data_only:
                _draw(result.plan, options, result.rows, [result.path(".svg"), result.path(".png")])

        _run(results, jobs=jobs or os.cpu_count() or 1, done=done)
    for result in results:
        computed = result.total - result.reused
        typer.echo(
            f"{result.plan.key:<11} {computed:>4} points computed, {result.reused:>4} kept  {result.path('.csv')}"
        )


@dataclass(slots=True)
class FigureResults:
    """The rows of one figure, by point, and how many points were reused from an earlier run."""

    plan: FigurePlan
    options: FigureOptions
    directory: Path
    created: str
    points: dict[int, list[FigureRow]] = field(default_factory=dict)
    reused: int = 0

    def path(self, suffix: str) -> Path:
        """Return the path of the figure's data (.csv), manifest (.json) or picture."""
        return self.directory / f"{self.plan.key}{suffix}"

    @property
    def total(self) -> int:
        """Return the number of points of the figure."""
        return len(self.plan.points(self.options))

    @property
    def missing(self) -> list[int]:
        """Return the points that are still to be computed."""
        return [index for index in range(self.total) if index not in self.points]

    @property
    def rows(self) -> list[FigureRow]:
        """Return all rows in the order of the points."""
        return [row for index in sorted(self.points) for row in self.points[index]]

    def open(self) -> None:
        """Reuse finished points that were computed with the same settings, and write both files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.points = self._earlier()
        self.reused = len(self.points)
        self.close()

    def add(self, index: int, rows: Sequence[FigureRow]) -> None:
        """Add a point, and append it to the data file."""
        self.points[index] = list(rows)
        with self.path(".csv").open("a", newline="") as stream:
            csv.writer(stream).writerows(_cells(index, rows))

    def close(self) -> None:
        """Write the data in order of the points, and the manifest."""
        with self.path(".csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(_COLUMNS)
            for index in sorted(self.points):
                writer.writerows(_cells(index, self.points[index]))
        self._write_manifest()

    def _earlier(self) -> dict[int, list[FigureRow]]:
        try:
            manifest = json.loads(self.path(".json").read_text())
            same = manifest["settings"] == asdict(self.options) and manifest["version"] == __version__
        except (OSError, ValueError, KeyError):
            return {}
        return _read_data(self.path(".csv")) if same else {}

    def _write_manifest(self) -> None:
        manifest = {
            "figure": self.plan.key,
            "title": self.plan.title,
            "source": self.plan.source,
            "caption": self.plan.caption,
            "note": self.plan.note(self.options),
            "settings": asdict(self.options),
            "version": __version__,
            "created": self.created,
            "points": self.total,
            "finished": not self.missing,
        }
        self.path(".json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _cells(index: int, rows: Sequence[FigureRow]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        yield index, len(rows), row.panel, row.series, row.x, row.y, row.low, row.high, row.repetitions


def _read_data(path: Path) -> dict[int, list[FigureRow]]:
    """Return the complete points of a data file; one that was cut short is left out."""
    points: dict[int, list[FigureRow]] = {}
    sizes: dict[int, int] = {}
    try:
        with path.open(newline="") as stream:
            for cells in csv.DictReader(stream):
                index = int(cells["point"])
                sizes[index] = int(cells["rows_of_point"])
                figures = {name: float(cells[name]) for name in ("x", "y", "low", "high")}
                row = FigureRow(
                    panel=cells["panel"], series=cells["series"], **figures, repetitions=int(cells["repetitions"])
                )
                points.setdefault(index, []).append(row)
    except (OSError, ValueError, KeyError, TypeError):  # a last line that was cut off
        pass
    return {index: rows for index, rows in points.items() if len(rows) == sizes[index]}


def _run(results: Sequence[FigureResults], *, jobs: int, done: Callable[[FigureResults], None]) -> None:
    """Compute the missing points on ``jobs`` processes; call ``done`` after each point and for complete figures."""
    waiting = [(result, index) for result in results for index in result.missing]
    for result in results:
        if not result.missing:
            result.close()
            done(result)
    for result, index, rows in _computed(waiting, jobs):
        result.add(index, rows)
        if not result.missing:
            result.close()
        done(result)


def _computed(
    waiting: Sequence[tuple[FigureResults, int]], jobs: int
) -> Iterator[tuple[FigureResults, int, list[FigureRow]]]:
    if jobs == 1 or not waiting:
        for result, index in waiting:
            yield result, index, evaluate_point(result.plan.key, index, result.options)
        return
    # spawn, not fork: a forked worker would copy the state of the progress bar's thread, locks included.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {
            pool.submit(evaluate_point, result.plan.key, index, result.options): (result, index)
            for result, index in waiting
        }
        try:
            for future in as_completed(futures):
                yield *futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _draw(plan: FigurePlan, options: FigureOptions, rows: Sequence[FigureRow], paths: Sequence[Path]) -> None:
    """Draw a figure's panels with one legend below, and save it to every path in the format of its suffix."""
    matplotlib, pictures = (
        import_optional(name, "drawing figures", "plots") for name in ("matplotlib", "matplotlib.figure")
    )
    columns = min(len(plan.panels), 2 if len(plan.panels) != 3 else 3)
    lines = -(-len(plan.panels) // columns)
    series = list(dict.fromkeys(row.series for row in rows))
    width = {1: 6.6, 2: 9.6, 3: 12.6}[columns]
    entries = 2 if columns == 1 else 3
    height = 3.5 * lines + 0.22 * -(-len(series) // entries) + 0.5
    with matplotlib.rc_context({"svg.hashsalt": "panstream", "svg.fonttype": "none", "font.size": 9}):
        picture = pictures.Figure(figsize=(width, height), layout="constrained")
        picture.suptitle(" · ".join(filter(None, (plan.title, plan.source, plan.note(options)))), fontsize=11)
        axes = picture.subplots(lines, columns, squeeze=False).ravel()
        handles: dict[str, Any] = {}
        for axis, panel in zip(axes, plan.panels, strict=False):
            handles.update(_panel(axis, panel, [row for row in rows if row.panel == panel.key]))
        picture.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=entries, frameon=False, fontsize=8.5
        )
        for path in paths:
            stamp = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            picture.savefig(path, dpi=130, metadata=stamp)
            picture.set_layout_engine("none")  # the layout of the first format fits the others


def _panel(axis: Any, panel: FigurePanel, rows: Sequence[FigureRow]) -> dict[str, Any]:
    handles = {}
    for name in dict.fromkeys(row.series for row in rows):
        chosen = sorted((row for row in rows if row.series == name), key=lambda row: row.x)
        x = [row.x for row in chosen]
        y = [row.y for row in chosen]
        style = _style(name, measured=any(row.repetitions for row in chosen))
        (handles[name],) = axis.plot(x, y, **style)
        if all(math.isfinite(row.low) for row in chosen):
            low = [max(row.low, row.y / 20) if panel.y_log else row.low for row in chosen]
            axis.fill_between(x, low, [row.high for row in chosen], color=style["color"], alpha=0.12, linewidth=0)
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    if panel.x_log:
        axis.set_xscale("log")
    if panel.y_log:
        axis.set_yscale("log")
    axis.minorticks_off()  # a third of the drawing time
    low, high = axis.get_ylim()
    if panel.y_log and high < 30 * low:  # the powers of ten alone would say little
        ticks = [step * 10.0**power for power in range(-9, 9) for step in (1, 1.5, 2, 3, 4, 5, 6, 8)]
        axis.set_yticks(shown := [tick for tick in ticks if low <= tick <= high], [f"{tick:g}" for tick in shown])
    axis.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axis.set_axisbelow(True)
    return handles


def _style(name: str, *, measured: bool) -> dict[str, Any]:
    """Return the style of a series: colour by estimator, line by the kind of figure."""
    if name.startswith(_REFERENCE):
        return {"color": "#CCCCCC", "linewidth": 5, "zorder": 1}
    base = next((prefix for prefix in sorted(_LOOKS, key=len, reverse=True) if name.startswith(prefix)), "Roth")
    colour, marker = _LOOKS[base]
    style: dict[str, Any] = {"color": colour, "linewidth": 1.5}
    if name.endswith("(theory)"):
        return {**style, "linestyle": (0, (1, 1.5)), "linewidth": 2.2, "alpha": 0.8}
    if name.endswith(", R(0)") or "128" in name:
        style["linestyle"] = "-."
    if name.endswith(("2ε", "cut after summing", "by size", "no privacy")) or " given " in name:
        style["linestyle"] = "--"
    if measured:
        style |= {"marker": ("x" if "2ε" in name else "*") if marker is None else marker, "markersize": 5}
    return style
