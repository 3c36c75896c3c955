"""Write the reference pages from the docstrings of everything that is exported: api.md and one page a room."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
ROOMS = {
    "api.md": ("panstream", "Reference", "Everything that `import panstream` offers."),
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


def entry(room: ModuleType, name: str) -> list[str]:
    """Return the lines about one name."""
    if name.startswith("__"):
        return [f"## `{name}`", "", "The version of the package.", ""]
    thing = getattr(room, name)
    lines = [f"## `{name}`", "", "```text", f"{name}{signature_of(thing)}", "```", ""]
    return [*lines, "```text", inspect.getdoc(thing) or "", "```", ""]


def page(file: str) -> str:
    """Return one whole page."""
    path, title, introduction = ROOMS[file]
    room = importlib.import_module(path)
    lines = [f"# {title}", "", f"{introduction} Made from the docstrings by `generate.py`.", ""]
    for name in sorted(room.__all__, key=str.lower):
        lines += entry(room, name)
    return "\n".join(lines)


if __name__ == "__main__":
    for file in ROOMS:
        (HERE / file).write_text(page(file))
        sys.stdout.write(f"{file} written\n")
