"""``panstream synth``: a private model of one table, and synthetic rows from it."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.outcome import AsJson, outcome, progress_bar
from panstream.errors import InvalidBatch, InvalidBytes, InvalidParameter

if TYPE_CHECKING:
    from panstream.networks.network import BayesianNetwork
    from panstream.networks.records import Records
    from panstream.networks.tree import LearnedNetwork

__all__ = ["app"]

app = typer.Typer(help="Synthetic tables with differential privacy.", no_args_is_help=True)

_EXACT = (
    "Compared with the real rows: these figures are exact, no claim covers them. Keep this page with the rows; "
    "do not publish it."
)


class _Method(StrEnum):
    TREE = "tree"
    PRIVBAYES = "privbayes"


@app.command("propose")
def _propose(
    metadata: Annotated[Path, typer.Argument(help="Public metadata (TOML or JSON): categories, types, ranges.")],
    out: Annotated[Path, typer.Option(help="The domain file to write (JSON).")],
) -> None:
    """Write a domain file from public metadata; rows are never looked at."""
    with outcome():
        from panstream.networks.domain import Domain

        domain = Domain.load(metadata)
        out.write_text(domain.to_json(), encoding="utf-8")
        typer.echo(f"{out}: {len(domain)} attributes, {sum(domain.sizes)} categories")


@app.command("fit")
def _fit(
    rows: Annotated[Path, typer.Argument(help="The private rows: CSV or Parquet with a header.")],
    domain: Annotated[Path, typer.Option(help="What values there can be: TOML or JSON, declared, not read from rows.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss for one record.")],
    out: Annotated[Path, typer.Option(help="The model file to write.")],
    delta: Annotated[float, typer.Option(help="For tree: probability of a larger loss.")] = 1e-9,
    method: Annotated[
        _Method, typer.Option(help="tree at (epsilon, delta), or privbayes at epsilon alone.")
    ] = _Method.TREE,
    score: Annotated[str, typer.Option(help="For privbayes: gain, R, mi or F.")] = "gain",
    degree: Annotated[int | None, typer.Option(help="For privbayes with R, mi or F: parents of an attribute.")] = None,
    theta: Annotated[float, typer.Option(help="For privbayes without --degree: how visible a table must be.")] = 4.0,
) -> None:
    """Learn a private model of a table. The rows are read once; the model may be published."""
    with outcome():
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        from panstream.networks.domain import Domain
        from panstream.networks.privbayes import PrivBayes
        from panstream.networks.records import Records
        from panstream.networks.tree import TreeNetwork

        declared = Domain.load(domain)
        learner: TreeNetwork | PrivBayes
        if method is _Method.TREE:
            learner = TreeNetwork(epsilon=epsilon, delta=delta)
        else:
            learner = PrivBayes(epsilon=epsilon, score=score, degree=degree, theta=theta)  # type: ignore[arg-type]
        columns = (TextColumn("{task.description:<22}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with progress_bar(*columns) as bar:
            task = bar.add_task("reading rows", total=1.0)
            records = Records.load(rows, declared)
            learned = learner.fit(
                records, progress=lambda what, done: bar.update(task, description=what, completed=done)
            )
        _write_model(out, learned)
        typer.echo(_summary(learned))
        typer.echo(f"\n{out} holds the model and may be published; the number of records is in it")


@app.command("sample")
def _sample(
    model: Annotated[Path, typer.Argument(help="A model file of panstream synth fit.")],
    out: Annotated[Path, typer.Option(help="The synthetic table to write: .csv or .parquet.")],
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many rows; as many as were learned from by default.")
    ] = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="Draw rows independently instead of with balanced counts.")
    ] = False,
    labels: Annotated[
        bool, typer.Option("--labels", help="Write intervals instead of numbers where there are bins.")
    ] = False,
) -> None:
    """Write synthetic rows. This costs no privacy: only the model is read."""
    with outcome():
        from panstream.batch.files import write_columns
        from panstream.networks.sampling import balanced_sample
        from panstream.networks.sampling import sample as draw
        from panstream.randomness import Source

        network, about = _read_model(model)
        size = rows if rows is not None else int(about["records"])
        with Source() as source:
            records = (draw if independent else balanced_sample)(network, size, source)
            columns: dict[str, Any] = records.to_columns() if labels else records.numeric_columns(source)
        write_columns(out, columns)
        typer.echo(f"{out}: {size:,} rows, {len(network.domain)} columns")


@app.command("evaluate")
def _evaluate(
    model: Annotated[Path, typer.Argument(help="A model file of panstream synth fit.")],
    synthetic: Annotated[Path, typer.Argument(help="A synthetic table, or any table of the same columns.")],
    real: Annotated[
        Path | None, typer.Option(help="The real rows: exact figures, which no claim covers. Not for publication.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with pictures to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare synthetic rows with the noisy tables in the model, or with the real rows."""
    with outcome():
        from panstream.cli.synth_evaluation import Evaluation
        from panstream.networks.records import Records

        network, about = _read_model(model)
        made = _rows_or_labels(synthetic, network.domain)
        truth = Records.load(real, network.domain) if real is not None else None
        result = Evaluation(network, about, made, truth)
        if html is not None:
            html.write_text(result.page(_EXACT if truth is not None else None), encoding="utf-8")
        typer.echo(json.dumps(result.to_json(), indent=2) if as_json else result.text())
        if truth is not None:
            typer.echo(_EXACT, err=True)


def _rows_or_labels(path: Path, domain: Any) -> Records:
    """Read synthetic rows whether bins were written as numbers or as intervals."""
    from panstream.networks.domain import Domain
    from panstream.networks.records import Records

    try:
        return Records.load(path, domain)
    except InvalidBatch:
        named = Domain({each.name: each.labels for each in domain.attributes})
        return Records(domain, Records.load(path, named).codes)


def _summary(learned: LearnedNetwork) -> str:
    names = learned.network.domain.names
    edges = ", ".join(f"{names[parent]} → {names[child]}" for parent, child in learned.network.edges) or "none"
    return f"{learned.claim}\nedges       {edges}"


def _write_model(path: Path, learned: LearnedNetwork) -> None:
    """Write network, claim and noisy one-way tables: everything in the file may be published."""
    import numpy as np

    from panstream.networks.files import to_json

    one_way: dict[int, list[Any]] = {}
    for table in learned.tables:
        if len(table.attributes) == 1:
            one_way.setdefault(table.attributes[0], [np.asarray(table.counts).tolist(), table.sigma])
    about = {
        "claim": learned.claim.to_json(),
        "words": learned.claim.rows(),
        "records": learned.records,
        "one_way": [one_way.get(at) for at in range(len(learned.network.domain))],
    }
    path.write_text(to_json(learned.network, about), encoding="utf-8")


def _read_model(path: Path) -> tuple[BayesianNetwork, dict[str, Any]]:
    """Return a network and the notes written beside it."""
    from panstream.networks.files import from_json, read_about

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidParameter(f"the model file {path.name} cannot be read") from None
    network, about = from_json(text), read_about(text)
    if not isinstance(about.get("records"), int) or not isinstance(about.get("words"), list):
        raise InvalidBytes(f"{path.name} is a network, but was not written by panstream synth fit")
    return network, about
