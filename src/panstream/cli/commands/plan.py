"""``panstream plan``: sizes, errors and budgets of statistics, before any data is seen."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer

from panstream.cli.common import AsJson, ConfigFile, exit_codes
from panstream.errors import InvalidParameter

app = typer.Typer(
    help="Sizes, errors and budgets before any data is seen.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("density")
def _density(
    epsilon: Annotated[float, typer.Option(help="Total privacy loss.")],
    alpha: Annotated[float, typer.Option(help="Additive error of the density.")],
    beta: Annotated[float, typer.Option(help="Probability that the error is larger.")],
    universe: Annotated[int, typer.Option(help="How many users exist.")],
    as_json: AsJson = False,
) -> None:
    """How many users must be watched for a density within ALPHA: ours, the papers', and Roth's bound."""
    from panstream.algorithms.planning.density_comparison import density_plan

    with exit_codes(refused=2):
        plan = density_plan(epsilon, alpha, beta, universe)
    typer.echo(json.dumps(plan.to_json(), indent=2) if as_json else plan.table())


@app.command("distinct")
def _distinct(
    epsilon: Annotated[float, typer.Option(help="Total privacy loss.")],
    universe: Annotated[int | None, typer.Option(help="How many users exist, if that is known.")] = None,
    expected: Annotated[int | None, typer.Option(help="About how many users there will be.")] = None,
    memory: Annotated[int | None, typer.Option(help="Bytes that the state may take.")] = None,
    releases: Annotated[int, typer.Option(help="How many answers will be published.")] = 1,
    at_most: Annotated[int | None, typer.Option(help="The largest number of users that there may be.")] = None,
    as_json: AsJson = False,
) -> None:
    """Which distinct counter to use, why, and its relative error at several sizes."""
    from panstream.algorithms.auto import DistinctCount
    from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
    from panstream.algorithms.distinct.bitmap import Bitmap
    from panstream.algorithms.planning.lower_bounds import independent_parts_bound
    from panstream.algorithms.planning.tables import format_table

    with exit_codes(refused=2):
        question = DistinctCount(
            epsilon, universe=universe, expected=expected, memory=memory, releases=releases, at_most=at_most
        )
        algorithm = question.algorithm
        bound = independent_parts_bound(epsilon, question.choice.users)
        max_distinct = universe or at_most or 10**9
        sizes = [10**power for power in range(2, 10) if 10**power <= max_distinct]
        errors = {
            size: algorithm.relative_error(size)
            if isinstance(algorithm, Bitmap | ContinualBitmap)
            else algorithm.standard_error(size) / size
            for size in sizes
        }
    if as_json:
        chosen = {"algorithm": type(algorithm).__name__, "why": question.explain(), "claim": question.claim().to_json()}
        typer.echo(json.dumps({**chosen, "relative_error": errors, "lower_bounds": [str(bound)]}, indent=2))
        return
    rows = [(f"{size:,}", f"{error:.2%}" if error < 10 else "drowns in noise") for size, error in errors.items()]
    typer.echo(f"{question.explain()}\n{bound}\n")
    typer.echo(format_table("standard error of the count", ("users", "relative"), rows, right={0, 1}))


@app.command("names")
def _names(
    epsilon: Annotated[float, typer.Option(help="Total privacy loss.")],
    delta: Annotated[float, typer.Option(help="Slack of the guarantee, such as 1e-6; 0 for pure privacy.")] = 0.0,
    max_item_bytes: Annotated[int, typer.Option(help="Longest name, in bytes; the rest is cut off.")] = 64,
    expected: Annotated[float, typer.Option(help="About how many events a window has.")] = 1e6,
    memory: Annotated[int, typer.Option(help="Bytes that the state may take.")] = 48 << 20,
    as_json: AsJson = False,
) -> None:
    """How many events a name that nobody listed needs to be found, and how exact the counts are."""
    from panstream.algorithms.auto import TopItems
    from panstream.algorithms.planning.lower_bounds import listed_names_bound

    with exit_codes(refused=2):
        question = TopItems(epsilon, delta=delta, max_item_bytes=max_item_bytes, expected=expected, memory=memory)
        bound = listed_names_bound(epsilon, delta, max_item_bytes)
    if as_json:
        figures = {
            "listing_threshold": question.listing_threshold,
            "why": question.explain(),
            "claim": question.claim().to_json(),
            "lower_bounds": [str(bound)],
        }
        typer.echo(json.dumps(figures, indent=2))
        return
    typer.echo(f"{question.explain()}\n{bound}")


@app.command("turnstile")
def _turnstile(
    question: Annotated[str, typer.Argument(help="distinct, cropped-sum or heavy-hitters.")],
    epsilon: Annotated[float, typer.Option(help="Total privacy loss.")],
    users: Annotated[int, typer.Option(help="About how many users have a weight.")],
    universe: Annotated[int | None, typer.Option(help="How many users exist, if that is known.")] = None,
    largest: Annotated[int, typer.Option(help="Bound on the net weight of a user, either sign.")] = 1 << 40,
    crop: Annotated[int | None, typer.Option(help="Largest weight that counts per user, for a cropped sum.")] = None,
    threshold: Annotated[int | None, typer.Option(help="Weight of a heavy hitter.")] = None,
    total_weight: Annotated[int | None, typer.Option(help="Public bound on the sum of all weights.")] = None,
    min_net_weight: Annotated[
        int | None, typer.Option(help="Lowest net weight, where heavy hitters may fall below 0.")
    ] = None,
    beta: Annotated[float, typer.Option(help="Probability that the error is larger.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Which counter to use with deletions or negative weights, and what error to expect."""
    from panstream.algorithms.planning.turnstile import turnstile_plan

    with exit_codes(refused=2):
        plan = turnstile_plan(
            question.replace("-", " "),  # type: ignore[arg-type]
            epsilon=epsilon,
            users=users,
            universe=universe,
            largest=largest,
            crop=crop,
            threshold=threshold,
            total_weight=total_weight,
            min_net_weight=min_net_weight,
            beta=beta,
        )
    typer.echo(json.dumps(plan.to_json(), indent=2) if as_json else plan.table())


