"""Answers as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panstream.engine.engine import Engine
    from panstream.privacy.claim import Intrusions

__all__ = ["answer_table"]


def answer_table(engine: Engine, answers: list[dict[str, Any]]) -> str:
    """Return a table with estimate, 95% interval, epsilon, what is protected, and the intrusions covered."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from panstream.engine.results import series_name

    table = Table(title=f"stream {engine.config.stream.name}", title_justify="left")
    for column in ("query", "estimate", "95% interval", "epsilon", "protects", "intrusions covered", "of"):
        table.add_column(column, justify="right" if column in ("estimate", "95% interval", "epsilon") else "left")
    claims = {series_name(plan, group): plan.claim for plan in engine.plans for group in range(len(plan.groups))}
    for answer in answers:
        claim = claims[answer["name"]]
        low, high = answer["interval"]
        table.add_row(
            escape(answer["name"]),
            _estimate(answer),
            f"{_figure(low)} to {_figure(high)}",
            f"{answer['epsilon']:.3g}" if isinstance(answer["epsilon"], float | int) else "no privacy",
            f"one {claim.unit}",
            _covered(claim.intrusions),
            _when(answer),
        )
    console = Console(width=None if Console().is_terminal else 160)
    with console.capture() as captured:
        console.print(table)
        for answer in answers:
            if "beyond" in answer:
                console.print(escape(f"{answer['name']}: {answer['statement']}"))
            if "help" in answer:
                console.print(escape(f"{answer['name']}: too uncertain to use; what would help: {answer['help']}"))
    return captured.get()


def _estimate(answer: dict[str, Any]) -> str:
    """Return the value; of what has none or is an end, the first words of what is said of it."""
    if answer.get("too_uncertain"):
        return "too uncertain"
    if "statement" not in answer:
        return _figure(answer["value"])
    first: str = answer["statement"].partition(";")[0].removesuffix(" (95%)")
    return "between" if answer["value"] is None else first


def _covered(intrusions: Intrusions) -> str:
    """Return how many break-ins the claim covers, in few words; ``panstream explain`` has the rest."""
    many = intrusions.announced
    announced = "" if not many else ", any announced" if many < 0 else f", {many} announced"
    return f"{intrusions.unannounced} unannounced{announced}"


def _when(answer: dict[str, Any]) -> str:
    if "window" in answer:
        return f"from {_short(answer['window'][0])}"
    return f"until {_short(answer['until'])}" if "until" in answer else "all rows"


def _short(stamp: str) -> str:
    return stamp.removesuffix("Z").removesuffix("T00:00:00").replace("T", " ")


def _figure(number: float | None) -> str:
    if number is None:
        return "no data"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
