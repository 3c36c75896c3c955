"""Read and write networks: JSON with a version and a checksum, and BIF for other programs.

The JSON is complete, with every probability to its last bit; a mixture has weights instead of parents. ``about`` may
contain public notes, such as the privacy claim that the network was learned under.

BIF is the interchange format that pgmpy, bnlearn and others read. Names and categories in it are single words, so
everything but letters, digits and ``_`` becomes ``_`` (with a number where two names would collide). The originals are
in ``property`` lines, from which `from_bif` restores them. Bins are read back as plain categories: BIF has no numeric
columns. A mixture becomes a network whose first variable, ``component``, is the hidden parent.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.models.networks.domain import Domain
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork

_FORMAT = "panstream-network"
_VERSION = 1
_LARGEST_TEXT = 1 << 30


def to_json(network: BayesianNetwork | Mixture, about: Mapping[str, Any] | None = None) -> str:
    """Return the network as JSON text; ``about`` holds public notes of plain values.

    Args:
        network: The model to write.
        about: Public notes of plain values.
    """
    shape: dict[str, Any]
    if not isinstance(network, Mixture):
        shape = _plain(network)
    else:
        shape = {"weights": network.weights.tolist(), "tables": _flat(network.tables)}
        if network.forest is not None:
            shape["forest"] = _plain(network.forest)
    content: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "about": dict(about or {}),
        "domain": network.domain.to_dict(),
        **shape,
    }
    content["sha256"] = _digest(content)
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(network: BayesianNetwork) -> dict[str, Any]:
    names = network.domain.names
    return {
        "parents": [[names[parent] for parent in family] for family in network.parents],
        "tables": _flat(network.tables),
    }


def _flat(tables: Sequence[NDArray[np.float64]]) -> list[list[float]]:
    return [table.ravel().tolist() for table in tables]


def from_json(text: str | bytes) -> BayesianNetwork | Mixture:
    """Read a network that `to_json` wrote; raise InvalidBytes for other text, a wrong checksum or another version.

    Args:
        text: What `to_json` returned.
    """
    content = _content(text)
    domain = Domain.from_dict(content.get("domain"))
    try:
        return (_mixture if "weights" in content else _network)(domain, content)
    except (ValueError, OverflowError) as error:  # InvalidParameter is a ValueError
        raise InvalidBytes(f"the network is damaged: {error}") from None


def _network(domain: Domain, content: dict[str, Any]) -> BayesianNetwork:
    names: Any = content.get("parents")
    if not _lists(content.get("tables"), len(domain), (int, float)):
        raise InvalidBytes("the network must have one table per attribute")
    if not _lists(names, len(domain), str):
        raise InvalidBytes("the network must have one list of parents per attribute")
    parents = tuple(tuple(domain.position(name) for name in family) for family in names)
    shapes = [tuple(domain.sizes[attribute] for attribute in (*family, child)) for child, family in enumerate(parents)]
    arrays = zip(content["tables"], shapes, strict=True)
    return BayesianNetwork(domain, parents, tuple(np.array(flat, np.float64).reshape(shape) for flat, shape in arrays))


def _mixture(domain: Domain, content: dict[str, Any]) -> Mixture:
    weights: Any = content.get("weights")
    if not _lists([weights], 1, (int, float)):
        raise InvalidBytes("a mixture must have a list of weights")
    if not _lists(content.get("tables"), len(domain), (int, float)):
        raise InvalidBytes("the network must have one table per attribute")
    forest: Any = content.get("forest")
    if forest is not None and not isinstance(forest, dict):
        raise InvalidBytes("the forest of a mixture must be a mapping")
    arrays = zip(content["tables"], domain.sizes, strict=True)
    tables = tuple(np.array(flat, np.float64).reshape(len(weights), size) for flat, size in arrays)
    return Mixture(domain, np.array(weights, np.float64), tables, None if forest is None else _network(domain, forest))


def read_metadata(text: str | bytes) -> dict[str, Any]:
    """Return the public notes (``about``) of a network's JSON; raise InvalidBytes as `from_json` does.

    Args:
        text: What `to_json` returned.
    """
    about = _content(text).get("about")
    if not isinstance(about, dict):
        raise InvalidBytes("the notes of the network must be a mapping")
    return about


def save(network: BayesianNetwork | Mixture, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
    """Write BIF if ``path`` ends in .bif, else JSON. BIF cannot contain ``about`` and changes names (see to_bif).

    Args:
        network: The model to write.
        path: Where to write; the ending decides the format.
        about: Public notes of plain values.
    """
    path = Path(path)
    text = to_bif(network) if path.suffix.lower() == ".bif" else to_json(network, about)
    path.write_text(text, "utf-8")


def load(path: str | Path) -> BayesianNetwork | Mixture:
    """Read a network from a JSON or BIF file.

    Args:
        path: A file that ends in .bif, or one of JSON.
    """
    path = Path(path)
    text = path.read_text("utf-8")
    return from_bif(text) if path.suffix.lower() == ".bif" else from_json(text)


def _content(text: str | bytes) -> dict[str, Any]:
    if len(text) > _LARGEST_TEXT:
        raise InvalidBytes(f"a network's JSON must be at most {_LARGEST_TEXT} characters long")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidBytes("the network is not valid JSON") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InvalidBytes("this is not a network of panstream")
    if content.get("version") != _VERSION:
        raise InvalidBytes(f"network version {content.get('version')!r} is not known; this release reads {_VERSION}")
    if content.pop("sha256", None) != _digest(content):
        raise InvalidBytes("the checksum does not match: the network is damaged or was edited")
    return content


def _digest(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _lists(value: Any, length: int, kind: type | tuple[type, ...]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == length
        and all(isinstance(sublist, list) and all(isinstance(item, kind) for item in sublist) for sublist in value)
    )


_COMMENT = re.compile(r'("[^"\n]*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
_TOKEN = re.compile(r'"[^"\n]*"|[^\s{}()\[\],;|"]+|[{}()\[\],;|]')


def to_bif(network: BayesianNetwork | Mixture) -> str:
    """Return the network as BIF text, with all digits of its probabilities.

    Args:
        network: The network to write.
    """
    if isinstance(network, Mixture):
        network = network.with_component()
    domain = network.domain
    names = _words(domain.names)
    states = [_words(attribute.labels) for attribute in domain.attributes]
    parts = ["network panstream {\n}\n"]
    for position, attribute in enumerate(domain.attributes):
        parts.append(
            f"variable {names[position]} {{\n"
            f"  type discrete [ {attribute.size} ] {{ {', '.join(states[position])} }};\n"
            f"  property name = {_hex_word(attribute.name)} ;\n"
            f"  property labels = {_hex_word(list(attribute.labels))} ;\n"
            "}\n"
        )
    for position, table in enumerate(network.tables):
        parents = network.parents[position]
        if not parents:
            parts.append(f"probability ( {names[position]} ) {{\n  table {_row(table)};\n}}\n")
            continue
        parent_names = ", ".join(names[parent] for parent in parents)
        lines = [
            f"  ({', '.join(states[parent][code] for parent, code in zip(parents, setting, strict=True))}) "
            f"{_row(table[setting])};\n"
            for setting in itertools.product(*(range(domain.sizes[parent]) for parent in parents))
        ]
        parts.append(f"probability ( {names[position]} | {parent_names} ) {{\n{''.join(lines)}}}\n")
    return "".join(parts)


def from_bif(text: str) -> BayesianNetwork:
    """Read a network of discrete variables from BIF text, or raise InvalidBytes.

    Args:
        text: A document in the Bayesian interchange format.
    """
    try:
        return _BifParser(text).network()
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
        word = next(word for word in candidates if word.lower() not in used)  # pgmpy ignores case
        used.add(word.lower())
        words.append(word)
    return words


def _hex_word(value: str | list[str]) -> str:
    """Return a value as one word of hexadecimal digits, which every BIF reader accepts and ignores."""
    return json.dumps(value).encode().hex()


class _BifParser:
    """A parser of one BIF text, over its tokens; `from_bif` turns its exceptions into InvalidBytes."""

    def __init__(self, text: str) -> None:
        plain = _COMMENT.sub(lambda match: match.group(1) or " ", text)
        self.tokens: Iterator[str] = iter(_TOKEN.findall(plain))
        self.names: dict[str, str] = {}
        self.states: dict[str, list[str]] = {}
        self.labels: dict[str, list[str]] = {}
        self.parents: dict[str, list[str]] = {}
        self.tables: dict[str, NDArray[np.float64]] = {}

    def network(self) -> BayesianNetwork:
        for token in self.tokens:
            if token == "network":
                self._until("{")
                self._until("}")
            elif token == "variable":
                self._variable()
            elif token == "probability":
                self._probability()
            else:
                raise InvalidBytes("the BIF text must consist of network, variable and probability blocks")
        order = list(self.states)
        position = {name: index for index, name in enumerate(order)}
        if not order or set(self.tables) != set(order):
            raise InvalidBytes("the BIF text must have one probability block per variable")
        domain = Domain({self.names[name]: self.labels[name] for name in order})
        parents = tuple(tuple(position[parent] for parent in self.parents[name]) for name in order)
        return BayesianNetwork(domain, parents, tuple(self.tables[name] for name in order))

    def _next(self) -> str:
        return next(self.tokens).strip('"')

    def _until(self, end: str) -> list[str]:
        return list(itertools.takewhile(lambda token: token != end, self.tokens))

    def _variable(self) -> None:
        name = self._next()
        self._until("{")
        properties: dict[str, str] = {}
        while (token := self._next()) != "}":
            line = self._line_of_states(name) if token == "type" else self._until(";")
            if token == "property" and len(line) == 3 and line[1] == "=":
                properties[line[0]] = line[2]
        states = self.states[name]
        self.names[name] = _from_hex_word(properties.get("name"), str) or name
        labels = _from_hex_word(properties.get("labels"), list)
        self.labels[name] = labels if labels and len(labels) == len(states) else states

    def _line_of_states(self, name: str) -> list[str]:
        self._until("{")
        self.states[name] = [token.strip('"') for token in self._until("}") if token != ","]
        return self._until(";")

    def _probability(self) -> None:
        self._until("(")
        head = [token.strip('"') for token in self._until(")") if token not in ("|", ",")]
        name = head[0]
        parents = head[1:]
        sizes = [len(self.states[parent]) for parent in parents]
        table = np.full((*sizes, len(self.states[name])), np.nan)
        self._until("{")
        while (token := self._next()) != "}":
            if token == "(":
                parent_states = [word.strip('"') for word in self._until(")") if word != ","]
                setting = tuple(
                    self.states[parent].index(state) for parent, state in zip(parents, parent_states, strict=True)
                )
                table[setting] = self._numbers()
            elif token == "table":
                flat = np.array(self._numbers())
                # the table form lists the variable's own states slowest
                table[...] = np.moveaxis(flat.reshape(len(self.states[name]), *sizes), 0, -1)
            elif token == "default":
                table[np.isnan(table).all(axis=-1)] = self._numbers()
            else:
                self._until(";")
        self.parents[name] = parents
        self.tables[name] = _normalised(table)

    def _numbers(self) -> list[float]:
        return [float(token) for token in self._until(";") if token != ","]


def _normalised(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows scaled to a sum of 1, since published files round; raise InvalidBytes if one is off by 1%."""
    totals = table.sum(axis=-1, keepdims=True)
    if not np.all(np.abs(totals - 1.0) < 1e-2):
        raise InvalidBytes("the rows of a probability block must sum to 1")
    rows: NDArray[np.float64] = table / totals
    return rows


def _from_hex_word(word: str | None, kind: type) -> Any:
    """Return the value that `_hex_word` wrote, or None for a property of another program."""
    try:
        value = json.loads(bytes.fromhex(word or ""))
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


def seven_attributes() -> BayesianNetwork:
    """Return a published network of six binary attributes and one ternary one, with an entropy of 5.12 bits.

    The thesis draws such a network (Figure 3.3) without printing its tables. This one was built once by
    ``tools/seven_attributes.py``, before any method was run on it, and does not change.

    >>> network = seven_attributes()
    >>> network.domain.sizes, f"{network.entropy():.2f}"
    ((2, 2, 2, 2, 2, 2, 3), '5.12')
    """
    content = _content(
        resources.files("panstream.models.networks").joinpath("seven_attributes.json").read_text("utf-8")
    )
    return _network(Domain.from_dict(content["domain"]), content)
