"""``panstream synth``: fit a private model of a table, and draw synthetic rows from it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from panstream.cli.commands._synth_categories import categories
from panstream.cli.commands.query import parse_column_options
from panstream.cli.common import AsJson, exit_codes, progress_bar
from panstream.errors import InvalidBatch, InvalidBytes, InvalidParameter

if TYPE_CHECKING:
    from panstream.models.networks.domain import Domain
    from panstream.models.networks.learner import LearnedNetwork
    from panstream.models.networks.mixture import Mixture
    from panstream.models.networks.network import BayesianNetwork
    from panstream.models.networks.records import Records

app = typer.Typer(help="Synthetic tables with differential privacy.", no_args_is_help=True)

_KINDS = ("int", "double", "bool", "string")


@app.command("init")
def _init(
    table: Annotated[Path, typer.Argument(help="The table: only its header, and types it declares, are read.")],
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="int, double, bool or string; may be repeated."),
    ] = None,
    guess_types: Annotated[
        bool, typer.Option("--guess-types", help="Guess the types of CSV columns from the first rows; no values.")
    ] = False,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the range or the categories of every column.")] = False,
    out: Annotated[Path, typer.Option(help="Where to write the domain; - for standard output.")] = Path("domain.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a domain file to fill in, from a table's header and declared types. No row is looked at.

    Ranges come from the names of the columns, such as 0 to 120 for an age: check them. Only --guess-types reads rows.
    """
    with exit_codes():
        from panstream.cli.commands._synth_domain import domain_to_fill_in
        from panstream.engine.arrow import kind_of
        from panstream.engine.sources.schema_guess import infer_schema
        from panstream.primitives.inputs.table_files import read_header

        kinds = {name: None if kind is None else kind_of(kind) for name, kind in read_header(table).items()}
        if guess_types:
            kinds |= infer_schema([str(table)], caller="command").columns
        for column, kind in (parse_column_options("--type", types, str) or {}).items():
            if column not in kinds:
                raise InvalidParameter(f"--type must name one of the columns {', '.join(kinds)}, got {column!r}")
            if kind not in _KINDS:
                raise InvalidParameter(f"--type must be int, double, bool or string, got {kind!r}")
            kinds[column] = kind
        text = domain_to_fill_in(table.name, kinds, ask=ask)
        if str(out) == "-":
            typer.echo(text, nl=False)
            return
        if out.exists() and not force:
            raise InvalidParameter(f"{out.name} already exists; use --force to overwrite it")
        out.write_text(text, encoding="utf-8")
        typer.echo(f"Wrote {out}. Fill it in, then run: panstream synth fit {table} --domain {out}", err=True)


@app.command("propose")
def _propose_domain(
    metadata: Annotated[Path, typer.Argument(help="Public metadata (TOML or JSON): categories, types, ranges.")],
    out: Annotated[Path, typer.Option(help="The domain file to write (JSON).")],
) -> None:
    """Write a domain file from public metadata; rows are never looked at."""
    with exit_codes():
        from panstream.models.networks.domain import Domain

        domain = Domain.load(metadata)
        out.write_text(domain.to_json(), encoding="utf-8")
        typer.echo(f"{out}: {len(domain)} attributes, {sum(domain.sizes)} categories")


app.command("categories")(categories)


