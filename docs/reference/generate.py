"""Write docs/reference/api.md from the docstrings of everything that is exported."""

import inspect
import sys
from pathlib import Path

import panstream

TARGET = Path(__file__).with_name("api.md")


def page() -> str:
    """Return the whole page."""
    lines = [
        "# Reference",
        "",
        "Everything that `import panstream` offers. Made from the docstrings by `generate.py`.",
        "",
    ]
    for name in sorted(panstream.__all__, key=str.lower):
        if name.startswith("__"):
            lines += [f"## `{name}`", "", "The version of the package.", ""]
            continue
        thing = getattr(panstream, name)
        try:
            signature = str(inspect.signature(thing))
        except (TypeError, ValueError):
            signature = ""
        signature = signature.replace(" -> None", "").replace("'", "")
        lines += [f"## `{name}`", "", "```text", f"{name}{signature}", "```", ""]
        lines += ["```text", inspect.getdoc(thing) or "", "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(page())
    sys.stdout.write(f"{TARGET.name} written\n")
