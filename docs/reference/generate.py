"""Write the reference pages from docstrings: the front doors (api.md), the algorithms, and one page a room."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import panstream
from panstream.algorithm import find
from panstream.catalogue import ALGORITHMS

HERE = Path(__file__).parent
ROOMS = {
    "api.md": ("panstream", "Reference", "Everything that `import panstream` offers."),
    "algorithms.md": (
        "panstream.catalogue",
        "Algorithms",
        "Algorithms by the names of their papers, in the rooms that they are imported from.",
    ),
    "networks.md": ("panstream.networks", "Bayesian networks", "Everything that `panstream.networks` offers."),
    "federated.md": ("panstream.federated", "Several holders", "Everything that `panstream.federated` offers."),
    "cluster.md": ("panstream.cluster", "Many machines", "Everything that `panstream.cluster` offers."),
}


def signature_of(thing: object) -> str:
    """Return how a thing is called, or nothing."""
    if not callable(thing):
        return ""
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    signature = re.sub(r"<factory>|<[^<>]*(?:<[^<>]*>)?[^<>]* at 0x[0-9a-f]+>", "…", signature)
    return signature.replace(" -> None", "").replace("'", "")


def entry(name: str, thing: object) -> list[str]:
    """Return the lines about one name."""
    if name.startswith("__"):
        return [f"## `{name}`", "", "The version of the package.", ""]
    lines = [f"## `{name}`", "", "```text", f"{name}{signature_of(thing)}", "```", ""]
    return [*lines, "```text", inspect.getdoc(thing) or "", "```", ""]


def page(file: str) -> str:
    """Return one whole page."""
    path, title, introduction = ROOMS[file]
    room = importlib.import_module(path)
    if file == "algorithms.md":
        things = {f"{where}.{name}": find(name) for name, where in ALGORITHMS.items() if name not in panstream.__all__}
    else:
        things = {name: getattr(room, name) for name in room.__all__}
    lines = [f"# {title}", "", f"{introduction} Made from the docstrings by `generate.py`.", ""]
    for name in sorted(things, key=str.lower):
        lines += entry(name, things[name])
    return "\n".join(lines)


if __name__ == "__main__":
    for file in ROOMS:
        (HERE / file).write_text(page(file))
        sys.stdout.write(f"{file} written\n")
