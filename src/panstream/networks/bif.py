"""BIF, the interchange format for Bayesian networks that pgmpy, bnlearn and others read.

Names and categories in BIF are single words, so everything but letters, digits and ``_`` becomes ``_`` (with a number
where two names would meet). The originals stand beside them in ``property`` lines, and :func:`from_bif` puts them
back. Bins come back as plain categories: BIF has no numeric columns.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.networks.domain import Domain
from panstream.networks.network import BayesianNetwork

__all__ = ["from_bif", "to_bif"]

_COMMENT = re.compile(r'("[^"\n]*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
_TOKEN = re.compile(r'"[^"\n]*"|[^\s{}()\[\],;|"]+|[{}()\[\],;|]')


def to_bif(network: BayesianNetwork) -> str:
    """Return the network as BIF text; probabilities keep all their digits."""
    domain = network.domain
    names = _words(domain.names)
    states = [_words(attribute.labels) for attribute in domain.attributes]
    parts = ["network panstream {\n}\n"]
    for at, attribute in enumerate(domain.attributes):
        parts.append(
            f"variable {names[at]} {{\n"
            f"  type discrete [ {attribute.size} ] {{ {', '.join(states[at])} }};\n"
            f"  property name = {_hidden(attribute.name)} ;\n"
            f"  property labels = {_hidden(list(attribute.labels))} ;\n"
            "}\n"
        )
    for at, table in enumerate(network.tables):
        parents = network.parents[at]
        if not parents:
            parts.append(f"probability ( {names[at]} ) {{\n  table {_row(table)};\n}}\n")
            continue
        given = ", ".join(names[each] for each in parents)
        lines = [
            f"  ({', '.join(states[each][code] for each, code in zip(parents, setting, strict=True))}) "
            f"{_row(table[setting])};\n"
            for setting in itertools.product(*(range(domain.sizes[each]) for each in parents))
        ]
        parts.append(f"probability ( {names[at]} | {given} ) {{\n{''.join(lines)}}}\n")
    return "".join(parts)


def from_bif(text: str) -> BayesianNetwork:
    """Read a network of discrete variables from BIF text, or raise InvalidBytes."""
    try:
        return _Reader(text).network()
    except (InvalidParameter, ValueError, KeyError, IndexError, StopIteration) as error:
        if isinstance(error, InvalidBytes):
            raise
        raise InvalidBytes("the BIF text is damaged or uses what this reader does not know") from None


def _row(values: NDArray[np.float64]) -> str:
    return ", ".join(repr(float(value)) for value in values)


def _words(labels: Sequence[str]) -> list[str]:
    """Return a distinct single word for every label."""
    used: set[str] = set()
    words = []
    for label in labels:
        stem = re.sub(r"[^0-9A-Za-z_]", "_", label) or "_"
        candidates = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        word = next(each for each in candidates if each.lower() not in used)  # pgmpy does not tell case apart
        used.add(word.lower())
        words.append(word)
    return words


def _hidden(value: str | list[str]) -> str:
    """Return a value as one word of hexadecimal digits, which every reader of BIF passes over."""
    return json.dumps(value).encode().hex()


class _Reader:
    """Reads one BIF text."""

    def __init__(self, text: str) -> None:
        plain = _COMMENT.sub(lambda found: found.group(1) or " ", text)
        self.tokens: Iterator[str] = iter(_TOKEN.findall(plain))
        self.names: dict[str, str] = {}
        self.states: dict[str, list[str]] = {}
        self.labels: dict[str, list[str]] = {}
        self.parents: dict[str, list[str]] = {}
        self.tables: dict[str, NDArray[np.float64]] = {}

    def network(self) -> BayesianNetwork:
        for token in self.tokens:
            if token == "network":
                self._skip_block()
            elif token == "variable":
                self._variable()
            elif token == "probability":
                self._probability()
            else:
                raise InvalidBytes("the BIF text must consist of network, variable and probability blocks")
        order = list(self.states)
        position = {name: at for at, name in enumerate(order)}
        if not order or set(self.tables) != set(order):
            raise InvalidBytes("the BIF text must have one probability block per variable")
        domain = Domain({self.names[name]: self.labels[name] for name in order})
        parents = tuple(tuple(position[each] for each in self.parents[name]) for name in order)
        return BayesianNetwork(domain, parents, tuple(self.tables[name] for name in order))

    def _next(self) -> str:
        return next(self.tokens).strip('"')

    def _until(self, end: str) -> list[str]:
        return list(itertools.takewhile(lambda token: token != end, self.tokens))

    def _skip_block(self) -> None:
        self._until("{")
        self._until("}")

    def _variable(self) -> None:
        name = self._next()
        self._until("{")
        properties: dict[str, str] = {}
        while (token := self._next()) != "}":
            line = self._line_of_states(name) if token == "type" else self._until(";")
            if token == "property" and len(line) == 3 and line[1] == "=":
                properties[line[0]] = line[2]
        states = self.states[name]
        self.names[name] = _shown(properties.get("name"), str) or name
        labels = _shown(properties.get("labels"), list)
        self.labels[name] = labels if labels and len(labels) == len(states) else states

    def _line_of_states(self, name: str) -> list[str]:
        self._until("{")
        self.states[name] = [token.strip('"') for token in self._until("}") if token != ","]
        return self._until(";")

    def _probability(self) -> None:
        self._until("(")
        head = [token.strip('"') for token in self._until(")") if token not in ("|", ",")]
        name, parents = head[0], head[1:]
        sizes = [len(self.states[each]) for each in parents]
        table = np.full((*sizes, len(self.states[name])), np.nan)
        self._until("{")
        while (token := self._next()) != "}":
            if token == "(":
                given = [each.strip('"') for each in self._until(")") if each != ","]
                setting = tuple(self.states[each].index(state) for each, state in zip(parents, given, strict=True))
                table[setting] = self._numbers()
            elif token == "table":
                flat = np.array(self._numbers())
                # the table form lists the variable's own states slowest
                table[...] = np.moveaxis(flat.reshape(len(self.states[name]), *sizes), 0, -1)
            elif token == "default":
                table[np.isnan(table).all(axis=-1)] = self._numbers()
            else:
                self._until(";")
        self.parents[name], self.tables[name] = parents, _normalised(table)

    def _numbers(self) -> list[float]:
        return [float(token) for token in self._until(";") if token != ","]


def _normalised(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows scaled to 1: published files round their probabilities."""
    totals = table.sum(axis=-1, keepdims=True)
    if not np.all(np.abs(totals - 1.0) < 1e-2):
        raise InvalidBytes("the rows of a probability block must sum to 1")
    rows: NDArray[np.float64] = table / totals
    return rows


def _shown(word: str | None, kind: type) -> Any:
    """Return what :func:`_hidden` wrote, or None for a property of somebody else."""
    try:
        value = json.loads(bytes.fromhex(word or ""))
    except ValueError:
        return None
    return value if isinstance(value, kind) else None
