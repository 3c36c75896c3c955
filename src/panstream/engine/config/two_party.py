"""``[two_party]``: addresses and certificates of the two machines that hold shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from panstream.errors import ConfigError
from panstream.primitives.toml_config import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPartyConfig:
    """The names in the two machines' certificates, and the dealer's own certificate."""

    names: tuple[str, str]
    certificate: Path
    key: Path
    authority: Path


def cells_of(top: Section) -> Literal["exact", "noisy"]:
    """Read ``cells``: whether the shared state is exact, or noisy as on one machine."""
    cells = top.optional("two_party", dict, {}).get("cells", "exact")
    if cells not in ("exact", "noisy"):
        raise ConfigError(f'[two_party] cells must be "exact" or "noisy", got {cells!r}')
    return "noisy" if cells == "noisy" else "exact"


def read_two_party(top: Section, machines: tuple[str, ...], base: Path) -> TwoPartyConfig | None:
    """Read ``[two_party]``; None without machines. Raise ConfigError unless there are two different machines."""
    if not machines:
        return None
    if len(machines) != 2 or machines[0] == machines[1]:
        raise ConfigError("[stream] machines must be two different addresses, that of the first machine (a) first")
    files = ("certificate", "key", "authority")
    section = Section("[two_party]", top.required("two_party", dict), {"names", "cells", *files})
    names = section.required("names", list)
    if len(names) != 2 or names[0] == names[1] or not all(isinstance(name, str) for name in names):
        raise ConfigError("[two_party] names must be the two different names that the machines' certificates carry")
    paths = {name: base / section.required(name, str) for name in files}
    return TwoPartyConfig(names=(names[0], names[1]), **paths)
