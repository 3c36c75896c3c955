"""Read the TOML files of ``panstream holder`` and ``panstream federate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panstream.errors import ConfigError, InvalidParameter, translate_errors
from panstream.models.federated.automatic_method import AutomaticMethod
from panstream.models.federated.federated_pairs import FederatedPairs
from panstream.models.federated.gaussian_methods import FederatedTree, GaussianSums, IndependentMarginals
from panstream.models.federated.holder import Holder
from panstream.models.federated.secure_sums import Roster
from panstream.models.federated.thesis_methods import (
    AverageScores,
    DistributedParameters,
    MajorityVoting,
    NoisyModel,
    NoisyStatistics,
)
from panstream.models.networks.domain import Domain
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.records import Records
from panstream.models.networks.serialization import load as load_network
from panstream.primitives.mutual_tls import Identity
from panstream.primitives.signing import read_signing_key
from panstream.primitives.toml_config import Section, load_config_file
from panstream.privacy.composition import per_record_epsilon

METHODS: dict[str, Any] = {
    "automatic": AutomaticMethod,
    "pairs": FederatedPairs,
    "tree": FederatedTree,
    "gaussian-sums": GaussianSums,
    "independent": IndependentMarginals,
    "noisy-statistics": NoisyStatistics,
    "majority-voting": MajorityVoting,
    "noisy-model": NoisyModel,
    "average-scores": AverageScores,
    "distributed-parameters": DistributedParameters,
}
_IDENTITY = ("certificate", "key", "authority")
_ROSTER = ("signing_key", "members", "colluders")
METHOD_OPTIONS: dict[str, type] = {
    "degree": int,
    "secure": bool,
    "colluders": int,
    "dropouts": int,
    "clip_at_holder": bool,
    "split": float,
    "average": str,
}
PURE = ("noisy-statistics", "majority-voting", "noisy-model", "average-scores", "distributed-parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderConfig:
    """One holder: its table, budget and ledger, the address it listens on and the analysts that may ask."""

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
    roster: Roster | None

    @classmethod
    def read(cls, path: Path) -> HolderConfig:
        """Read the file of ``panstream holder``; raise ConfigError for unknown keys and wrong types."""
        folder = path.parent
        table = Section("config file", load_config_file(path), {"holder"})
        allowed_keys = {*cls.__dataclass_fields__, *_IDENTITY, *_ROSTER} - {"identity", "roster"}
        holder = Section("[holder]", table.required("holder", dict), allowed_keys)
        return cls(
            name=holder.required("name", str),
            data=folder / holder.required("data", str),
            domain=folder / holder.required("domain", str),
            epsilon=holder.required("epsilon", float),
            delta=holder.optional("delta", float, 0.0),
            ledger=folder / holder.required("ledger", str),
            identity=_identity(holder, folder) if any(map(holder.has, _IDENTITY)) else None,
            analysts=tuple(holder.optional("analysts", list, [])),
            host=holder.optional("host", str, "127.0.0.1"),
            port=holder.optional("port", int, 0),
            roster=_roster(holder, folder) if any(map(holder.has, _ROSTER)) else None,
        )

    def open(self) -> Holder:
        """Read the table, open the ledger and return the holder, which the caller closes."""
        records = Records.load(self.data, Domain.load(self.domain))
        return Holder(
            self.name, records, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger, roster=self.roster
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderAddress:
    """A holder of a run: reached at ``url``, or started by the run as a local process that serves ``data``."""

    name: str
    url: str | None = None
    data: Path | None = None
    epsilon: float = 0.0
    delta: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One federated run: the method with its budget, the domain and the holders to ask.

    With ``contributions`` a person has at most this many records at all holders together, and ``epsilon`` is for all of
    them; the method has the epsilon of one record.
    """

    method: Any
    epsilon: float  # of a person, if ``contributions`` is given, else of a record
    domain: Path
    structure: Path | None = None
    contributions: int | None = None
    members: tuple[HolderAddress, ...]
    minimum: int
    run: str | None
    timeout: float
    test: Path | None
    identity: Identity | None

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Read the file of ``panstream federate``; raise ConfigError for unknown keys and wrong types."""
        folder = path.parent
        table = Section("config file", load_config_file(path), {"federation", "holder"})
        members = tuple(_member(holder, folder) for holder in table.required("holder", list))
        remote = any(member.url is not None for member in members)
        fields = set(cls.__dataclass_fields__) - {"members", "identity"}
        allowed_keys = {*fields, "epsilon", "delta", *METHOD_OPTIONS, *(_IDENTITY if remote else ())}
        run = Section("[federation]", table.required("federation", dict), allowed_keys)
        if len({member.name for member in members}) != len(members) or not members:
            raise ConfigError("[[holder]] must be given at least once, each with a name of its own")
        test = run.optional("test", str)
        structure = run.optional("structure", str)
        return cls(
            method=_method(run, folder),
            epsilon=run.required("epsilon", float),
            contributions=run.optional("contributions", int),
            domain=folder / run.required("domain", str),
            structure=None if structure is None else folder / structure,
            members=members,
            minimum=run.optional("minimum", int, len(members)),
            run=run.optional("run", str),
            timeout=run.optional("timeout", float, 120.0),
            test=None if test is None else folder / test,
            identity=_identity(run, folder) if remote else None,
        )


def _roster(section: Section, folder: Path) -> Roster:
    try:
        keys = {name: bytes.fromhex(key) for name, key in section.required("members", dict).items()}
    except (TypeError, ValueError):
        raise ConfigError("[holder.members] must give every member's public key as 64 hexadecimal digits") from None
    key = read_signing_key(folder / section.required("signing_key", str))
    return Roster(key=key, members=keys, colluders=section.optional("colluders", int, 1))


def _identity(section: Section, folder: Path) -> Identity:
    certificate, key, authority = (folder / section.required(name, str) for name in _IDENTITY)
    return Identity(certificate=certificate, key=key, authority=authority)


def _method(run: Section, folder: Path) -> Any:
    name = run.optional("method", str, "automatic")
    if name not in METHODS:
        raise ConfigError(f"method must be one of {', '.join(METHODS)}, got method={name!r}")
    options: dict[str, Any] = {"epsilon": run.required("epsilon", float)}
    delta = run.optional("delta", float, 0.0)
    if delta or name not in PURE:
        options["delta"] = delta
    contributions = run.optional("contributions", int, 1)
    options["epsilon"] = translate_errors(
        lambda: per_record_epsilon(options["epsilon"], delta, contributions), InvalidParameter, ConfigError
    )
    options |= {key: run.optional(key, kind) for key, kind in METHOD_OPTIONS.items() if run.has(key)}
    if name == "distributed-parameters":
        if not run.has("structure"):
            raise ConfigError("method 'distributed-parameters' needs structure, a file of a network")
        options["parents"] = read_parents(folder / run.required("structure", str), folder / run.required("domain", str))
    elif run.has("structure"):
        raise ConfigError(f"method {name!r} takes no structure: it learns one")
    surplus = next((key for key in options if key not in METHODS[name].__dataclass_fields__), "delta")
    return translate_errors(
        lambda: METHODS[name](**options), TypeError, lambda _: ConfigError(f"method {name!r} takes no {surplus}")
    )


def read_parents(file: Path, domain: Path) -> tuple[tuple[int, ...], ...]:
    """Return the structure of a stored network over the domain of a run.

    Raises:
        ConfigError: The file holds a mixture, or a network of other attributes.
    """
    network = load_network(file)
    if isinstance(network, Mixture):
        raise ConfigError("structure must be the file of a network, not of a mixture of trees")
    if network.domain.names != Domain.load(domain).names:
        raise ConfigError("structure must be a network of the attributes in domain, in the same order")
    return network.parents


def _member(values: Any, folder: Path) -> HolderAddress:
    is_remote = isinstance(values, dict) and "url" in values and "data" not in values
    section = Section("[[holder]]", values, ("name", "url") if is_remote else HolderAddress.__dataclass_fields__)
    url = section.optional("url", str)
    data = section.optional("data", str)
    if (url is None) == (data is None):
        raise ConfigError("[[holder]] must have either url or data")
    return HolderAddress(
        name=section.required("name", str),
        url=url,
        data=None if data is None else folder / data,
        epsilon=section.required("epsilon", float) if url is None else 0.0,
        delta=section.optional("delta", float, 0.0) if url is None else 0.0,
    )