@app.command("moments")
def _moments(
    epsilon: Annotated[float, typer.Option(help="Total privacy loss.")],
    expected: Annotated[float, typer.Option(help="About how large the L2 norm will be.")],
    max_weight: Annotated[int, typer.Option(help="Largest weight of a row, either sign.")] = 1,
    releases: Annotated[int, typer.Option(help="How many answers will be published.")] = 1,
    beta: Annotated[float, typer.Option(help="Probability that the error is larger.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Error of second moments and join sizes, by what is protected, and when noise drowns them."""
    from panstream.algorithms.planning.moments import moments_plan

    with exit_codes(refused=2):
        plan = moments_plan(epsilon=epsilon, expected=expected, max_weight=max_weight, releases=releases, beta=beta)
    typer.echo(json.dumps(plan.to_json(), indent=2) if as_json else plan.table())


@app.command("person")
def _person(
    config: ConfigFile,
    error: Annotated[
        list[str] | None,
        typer.Option(help='Largest 95% error of a query, as "name=200"; target_error by default. May be repeated.'),
    ] = None,
    longest: Annotated[bool, typer.Option("--longest", help="Take the last of each query's windows.")] = False,
    as_json: AsJson = False,
) -> None:
    """The smallest budget of one person with which every query of CONFIG reaches its error, and how it is divided."""
    from panstream.engine.config.config import load_config
    from panstream.engine.planner.query_plan import plan_all
    from panstream.engine.planner.smallest_budget import smallest_person_budget
    from panstream.engine.reporting.person_table import person_json, person_table

    with exit_codes(refused=2):
        smallest = smallest_person_budget(load_config(config), _errors(error or []), longest=longest)
        plans = plan_all(smallest)
        lines = [
            *person_table(smallest, plans),
            "",
            f"smallest budget: [stream.budget] person = {smallest.stream.person.epsilon:g}",
        ]
        typer.echo(json.dumps(person_json(smallest, plans), indent=2) if as_json else "\n".join(lines))


def _errors(texts: list[str]) -> dict[str, float]:
    errors: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            errors[name] = float(number)
        except ValueError:
            errors[name] = 0.0
        if not name or not 0.0 < errors[name] < math.inf:
            raise InvalidParameter(f"error must be a query and a positive number, such as visitors=200, got {text!r}")
    return errors