@app.command("fit")
def _fit(
    tables: Annotated[
        list[Path], typer.Argument(metavar="ROWS", help="The private rows: CSV, TSV, JSON lines, Parquet or Arrow.")
    ],
    domain: Annotated[Path, typer.Option(help="Possible values (TOML or JSON): declared, not read from the rows.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss for one record; with --contributions for one person.")],
    out: Annotated[Path, typer.Option(help="The model file to write.")],
    delta: Annotated[float, typer.Option(help="For adaptive, pairs and tree: probability of a larger loss.")] = 1e-9,
    method: Annotated[
        Literal["auto", "adaptive", "pairs", "tree", "privbayes"],
        typer.Option(
            help="adaptive, pairs or tree at (epsilon, delta), privbayes at epsilon alone; auto chooses one of the "
            "first three by the number of rows, the domain and the budget."
        ),
    ] = "auto",
    score: Annotated[str, typer.Option(help="For privbayes: gain, R, mi or F.")] = "gain",
    degree: Annotated[int | None, typer.Option(help="For privbayes with R, mi or F: parents of an attribute.")] = None,
    theta: Annotated[float, typer.Option(help="For privbayes without --degree: how visible a table must be.")] = 4.0,
    contributions: Annotated[
        int | None, typer.Option(help="Protect a person with at most this many records instead of one record.")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(help="Column that identifies the person: take --contributions records of each, at random."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="File that records what models and answers cost; next to the rows by default.")
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not record what models cost.")] = False,
    budget: Annotated[
        float | None, typer.Option(help="Refuse if all together would cost more; the ledger remembers it.")
    ] = None,
) -> None:
    """Learn a private model of a table. The rows are read once; the model may be published.

    Its cost is added to the rows' ledger, the one of panstream query. Exit code 3 if the budget does not allow it.
    """
    with exit_codes(compiles=True):
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        from panstream.cli.commands._synth_domain import open_bin_notes
        from panstream.cli.commands._synth_rows import ONE_TABLE, records_of_persons
        from panstream.engine.storage.ledger_file import charge_ledgers, ledger_path_for
        from panstream.models.networks.adaptive_model import AdaptiveModel
        from panstream.models.networks.domain import Domain
        from panstream.models.networks.pair_model import PairModel, recommend_learner
        from panstream.models.networks.privbayes import PrivBayes
        from panstream.models.networks.records import Records
        from panstream.models.networks.tree_network import TreeNetwork
        from panstream.privacy.composition import claim_of_person, per_record_epsilon

        if no_ledger and (ledger is not None or budget is not None):
            raise InvalidParameter("give --no-ledger without --ledger and --budget")
        if person is not None and contributions is None:
            raise InvalidParameter("--person needs --contributions, the number of records of one person that are taken")
        if len(tables) > 1:
            raise InvalidParameter(ONE_TABLE)
        (rows,) = tables
        declared = Domain.load(domain)
        slack = 0.0 if method == "privbayes" else delta
        of_person = epsilon
        epsilon = per_record_epsilon(epsilon, slack, 1 if contributions is None else contributions)
        learner: TreeNetwork | PairModel | AdaptiveModel | PrivBayes
        if method == "privbayes":
            learner = PrivBayes(epsilon=epsilon, score=score, degree=degree, theta=theta)  # type: ignore[arg-type]
        else:  # bad numbers are refused before the rows are read
            learners: dict[str, type[AdaptiveModel | PairModel | TreeNetwork]] = {
                "adaptive": AdaptiveModel,
                "pairs": PairModel,
                "tree": TreeNetwork,
                "auto": TreeNetwork,
            }
            learner = learners[method](epsilon=epsilon, delta=delta)
        learner.check(declared)
        columns = (TextColumn("{task.description:<22}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with progress_bar(*columns) as bar:
            task = bar.add_task("reading rows", total=1.0)
            records = Records.load(rows, declared)
            if person is not None:
                records = records_of_persons(records, rows, person, contributions or 1)
            if method == "auto":
                learner = recommend_learner(epsilon, delta, len(records), declared)
            paths = [] if no_ledger else [ledger or ledger_path_for(rows)]
            charged = charge_ledgers(
                paths,
                {f"synth fit, {method}": claim_of_person(learner.claim(), of_person, contributions)},
                budget=budget,
            )
            if isinstance(learner, PairModel):
                bar.console.print(f"Fitting {sum(declared.sizes):,} categories: {_expected_time(declared)}")
            learned = learner.fit(
                records, progress=lambda what, done: bar.update(task, description=what, completed=done)
            )
            learned = replace(learned, claim=claim_of_person(learned.claim, of_person, contributions))
        _write_model(out, learned)
        typer.echo(_summary(learned))
        for note in (*learned.notes, *open_bin_notes(declared)):
            typer.echo(f"note: {note}", err=True)
        typer.echo(f"\n{out} holds the model and may be published; the number of records is in it")
        spent = f"{charged} ({paths[0].name})" if charged else "not recorded; repeated models add up"
        typer.echo(f"So far: {spent}.", err=True)


def _expected_time(domain: Domain) -> str:
    """Return within what time all pairs are fitted on this machine, by timing single steps."""
    from panstream.models.networks.pair_model import steps_of_fit
    from panstream.primitives.noise import NoiseSource

    seconds = []
    with NoiseSource() as rng:
        step, few, many = steps_of_fit(domain, rng)
        step()  # the first one allocates
        for _ in range(3):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
    low, high = (_seconds(steps * min(seconds)) for steps in (few, many))
    return f"about {low}" if low == high else f"{low} to {high}"


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@app.command("sample")
def _sample(
    model: Annotated[Path, typer.Argument(help="A model file written by panstream synth fit.")],
    out: Annotated[Path, typer.Option(help="The synthetic table to write: .csv or .parquet.")],
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of rows; by default as many as the model was fitted to (that meet --given).",
        ),
    ] = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="Draw rows independently instead of with balanced counts.")
    ] = False,
    labels: Annotated[
        bool, typer.Option("--labels", help="Write intervals instead of numbers where there are bins.")
    ] = False,
    given: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Only rows with this category, number or date, or within a range such as 40..65; may be repeated.",
        ),
    ] = None,
) -> None:
    """Write synthetic rows. This costs no privacy: only the model is read.

    With --given, all rows meet these conditions, and the other columns are drawn as the model expects them then.
    """
    with exit_codes():
        from panstream.cli.commands._synth_domain import open_bin_notes
        from panstream.models.networks.conditioning import condition
        from panstream.primitives.inputs.table_files import write_columns
        from panstream.primitives.noise import NoiseSource

        network, about = _read_model(model)
        conditioned_model = condition(network, parse_column_options("--given", given, str) or {})
        # By default as many rows as the table would have.
        size = rows if rows is not None else max(round(int(about["records"]) * conditioned_model.probability), 1)
        with NoiseSource() as rng:
            records = conditioned_model.draw(size, rng, independent=independent)
            columns: dict[str, Any] = records.to_columns()
            if not labels:
                columns = records.numeric_columns(rng, within=conditioned_model.within, markers=out.suffix == ".csv")
        write_columns(out, columns)
        share = (
            f", drawn from the {100 * conditioned_model.probability:.3g}% of the model that match the condition"
            if given
            else ""
        )
        typer.echo(f"{out}: {size:,} rows{share}, {len(network.domain)} columns")
        for note in () if labels else open_bin_notes(network.domain):
            typer.echo(f"note: {note}", err=True)


