"""Griffe extension for the reference: parameters that base classes describe, and docstrings as Markdown."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from griffe import Class, Docstring, DocstringSectionParameters, Extension, Function, Object

PAGES = ("api", "algorithms", "networks", "federated", "cluster", "engine", "privacy", "core")
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
ARGS = re.compile(r"^Args:\n", re.MULTILINE)
SECTION = re.compile(r"^(?:Returns|Raises|Examples|Merging|Reference)\b", re.MULTILINE)
CODE = re.compile(r"(`+[^`]+`+|^>>> (?:.+\n?)+)", re.MULTILINE)


def entries(page: str) -> list[str]:
    """Return the paths of the objects that a page documents."""
    return ENTRY.findall(Path(__file__).with_name(f"{page}.md").read_text("utf-8"))


def described(thing: Object) -> dict[str, str]:
    """Return what an object's own docstring says about parameters, by name."""
    sections = thing.docstring.parse("google", warnings=False) if thing.docstring else []
    parameters = [section for section in sections if isinstance(section, DocstringSectionParameters)]
    return {parameter.name: parameter.description for section in parameters for parameter in section.value}


class Docstrings(Extension):
    """Completes the docstrings of what the pages document."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Complete parameters first: linking changes the texts that are inherited."""
        if pkg.name != "panstream":
            return
        paths = {path.rpartition(".")[2]: path for page in PAGES for path in entries(page)}
        things = [pkg[path.removeprefix("panstream.")] for path in paths.values()]
        for thing in things:
            if isinstance(thing, Class):
                remove_fixed_fields(thing)
                bases = thing.mro()
                inherit_parameters(thing, bases)
                for name, member in thing.members.items():
                    if isinstance(member, Function):
                        inherit_parameters(member, methods(bases, name))
        for thing in things:
            for part in (thing, *thing.members.values()):
                if isinstance(part, Class | Function) and part.docstring:
                    part.docstring.value = markdown(part.docstring.value, paths, thing.name)


def remove_fixed_fields(thing: Class) -> None:
    """Remove parameters of base classes that this one computes itself (``field(init=False)``)."""
    for name, member in thing.attributes.items():
        if "init=False" in str(member.value) and name in thing.parameters:
            del thing.parameters[name]


def methods(bases: Sequence[Class], name: str) -> list[Function]:
    """Return the methods of this name of some classes."""
    members = [base.members.get(name) for base in bases]
    return [member for member in members if isinstance(member, Function)]


def inherit_parameters(thing: Class | Function, bases: Sequence[Object]) -> None:
    """Add to a docstring what bases, the nearest first, say about parameters that it does not describe itself."""
    said = described(thing)
    inherited: dict[str, str] = {}
    for base in reversed(bases):
        inherited |= described(base)
    added = [
        f"    {parameter.name}: {' '.join(inherited[parameter.name].split())}\n"
        for parameter in thing.parameters
        if parameter.name in inherited and parameter.name not in said
    ]
    if not added:
        return
    text = (thing.docstring.value if thing.docstring else "") + "\n"
    if (heading := ARGS.search(text)) is None:
        section = SECTION.search(text)
        start = section.start() if section else len(text)
        text = f"{text[:start]}\nArgs:\n{''.join(added)}\n{text[start:]}"
    else:
        end = re.compile(r"^(?=\S)|\Z", re.MULTILINE).search(text, heading.end())
        assert end is not None
        body = text[heading.end() : end.start()].rstrip("\n")
        text = f"{text[: heading.end()]}{body}\n{''.join(added)}\n{text[end.start() :]}"
    thing.docstring = Docstring(text, parent=thing)


def markdown(text: str, paths: dict[str, str], name: str) -> str:
    """Return a docstring as Markdown: names that have an entry and pages as links, and what is no markup escaped."""
    parts = CODE.split(re.sub(r"^::\n\n", "", text, flags=re.MULTILINE))
    for index, part in enumerate(parts):
        if index % 2 == 0:
            plain = re.sub(r"(?<=\w)\*\*(?=\w)|<(?=[a-zA-Z/])", lambda match: re.sub(r"(.)", r"\\\1", match[0]), part)
            parts[index] = re.sub(r"\bdocs/([\w/-]+)\.md", r"[\1](../\1.html)", plain)
        elif (short := part.strip("`")) in paths and short != name:
            parts[index] = f"[`{short}`][{paths[short]}]"
    return "".join(parts)
