"""``panstream synth categories``: name the categories of columns that nobody listed, for a domain file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.common import exit_codes
from panstream.errors import InvalidParameter


def categories(
    rows: Annotated[Path, typer.Argument(help="The private rows: CSV, TSV, JSON lines, Parquet or Arrow.")],
    column: Annotated[list[str], typer.Option(metavar="COLUMN", help="A column of text; may be repeated.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss, divided evenly between the columns.")],
    delta: Annotated[
        float, typer.Option(help="Probability that a value of only one person is named; divided evenly, too.")
    ] = 1e-9,
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
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not record what the answer costs.")] = False,
    budget: Annotated[
        float | None, typer.Option(help="Refuse if all together would cost more; the ledger remembers it.")
    ] = None,
) -> None:
    """Print lines for a domain file: the values of columns that occur often enough to be named; all others are "other".

    Counts get noise, and only those above a threshold are named, so nobody's own value appears but for a probability of
    delta. It costs its epsilon and delta in addition to those of the model, in the same ledger.
    """
    with exit_codes(compiles=True):
        from panstream.cli.commands._synth_rows import text_columns
        from panstream.engine.storage.ledger_file import charge_ledgers, ledger_path_for
        from panstream.models.networks.category_names import categories_claim, frequent_categories
        from panstream.models.networks.person_rows import rows_of_persons
        from panstream.primitives.noise import NoiseSource
        from panstream.primitives.toml_config import toml_key, toml_value
        from panstream.privacy.category_loss import category_threshold

        if no_ledger and (ledger is not None or budget is not None):
            raise InvalidParameter("give --no-ledger without --ledger and --budget")
        if person is not None and contributions is None:
            raise InvalidParameter("--person needs --contributions, the number of records of one person that are taken")
        names = list(dict.fromkeys(column))
        share = (epsilon / len(names), delta / len(names))
        limit = category_threshold(*share, contributions or 1)
        wanted = list(dict.fromkeys([*names, *([] if person is None else [person])]))
        table = text_columns(rows, wanted)
        with NoiseSource() as rng:
            if person is not None:  # rows that do not say whose they are cost nothing
                table = table.take(rows_of_persons(table.column(person), contributions or 1, rng))
            paths = [] if no_ledger else [ledger or ledger_path_for(rows)]
            claim = categories_claim(epsilon, delta, contributions)
            charged = charge_ledgers(paths, {"synth categories": claim}, budget=budget)
            for name in names:
                named = frequent_categories(table.column(name), *share, rng, contributions=contributions or 1)
                typer.echo(f"{toml_key(name)} = {{ categories = {toml_value(named)}, other = true }}")
        typer.echo(f"note: values of fewer than about {limit:,} records are counted as other", err=True)
        if charged:
            typer.echo(f"So far: {charged} ({paths[0].name}).", err=True)