@app.command("evaluate")
def _evaluate(
    model: Annotated[Path, typer.Argument(help="A model file written by panstream synth fit.")],
    synthetic: Annotated[Path, typer.Argument(help="A synthetic table, or any table of the same columns.")],
    real: Annotated[
        Path | None, typer.Option(help="The real rows: exact figures, which no claim covers. Not for publication.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page of panstream synth report to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare synthetic rows with the noisy tables in the model, or with the real rows."""
    with exit_codes():
        from panstream.cli.commands._synth_evaluation import Evaluation
        from panstream.models.networks.records import Records

        network, about = _read_model(model)
        synthetic_records = _rows_or_labels(synthetic, network.domain)
        truth = Records.load(real, network.domain) if real is not None else None
        result = Evaluation(network, about, synthetic_records, truth)
        if html is not None:
            from panstream.cli.commands._synth_report import report_page

            html.write_text(report_page(result), encoding="utf-8")
        typer.echo(json.dumps(result.to_json(), indent=2) if as_json else result.text())
        if truth is not None:
            typer.echo("Compared with the real rows: these figures are exact, no claim covers them.", err=True)


@app.command("report")
def _report(
    model: Annotated[Path, typer.Argument(help="A model file written by panstream synth fit.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    synthetic: Annotated[
        Path | None, typer.Option(help="Show this synthetic table instead of what the model expects.")
    ] = None,
    real: Annotated[
        Path | None,
        typer.Option(
            help="Compare with the real rows instead of the noisy tables. Such a page is exact, no claim covers it, "
            "and it must not be published."
        ),
    ] = None,
) -> None:
    """Write one HTML page about a model: what it promises, what was measured, how close it is, what it is not for.

    Without --real, the page is made from the model alone: it costs no privacy and may be published. It compares every
    column with its noisy table, shows all pairs as a map, and loads nothing from elsewhere.
    """
    with exit_codes():
        from panstream.cli.commands._synth_evaluation import Evaluation
        from panstream.cli.commands._synth_report import report_page
        from panstream.models.networks.records import Records

        network, about = _read_model(model)
        rows = _rows_or_labels(synthetic, network.domain) if synthetic is not None else None
        truth = Records.load(real, network.domain) if real is not None else None
        out.write_text(report_page(Evaluation(network, about, rows, truth)), encoding="utf-8")
        note = "exact, not private: do not publish it" if truth is not None else "may be published"
        typer.echo(f"{out}: one page, {len(network.domain)} columns; {note}")


def _rows_or_labels(path: Path, domain: Any) -> Records:
    """Read synthetic rows whose bins are written as numbers or as intervals."""
    from panstream.models.networks.domain import Domain
    from panstream.models.networks.records import Records

    try:
        return Records.load(path, domain)
    except InvalidBatch:
        named = Domain({attribute.name: attribute.labels for attribute in domain.attributes})
        return Records(domain, Records.load(path, named).codes)


def _summary(learned: LearnedNetwork) -> str:
    from panstream.models.networks.mixture import Mixture

    network = learned.network
    names = learned.network.domain.names
    tree = network.nearest_tree() if isinstance(network, Mixture) else network
    edges = ", ".join(f"{names[parent]} → {names[child]}" for parent, child in tree.edges)
    edges = edges or "none: the attributes are independent in this model"
    if isinstance(network, Mixture):
        return f"{learned.claim}\nmodel       all pairs, {len(network.weights)} components\nstrongest   {edges}"
    most_parents = max(len(parents) for parents in network.parents)
    shape = "tree" if most_parents <= 1 else f"network with up to {most_parents} parents per attribute"
    return f"{learned.claim}\nmodel       {shape}\nedges       {edges}"


def _write_model(path: Path, learned: LearnedNetwork) -> None:
    """Write network, claim and noisy one-way tables: everything in the file may be published."""
    import numpy as np

    from panstream.cli.commands._synth_evaluation import pair_summary
    from panstream.models.networks.serialization import to_json

    one_way: dict[int, list[Any]] = {}
    for table in learned.tables:
        if len(table.attributes) == 1:
            one_way.setdefault(table.attributes[0], [np.asarray(table.counts).tolist(), table.sigma])
    about = {
        "claim": learned.claim.to_json(),
        "words": learned.claim.rows(),
        "records": learned.records,
        "one_way": [one_way.get(attribute) for attribute in range(len(learned.network.domain))],
        "two_way": pair_summary(learned.network, learned.tables, learned.records),
        **({"notes": list(learned.notes)} if learned.notes else {}),
    }
    path.write_text(to_json(learned.network, about), encoding="utf-8")


def _read_model(path: Path) -> tuple[BayesianNetwork | Mixture, dict[str, Any]]:
    """Return a network and its metadata; raise if the file is not a model of ``synth fit``."""
    from panstream.models.networks.serialization import from_json, read_metadata

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidParameter(f"the model file {path.name} cannot be read") from None
    network = from_json(text)
    about = read_metadata(text)
    if not isinstance(about.get("records"), int) or not isinstance(about.get("words"), list):
        raise InvalidBytes(f"{path.name} is a network, but was not written by panstream synth fit")
    return network, about
