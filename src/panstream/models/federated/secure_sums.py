"""Secure sums: every holder adds its share of the noise, and masks that cancel only in the sum over all holders.

Two questions. `JoinSum` is free: a holder checks the members, makes a one-time X25519 key and signs it. The analyst
then has public keys only. `SubmitSum` carries the signed keys of all members: the holder counts, adds discrete Gaussian
noise of variance sigma²/(M - t), and for each other member adds or subtracts (by the order of names) a mask that both
derive from their shared secret. One vector is uniform without all others; the sum of all has the noise that one holder
would need, even if t members reveal their own vectors to the analyst. If a member drops out of the second question, the
sum stays masked. A new run draws new noise and is charged again: two sums over different members with the same noise
would differ by one holder's table.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.federated._answers import KeyAnnouncement, TablesAnswer
from panstream.models.federated._messages import digest, list_of, one_of
from panstream.models.federated._questions import CountTables, Natural, RecordQuestion, TablesAsked
from panstream.models.federated._statistics import Statistics
from panstream.models.networks.domain import Domain
from panstream.primitives import validation as checks
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.privacy.composition import zcdp_epsilon
from panstream.privacy.holder_loss import Loss
from panstream.privacy.table_loss import table_sigma

_LABEL = b"panstream secure sum 1"
_COMPUTATIONAL = "computational (X25519, HKDF-SHA256, AES-256-CTR, Ed25519)"
_MIN_MEMBERS = 3  # with two members, each can subtract its own vector and read the other's
_MAX_MEMBERS = 1000
_MIN_NOISE = 3.0  # standard deviation of one member's share, for MARGIN
MARGIN = 1e-9
"""Extra loss of a sum of discrete Gaussians over one of the same variance, as a fraction of rho (Kairouz, Liu, Steinke
2021, §4): with shares of a standard deviation of 3 or more it is below 1e-36."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roster:
    """The members a holder forms sums with: its signing key, their public keys, and how many of them may collude.

    The keys are exchanged between the holders, not through the analyst, who could otherwise invent members.

    Args:
        key: The holder's own signing key.
        members: Public keys of all members by name, its own among them.
        colluders: How many members may collude with the analyst.
    """

    key: Ed25519PrivateKey
    members: Mapping[str, bytes]
    colluders: int = 1

    def __post_init__(self) -> None:
        checks.require_at_least(1, colluders=self.colluders)
        if any(len(public) != 32 for public in self.members.values()):
            raise InvalidParameter("a member's public key must have 32 bytes")

    def problem(self, name: str, question: JoinSum | SubmitSum) -> str | None:
        """Return why the holder ``name`` does not take part in a sum, or None if it does.

        Args:
            question: The question about the sum.
            name: The holder's own name.
        """
        if self.members.get(name) != self.key.public_key().public_bytes_raw():
            return f"the roster must list {name} itself with the public half of its own key"
        unknown = [member for member in question.members if member not in self.members]
        if name not in question.members:
            return "this holder is not a member of the sum"
        if unknown:
            return f"the key of {len(unknown)} members is not pinned here"
        if question.colluders < self.colluders:
            return f"the sum allows for {question.colluders} colluding members, this holder asks for {self.colluders}"
        return None

    def sign(self, opened: str, name: str, key: bytes) -> bytes:
        """Sign a one-time key for the sum with this digest.

        Args:
            opened: Digest of the sum.
            name: The holder's name.
            key: Its one-time key.
        """
        return self.key.sign(_statement(opened, name, key))

    def verify(self, opened: str, name: str, opening: KeyAnnouncement) -> bytes:
        """Return a member's one-time key; raise InvalidParameter unless its pinned key signed it for this sum.

        Args:
            opened: Digest of the sum.
            name: The member's name.
            opening: What the member has sent.
        """
        key = bytes.fromhex(opening.key)
        signature = bytes.fromhex(opening.signature)
        try:
            Ed25519PublicKey.from_public_bytes(self.members[name]).verify(signature, _statement(opened, name, key))
        except InvalidSignature:
            raise InvalidParameter(f"the opening of {name} is not signed by its pinned key") from None
        return key


