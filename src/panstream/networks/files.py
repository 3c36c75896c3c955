"""A network as a file: JSON with a version and a checksum, and BIF for other programs.

The JSON keeps everything, every probability to its last bit. ``about`` may carry public notes, such as the privacy
claim that the network was learned under.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from panstream.errors import InvalidBytes
from panstream.networks.bif import from_bif, to_bif
from panstream.networks.domain import Domain
from panstream.networks.network import BayesianNetwork

__all__ = ["from_json", "load", "read_about", "save", "to_json"]

_FORMAT = "panstream-network"
_VERSION = 1
_LARGEST_TEXT = 1 << 30


def to_json(network: BayesianNetwork, about: Mapping[str, Any] | None = None) -> str:
    """Return the network as JSON text; ``about`` holds public notes of plain values."""
    names = network.domain.names
    content: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "about": dict(about or {}),
        "domain": network.domain.to_plain(),
        "parents": [[names[each] for each in family] for family in network.parents],
        "tables": [table.ravel().tolist() for table in network.tables],
    }
    content["sha256"] = _digest(content)
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str | bytes) -> BayesianNetwork:
    """Read a network that :func:`to_json` wrote; raise InvalidBytes for anything foreign, damaged or too new."""
    content = _content(text)
    domain = Domain.from_plain(content.get("domain"))
    names: Any = content.get("parents")
    tables: Any = content.get("tables")
    if not (_lists(names, len(domain), str) and _lists(tables, len(domain), (int, float))):
        raise InvalidBytes("the network must have one list of parents and one table per attribute")
    try:
        parents = tuple(tuple(domain.position(name) for name in family) for family in names)
        shapes = [tuple(domain.sizes[each] for each in (*family, at)) for at, family in enumerate(parents)]
        arrays = tuple(np.array(flat, np.float64).reshape(shape) for flat, shape in zip(tables, shapes, strict=True))
        return BayesianNetwork(domain, parents, arrays)
    except (ValueError, OverflowError) as error:  # InvalidParameter is a ValueError
        raise InvalidBytes(f"the network is damaged: {error}") from None


def read_about(text: str | bytes) -> dict[str, Any]:
    """Return the public notes of a network's JSON."""
    about = _content(text).get("about")
    if not isinstance(about, dict):
        raise InvalidBytes("the notes of the network must be a mapping")
    return about


def save(network: BayesianNetwork, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
    """Write ``path`` as BIF if it ends so, else as JSON. BIF has no place for ``about`` and renames (see to_bif)."""
    path = Path(path)
    text = to_bif(network) if path.suffix.lower() == ".bif" else to_json(network, about)
    path.write_text(text, "utf-8")


def load(path: str | Path) -> BayesianNetwork:
    """Read a network from a JSON or BIF file."""
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
        raise InvalidBytes("the checksum does not fit: the network is damaged or was edited")
    return content


def _digest(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _lists(value: Any, length: int, kind: type | tuple[type, ...]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == length
        and all(isinstance(each, list) and all(isinstance(item, kind) for item in each) for each in value)
    )
