"""Configuration files of holders and of runs. Every key is checked; an unknown one is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panstream.errors import InvalidParameter
from panstream.federated.certificates import Identity
from panstream.federated.gaussian import FederatedTree, GaussianSums, IndependentMarginals
from panstream.federated.thesis import MajorityVoting, NoisyModel, NoisyStatistics

__all__ = ["METHODS", "HolderConfig", "Member", "RunConfig", "read_holder", "read_run"]

METHODS: dict[str, Any] = {
    "tree": FederatedTree,
    "gaussian-sums": GaussianSums,
    "independent": IndependentMarginals,
    "noisy-statistics": NoisyStatistics,
    "majority-voting": MajorityVoting,
    "noisy-model": NoisyModel,
}
_PURE = ("noisy-statistics", "majority-voting", "noisy-model")


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderConfig:
    """One holder: its table, its budget, its ledger, where it listens and who may ask."""

    name: str
    data: Path
    domain: Path
    epsilon: float
    delta: float
    ledger: Path
    identity: Identity | None
    analysts: tuple[str, ...]
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A holder as a run sees it: at a url, or with data that a process started by the run serves."""

    name: str
    url: str | None = None
    data: Path | None = None
    epsilon: float = 0.0
    delta: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What to learn from whom."""

    method: Any
    domain: Path
    members: tuple[Member, ...]
    minimum: int
    run: str | None
    timeout: float
    test: Path | None
    identity: Identity | None


def read_holder(path: Path) -> HolderConfig:
    """Read the file of ``panstream holder``."""
    table = _Section(_load(path), "the file")
    holder = _Section(table.take("holder", dict), "[holder]")
    table.done()
    folder = path.parent
    config = HolderConfig(
        name=holder.take("name", str),
        data=folder / holder.take("data", str),
        domain=folder / holder.take("domain", str),
        epsilon=holder.number("epsilon"),
        delta=holder.number("delta", 0.0),
        ledger=folder / holder.take("ledger", str),
        identity=_identity(holder, folder) if holder.has("certificate") else None,
        analysts=tuple(holder.take("analysts", list, [])),
        host=holder.take("host", str, "127.0.0.1"),
        port=holder.take("port", int, 0),
    )
    holder.done()
    return config


def read_run(path: Path) -> RunConfig:
    """Read the file of ``panstream federate``."""
    table = _Section(_load(path), "the file")
    run = _Section(table.take("federation", dict), "[federation]")
    holders = table.take("holder", list)
    table.done()
    folder = path.parent
    test = run.take("test", str, None)
    method = _method(run)
    remote = any("url" in holder for holder in holders if isinstance(holder, dict))
    config = RunConfig(
        method=method,
        domain=folder / run.take("domain", str),
        members=tuple(_member(holder, folder) for holder in holders),
        minimum=run.take("minimum", int, len(holders)),
        run=run.take("run", str, None),
        timeout=run.number("timeout", 120.0),
        test=None if test is None else folder / test,
        identity=_identity(run, folder) if remote else None,
    )
    run.done()
    if len({member.name for member in config.members}) != len(config.members) or not config.members:
        raise InvalidParameter("[[holder]] must be given at least once, each with a name of its own")
    return config


class _Section:
    """One table of the file: keys are taken, and what is left over is refused."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = dict(values)
        self._where = where

    def take(self, key: str, kind: type, default: Any = ...) -> Any:
        if key not in self._values:
            if default is ...:
                raise InvalidParameter(f"{self._where} must have {key}")
            return default
        value = self._values.pop(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidParameter(f"{key} in {self._where} must be of type {kind.__name__}")
        return value

    def has(self, key: str) -> bool:
        return key in self._values

    def number(self, key: str, default: Any = ...) -> float:
        if key not in self._values and default is not ...:
            return float(default)
        value = self._values.get(key)
        self.take(key, float if isinstance(value, float) else int)
        assert isinstance(value, int | float)
        return float(value)

    def done(self) -> None:
        if self._values:
            raise InvalidParameter(f"{self._where} has the unknown key {min(self._values)!r}")


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidParameter(f"the configuration cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"the configuration is not valid TOML: {error}") from None


def _identity(section: _Section, folder: Path) -> Identity:
    return Identity(
        certificate=folder / section.take("certificate", str),
        key=folder / section.take("key", str),
        authority=folder / section.take("authority", str),
    )


def _method(run: _Section) -> Any:
    name = run.take("method", str, "tree")
    if name not in METHODS:
        raise InvalidParameter(f"method must be one of {', '.join(METHODS)}, got method={name!r}")
    given: dict[str, Any] = {"epsilon": run.number("epsilon")}
    delta = run.number("delta", 0.0)
    degree = run.take("degree", int, None)
    if delta or name not in _PURE:
        given["delta"] = delta
    if degree is not None:
        given["degree"] = degree
    try:
        return METHODS[name](**given)
    except TypeError:
        raise InvalidParameter(f"method {name!r} takes no {'degree' if degree is not None else 'delta'}") from None


def _member(values: Any, folder: Path) -> Member:
    if not isinstance(values, dict):
        raise InvalidParameter("[[holder]] must be a table")
    section = _Section(values, "[[holder]]")
    name, url, data = section.take("name", str), section.take("url", str, None), section.take("data", str, None)
    if (url is None) == (data is None):
        raise InvalidParameter("[[holder]] must have either url or data")
    member = Member(
        name=name,
        url=url,
        data=None if data is None else folder / data,
        epsilon=section.number("epsilon") if url is None else 0.0,
        delta=section.number("delta", 0.0) if url is None else 0.0,
    )
    section.done()
    return member
