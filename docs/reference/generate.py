"""Write the reference pages from docstrings: the front doors (api.md), the algorithms, and one page a room."""

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import panstream
from panstream.core.auto_algorithm import AutoAlgorithm
from panstream.core.catalogue import ALGORITHMS
from panstream.core.registry import find

HERE = Path(__file__).parent
ROOMS = {
    "api.md": ("panstream", "Python", "Everything that `import panstream` offers, besides `__version__`."),
    "algorithms.md": (
        "panstream.core.catalogue",
        "Algorithms",
        "Algorithms under the names of their papers, in the packages that they are imported from.",
    ),
    "networks.md": (
        "panstream.models.networks",
        "Bayesian networks",
        "Everything that `panstream.models.networks` offers.",
    ),
    "federated.md": (
        "panstream.models.federated",
        "Multiple data owners",
        "Everything that `panstream.models.federated` offers.",
    ),
    "cluster.md": (
        "panstream.distributed.sharded",
        "Many machines",
        "Everything that `panstream.distributed.sharded` offers.",
    ),
}
SECTION = re.compile(r"^(Privacy|Error|Parameters|Example|Note)\n", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([\w.]+)`")
PROOF = re.compile(r"(?<![\w/])docs/([\w-]+(?:/[\w-]+)*\.md)")
SAME = re.compile(r"(?:(?:[Tt]he )?[Oo]thers,?(?: are)?|As|as)\b[^.;]*?:class:`[\w.]+`[^.]*\.?")
EVERYWHERE = {
    "adjacency": '"add-remove" hides whether a unit was there, "replace" what it was.',
    "contributions": "protect a user with at most this many rows instead of one event.",
    "independence": "k-wise independence of the hash function; a keyed mixer by default.",
    "key": "public number that chooses the sample or the hash function.",
    "levels": "levels of a bitmap or tree; chosen for you by default.",
    "max_weight": "the largest weight of a row, of either sign.",
    "memory": "bytes that the state may take.",
    "releases": "how many answers there will be.",
    "window": "ticks in a row in which a user's rows are protected together.",
}


def things_of(file: str) -> dict[str, object]:
    """Return what a page is about, by name."""
    room = importlib.import_module(ROOMS[file][0])
    if file == "algorithms.md":
        return {f"{where}.{name}": find(name) for name, where in ALGORITHMS.items() if name not in panstream.__all__}
    return {name: getattr(room, name) for name in room.__all__ if not name.startswith("__")}


def anchor(name: str) -> str:
    """Return the anchor that a heading of this name gets."""
    return name.rpartition(".")[2].lower()


PLACES = {name.rpartition(".")[2]: file for file in reversed(ROOMS) for name in things_of(file)}


def link(path: str, file: str) -> str:
    """Return a name as code, with a link if it has an entry somewhere."""
    short = path.rpartition(".")[2]
    if short not in PLACES:
        return f"`{path}`"
    return f"[`{short}`]({'' if PLACES[short] == file else PLACES[short]}#{anchor(short)})"


def prose(text: str, file: str) -> str:
    """Return running text of a docstring as Markdown on one line a paragraph."""
    text = ROLE.sub(lambda match: link(match[1], file), text)
    text = PROOF.sub(lambda match: f"[{match[1]}](../{match[1]})", text)
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    pieces = re.split(r"(`[^`]*`|\*\*[A-Z][^*]*\*\*)", text)  # every other one is code, or a bold phrase
    plain = (each if at % 2 else re.sub(r"([*_<|\\])", r"\\\1", each) for at, each in enumerate(pieces))
    return " ".join("".join(plain).split())


def body(text: str, file: str) -> list[str]:
    """Return a docstring's text as Markdown: paragraphs, examples, code after a double colon."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        code = textwrap.dedent(block).strip()
        if code.startswith(">>>"):
            lines += ["```pycon", code, "```", ""]
        elif lines[-2:] == ["::", ""]:
            lines[-2:] = ["```py", code, "```", ""]
        elif block.strip() == "::":
            lines += ["::", ""]
        elif block.startswith("    ") and not lines:
            lines += [prose(block, file), ""]
        elif re.match(r"[-*] |\d+\. ", code):
            items = re.split(r"\n(?=[-*] |\d+\. )", code)
            lines += [*(prose(each, file).replace("\\*", "-", 1) for each in items), ""]
        else:
            lines += [prose(block, file), ""]
    return lines


def found_class(path: str, near: object) -> object | None:
    """Return the class that a docstring names, in full or as its own module knows it."""
    module, _, short = path.rpartition(".")
    if module:
        return getattr(importlib.import_module(module), short, None)
    own = sys.modules[getattr(near, "__module__", "panstream")]
    return getattr(own, short, None) or (find(short) if short in ALGORITHMS else None)


def meanings(thing: object, names: set[str]) -> dict[str, str]:
    """Return what a docstring says about parameters, and what those that it refers to say about the others."""
    parts = SECTION.split(inspect.getdoc(thing) or "")
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    text = re.split(r"\n(?=\S)", sections.get("Parameters", ""))[0]
    others = [found_class(path, thing) for path in re.findall(r":class:`([\w.]+)`", " ".join(SAME.findall(text)))]
    known = names | _names(thing)
    starts = [
        match
        for match in re.finditer(r"(?:(?<=\s)|^)((?:\w+)(?:(?:, | and )\w+)*):\s", text)
        if set(re.split(", | and ", match[1])) <= known
    ]
    said: dict[str, str] = {}
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=False):
        words = text[match.end() : end]
        if own := SAME.sub("", words.replace("as everywhere.", "")).strip():
            said |= dict.fromkeys(re.split(", | and ", match[1]), own)
    bases = list(inspect.getmro(thing))[1:] if inspect.isclass(thing) else []
    for other in (*others, *bases):
        if other is not None and other is not thing and other.__module__.startswith("panstream"):
            said = {**meanings(other, names), **said}
    return {name: text for name, text in said.items() if name in names}


def _names(thing: Any) -> set[str]:
    try:
        return set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return set()


def written(value: object) -> str:
    """Return a type or a default as code in a table."""
    text = value if isinstance(value, str) else getattr(value, "__name__", repr(value))
    text = re.sub(r"<factory>|<[^<>]*(?:<[^<>]*>)?[^<>]* at 0x[0-9a-f]+>", "…", text)
    return f"`{text}`".replace("|", "\\|")


def parameters(thing: Any, file: str) -> list[str]:
    """Return the table of a thing's parameters."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    taken = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    if not taken:
        return []
    said = meanings(thing, {each.name for each in taken})
    lines = ["| parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
    for each in taken:
        kind = "" if each.annotation is each.empty else written(str(each.annotation).strip("'\""))
        meaning = said.get(each.name, EVERYWHERE.get(each.name, "") if said else "")
        default = "required" if each.default is each.empty else written(repr(each.default))
        lines.append(f"| `{each.name}` | {kind} | {default} | {prose(meaning, file)} |")
    if not any(said.values()):
        lines = [line.rpartition(" | ")[0] + " |" for line in lines]
    return [*lines, ""]


def methods(thing: object, file: str) -> list[str]:
    """Return the table of a class's own methods and properties; models, learners and front doors share some."""
    if not inspect.isclass(thing):
        return []
    lines = []
    kinds = [base for base in thing.__mro__[:0:-1] if base.__module__.startswith("panstream.")]
    shared = [
        base for base in kinds if base is AutoAlgorithm or base.__module__.startswith("panstream.models.networks.")
    ]
    members = {name: member for base in (*shared, thing) for name, member in vars(base).items()}
    for name, member in members.items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        told = inspect.getdoc(plain)
        if name.startswith("_") or told is None or not (callable(plain) or isinstance(plain, property)):
            continue
        taken = "" if isinstance(plain, property) else f"({', '.join(_arguments(plain))})"
        first = re.split(r"\n\s*\n", told)[0]
        lines.append(f"| `{name}{taken}` | {prose(first, file)} |")
    return ["| method or property | |", "| --- | --- |", *lines, ""] if lines else []


def _arguments(function: Any) -> list[str]:
    found = [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]
    return [each.name if each.default is each.empty else f"{each.name}=…" for each in found]


def entry(name: str, thing: object, file: str) -> list[str]:
    """Return the lines about one name."""
    short = name.rpartition(".")[2]
    lines = [f"## `{short}`", ""]
    if "." in name:
        lines += ["```py", f"from {name.rpartition('.')[0]} import {short}", "```", ""]
    parts = SECTION.split(inspect.getdoc(thing) or "")
    lines += body(parts[0], file)
    table = parameters(thing, file)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        inside, *after = re.split(r"\n(?=\S)", text, maxsplit=1)
        if title != "Parameters":
            first, *rest = body(textwrap.dedent(inside), file)
            lines += (
                [f"**{title}.**", "", first, *rest] if first.startswith("```") else [f"**{title}.** {first}", *rest]
            )
        lines += body("".join(after), file) if after else []
    return [*lines, *table, *methods(thing, file)]


def page(file: str) -> str:
    """Return one whole page."""
    _, title, introduction = ROOMS[file]
    things = things_of(file)
    names = sorted(things, key=lambda name: name.rpartition(".")[2].lower())
    index = ", ".join(f"[`{name.rpartition('.')[2]}`](#{anchor(name)})" for name in names)
    lines = [f"# {title}", "", f"{introduction} Made from the docstrings by `generate.py`.", "", index, ""]
    for name in names:
        lines += entry(name, things[name], file)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    for file in ROOMS:
        (HERE / file).write_text(page(file))
        sys.stdout.write(f"{file} written\n")