def _statement(opened: str, name: str, key: bytes) -> bytes:
    return b"\0".join([_LABEL, bytes.fromhex(opened), name.encode()]) + key


_Names = Annotated[tuple[str, ...], list_of(one_of(lambda value: isinstance(value, str) and 0 < len(value) <= 100))]
_Openings = Annotated[
    tuple[KeyAnnouncement, ...],
    list_of(lambda pair: KeyAnnouncement.read(dict(zip(("key", "signature"), pair, strict=True)))),
    lambda openings: [[opening.key, opening.signature] for opening in openings],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum(RecordQuestion):
    """A sum, its members and how many of them may collude."""

    tables: TablesAsked
    members: _Names
    colluders: Natural

    def __post_init__(self) -> None:
        members = len(self.members)
        if list(self.members) != sorted(set(self.members)) or not _MIN_MEMBERS <= members <= _MAX_MEMBERS:
            raise InvalidParameter(f"members must be {_MIN_MEMBERS} to {_MAX_MEMBERS} names in order, each once")
        if not 1 <= self.colluders <= members - 2:
            raise InvalidParameter(f"colluders must be in 1..{members - 2}, got colluders={self.colluders}")
        if not self.tables:
            raise InvalidParameter("tables must be at least one")
        if min(noise_share(table.budget, members, self.colluders).sigma for table in self.tables) < _MIN_NOISE:
            raise InvalidParameter(
                f"a member's part of the noise must have a standard deviation of {_MIN_NOISE:g} or more: "
                "ask for a smaller budget"
            )

    def check(self, domain: Domain) -> None:
        """Refuse tables that do not fit the domain."""
        CountTables(run=self.run, domain=self.domain, noise="gaussian", tables=self.tables).check(domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSum(_Sum):
    """Ask a holder to take part in a sum and to announce a one-time key. Free."""

    kind = "open-sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSum(_Sum):
    """Ask for the masked vector, given all key announcements in the order of the members."""

    kind = "close-sum"

    openings: _Openings

    def __post_init__(self) -> None:
        _Sum.__post_init__(self)
        if len(self.openings) != len(self.members):
            raise InvalidParameter("there must be one opening per member")
        if len({opening.key for opening in self.openings}) != len(self.openings):
            raise InvalidParameter("two openings have the same key")

    @classmethod
    def after(cls, join: JoinSum, openings: Iterable[KeyAnnouncement]) -> SubmitSum:
        """Return the second question of the sum that ``join`` opened."""
        return cls(**_common_fields(join), openings=tuple(openings))

    @property
    def opened(self) -> str:
        """Return the digest of the `JoinSum` that opened the sum."""
        return digest(JoinSum(**_common_fields(self)).write())

    def loss(self) -> Loss:
        """Return the sum of the tables' budgets, plus ``MARGIN`` since sums of discrete Gaussians are not Gaussian.

        If all other members collude, the holder's own noise is all that is left: variance sigma²/(M - t), so M - t
        times the loss.
        """
        parts = len(self.members) - self.colluders
        return Loss.gaussian([table.budget * (1 + MARGIN) for table in self.tables], parts)

    @property
    def assumption(self) -> str:
        """Return how many members may collude before ``loss`` is exceeded."""
        return collusion_bound(len(self.members), self.colluders)

    def draw(self, statistics: Statistics, rng: NoiseSource) -> TablesAnswer:
        """Return the counts with this holder's share of the noise. They must be masked before they are sent."""
        # Copies: the exact counts are cached for later questions, and noise in them would be reused.
        noisy = [table.counts(statistics).copy() for table in self.tables]
        for table, counts in zip(self.tables, noisy, strict=True):
            distribution = noise_share(table.budget, len(self.members), self.colluders)
            rng.add_discrete_gaussian(counts.reshape(-1), distribution)
        return TablesAnswer(tables=tuple(noisy))

    def masked(self, tables: TablesAnswer, name: str, secret: bytes, roster: Roster) -> TablesAnswer:
        """Return the vector that is sent: of every pair of members, one adds and one subtracts the same mask."""
        opened = self.opened
        session = hashlib.sha256(self.write()).digest()
        pairs = zip(self.members, self.openings, strict=True)
        keys = {member: roster.verify(opened, member, opening) for member, opening in pairs}
        private = X25519PrivateKey.from_private_bytes(secret)
        if keys[name] != private.public_key().public_bytes_raw():
            raise InvalidParameter("this holder's own opening is not among the openings")
        flat = np.concatenate([table.reshape(-1) for table in tables.tables]).view(np.uint64)
        for other, public in keys.items():  # arithmetic modulo 2^64: adding a uniform mask makes each word uniform
            if other != name:
                mask = _mask(_shared(private, other, public), session, name, other, flat.size)
                flat = flat + mask if name < other else flat - mask
        ends = np.cumsum([table.size for table in tables.tables])[:-1]
        pieces = zip(np.split(flat.view(np.int64), ends), tables.tables, strict=True)
        return TablesAnswer(tables=tuple(piece.reshape(table.shape) for piece, table in pieces))


def _common_fields(question: _Sum) -> dict[str, Any]:
    return {field: getattr(question, field) for field in ("run", "domain", "tables", "members", "colluders")}


def noise_share(budget: float, members: int, colluders: int) -> DiscreteGaussian:
    """Return one member's noise, of variance sigma²/(M - t): the M - t honest members together reach sigma²."""
    return DiscreteGaussian.at_least(table_sigma(budget) / math.sqrt(members - colluders))


def collusion_bound(members: int, colluders: int) -> str:
    """Return the assumption about the members of one sum.

    >>> collusion_bound(12, 4)
    'up to 4 of 12 holders collude with the analyst'
    """
    return f"up to {colluders} of {members} holders collude with the analyst"


def sums_assumption(bounds: Iterable[str], worst_epsilon: float) -> str:
    """Return the assumption of a claim that includes secure sums, with its epsilon if all other holders collude."""
    limits = " or ".join(dict.fromkeys(bounds))
    return f"{_COMPUTATIONAL}; {limits}; if all others collude, epsilon is {worst_epsilon:.3g}"


def run_assumption(rho: float, delta: float, members: int, declared_colluders: int | None) -> str:
    """Return the assumption of a run whose secure sums cost ``rho``."""
    colluders = declared_colluders or default_colluders(members)
    worst_epsilon = zcdp_epsilon(rho * (members - colluders), delta)
    return sums_assumption([collusion_bound(members, colluders)], worst_epsilon)


def default_colluders(members: int) -> int:
    """Return the default number of colluders that a sum tolerates: a third of its members, and at least one."""
    return max(1, members // 3)


def _shared(private: X25519PrivateKey, other: str, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of small order, which makes the shared secret public
        raise InvalidParameter(f"the one-time key of {other} is not a valid one") from None


def _mask(secret: bytes, session: bytes, one: str, other: str, words: int) -> NDArray[np.uint64]:
    pair = b"\0".join(member.encode() for member in sorted((one, other)))
    key = HKDF(SHA256(), 32, session, _LABEL + b"\0" + pair).derive(secret)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * words)), np.uint64)


def new_key_announcement(question: JoinSum, name: str, roster: Roster) -> tuple[bytes, KeyAnnouncement]:
    """Return a one-time X25519 secret and the signed announcement of its public half."""
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    signature = roster.sign(digest(question.write()), name, public)
    return private.private_bytes_raw(), KeyAnnouncement(key=public.hex(), signature=signature.hex())
