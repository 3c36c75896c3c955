"""Secure sums: every holder adds its share of the noise, and a mask that can be removed from the sum only.

`JoinSum` is free: a holder checks the members, makes a one-time X25519 key and signs it. The analyst then has public
keys only. `SubmitSum` carries the signed keys of all members: the holder counts, adds discrete Gaussian noise of
variance sigma²/(M - t - d) and a mask that it derives from its shared secrets with the other members. One vector is
uniform without the others; the sum has the noise that one holder would need, even if t members reveal their own vectors
to the analyst and d others drop out.

With ``dropouts = 0`` the masks of all members cancel. Otherwise `panstream.models.federated.sum_reading` removes the
sum of the masks of those that did not drop out. If more drop out, the sum stays masked. A new run draws new noise and
is charged again: two sums over different members with the same noise would differ by one holder's table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.federated._answers import KeyAnnouncement, TablesAnswer
from panstream.models.federated._mask_code import combine, encode, from_field, stream, to_field
from panstream.models.federated._messages import LARGEST_MESSAGE, digest, list_of, one_of
from panstream.models.federated._questions import CountTables, Natural, RecordQuestion, TablesAsked
from panstream.models.federated._statistics import Statistics
from panstream.models.networks.domain import Domain
from panstream.primitives import validation as checks
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.privacy.holder_loss import Loss
from panstream.privacy.table_loss import table_sigma

_LABEL = b"panstream secure sum 1"
_COMPUTATIONAL = "computational (X25519, HKDF-SHA256, AES-256-CTR, Ed25519)"
MIN_MEMBERS = 3
"""With two members, each could subtract its own vector and read the other's."""
_MAX_MEMBERS = 1000
_MAX_WORDS = (LARGEST_MESSAGE - (1 << 20)) // 8
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

    def problem(self, name: str, question: SumQuestion) -> str | None:
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
        if not self.is_signed(name, _statement(opened, name, key), opening.signature):
            raise InvalidParameter(f"the opening of {name} is not signed by its pinned key")
        return key

    def is_signed(self, name: str, statement: bytes, signature: str) -> bool:
        """Return whether a member's pinned key signed ``statement``.

        Args:
            name: The member's name.
            statement: The signed bytes.
            signature: The signature in hexadecimal.
        """
        try:
            Ed25519PublicKey.from_public_bytes(self.members[name]).verify(bytes.fromhex(signature), statement)
        except InvalidSignature:
            return False
        return True


def _statement(opened: str, name: str, key: bytes) -> bytes:
    return b"\0".join([_LABEL, bytes.fromhex(opened), name.encode()]) + key


Names = Annotated[tuple[str, ...], list_of(one_of(lambda value: isinstance(value, str) and 0 < len(value) <= 100))]
_Openings = Annotated[
    tuple[KeyAnnouncement, ...],
    list_of(lambda pair: KeyAnnouncement.read(dict(zip(("key", "signature"), pair, strict=True)))),
    lambda openings: [[opening.key, opening.signature] for opening in openings],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumQuestion(RecordQuestion):
    """A sum, its members, how many of them may collude with the analyst and how many others may drop out."""

    tables: TablesAsked
    members: Names
    colluders: Natural
    dropouts: Natural

    def __post_init__(self) -> None:
        members = len(self.members)
        if list(self.members) != sorted(set(self.members)) or not MIN_MEMBERS <= members <= _MAX_MEMBERS:
            raise InvalidParameter(f"members must be {MIN_MEMBERS} to {_MAX_MEMBERS} names in order, each once")
        if not 1 <= self.colluders <= members - 2:
            raise InvalidParameter(f"colluders must be in 1..{members - 2}, got colluders={self.colluders}")
        if self.dropouts > members - 2 - self.colluders:
            raise InvalidParameter(
                f"of {members} members two must be left without {self.colluders} colluders and the dropouts, "
                f"got dropouts={self.dropouts}"
            )
        if not self.tables:
            raise InvalidParameter("tables must be at least one")
        if min(noise_share(table.budget, self.parts).sigma for table in self.tables) < _MIN_NOISE:
            raise InvalidParameter(
                f"a member's part of the noise must have a standard deviation of {_MIN_NOISE:g} or more: "
                "ask for a smaller budget"
            )

    @property
    def parts(self) -> int:
        """Return how many parts of the noise are enough for the claim: those of the members that are left."""
        return noise_parts(len(self.members), self.colluders, self.dropouts)

    def check(self, domain: Domain) -> None:
        """Refuse tables that do not fit the domain, and masks that are too long."""
        CountTables(run=self.run, domain=self.domain, noise="gaussian", tables=self.tables).check(domain)
        cells = sum(math.prod(table.shape(domain)) for table in self.tables)
        if cells * (self.dropouts + 1) > _MAX_WORDS:
            raise InvalidParameter(f"{cells} cells are too many to be sent with {self.dropouts} check vectors")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSum(SumQuestion):
    """Ask a holder to take part in a sum and to announce a one-time key. Free."""

    kind = "open-sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSum(SumQuestion):
    """A sum with all key announcements, in the order of the members."""

    openings: _Openings

    def __post_init__(self) -> None:
        SumQuestion.__post_init__(self)
        if len(self.openings) != len(self.members):
            raise InvalidParameter("there must be one opening per member")
        if len({opening.key for opening in self.openings}) != len(self.openings):
            raise InvalidParameter("two openings have the same key")

    @property
    def opened(self) -> str:
        """Return the digest of the `JoinSum` that opened the sum."""
        return digest(JoinSum(**question_fields(self, JoinSum)).write())

    @property
    def closed(self) -> str:
        """Return the digest of the `SubmitSum` that closed it."""
        return digest(SubmitSum(**question_fields(self, SubmitSum)).write())

    def vectors(self, name: str, secret: bytes, roster: Roster, size: int) -> dict[str, PairVectors]:
        """Return what the holder ``name`` has in common with every member, itself included.

        Args:
            name: The holder's own name.
            secret: Its one-time key.
            roster: The members' pinned keys.
            size: Number of cells.

        Raises:
            InvalidParameter: An opening is not signed by its pinned key, or it is not a usable key.
        """
        opened = self.opened
        session = bytes.fromhex(self.closed)
        pairs = zip(self.members, self.openings, strict=True)
        keys = {member: roster.verify(opened, member, opening) for member, opening in pairs}
        private = X25519PrivateKey.from_private_bytes(secret)
        if keys[name] != private.public_key().public_bytes_raw():
            raise InvalidParameter("this holder's own opening is not among the openings")
        shared = {
            member: secret if member == name else _shared(private, member, public) for member, public in keys.items()
        }
        return {member: PairVectors(shared[member], session, name, member, size) for member in self.members}


@dataclass(frozen=True, slots=True)
class PairVectors:
    """The two vectors that both of a pair of members can derive."""

    secret: bytes
    session: bytes
    name: str
    other: str
    size: int

    @property
    def sent(self) -> NDArray[np.uint64]:
        """Return the vector in the holder's own mask."""
        return self._stream(self.name, self.other)

    @property
    def received(self) -> NDArray[np.uint64]:
        """Return the vector in the other member's mask."""
        return self._stream(self.other, self.name)

    def _stream(self, one: str, other: str) -> NDArray[np.uint64]:
        label = b"\0".join([_LABEL, one.encode().hex().encode(), other.encode().hex().encode()])
        return stream(HKDF(SHA256(), 32, self.session, label).derive(self.secret), self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSum(ClosedSum):
    """Ask for the masked vector, given all key announcements in the order of the members."""

    kind = "close-sum"

    @classmethod
    def after(cls, join: JoinSum, openings: Iterable[KeyAnnouncement]) -> SubmitSum:
        """Return the second question of the sum that ``join`` opened."""
        return cls(**question_fields(join, JoinSum), openings=tuple(openings))

    def loss(self) -> Loss:
        """Return the sum of the tables' budgets, plus ``MARGIN`` since sums of discrete Gaussians are not Gaussian.

        If all other members collude, the holder's own noise is all that is left: variance sigma²/(M - t - d), so
        M - t - d times the loss.
        """
        return Loss.gaussian([table.budget * (1 + MARGIN) for table in self.tables], self.parts)

    @property
    def assumption(self) -> str:
        """Return how many members may collude before ``loss`` is exceeded."""
        return collusion_bound(len(self.members), self.colluders)

    def draw(self, statistics: Statistics, rng: NoiseSource) -> TablesAnswer:
        """Return the counts with this holder's share of the noise. They must be masked before they are sent."""
        # Copies: the exact counts are cached for later questions, and noise in them would be reused.
        noisy = [table.counts(statistics).copy() for table in self.tables]
        for table, counts in zip(self.tables, noisy, strict=True):
            distribution = noise_share(table.budget, self.parts)
            rng.add_discrete_gaussian(counts.reshape(-1), distribution)
        return TablesAnswer(tables=tuple(noisy))

    def masked(self, tables: TablesAnswer, name: str, secret: bytes, roster: Roster) -> TablesAnswer:
        """Return the vector that is sent, masked, and after it the check vectors of the mask.

        Args:
            tables: The counts with this holder's share of the noise.
            name: The holder's own name.
            secret: Its one-time key.
            roster: The members' pinned keys.
        """
        flat = np.concatenate([table.reshape(-1) for table in tables.tables])
        pairs = self.vectors(name, secret, roster, flat.size)
        if self.dropouts:
            *checks, mask = encode((pair.sent for pair in pairs.values()), self.dropouts, flat.size)
        else:
            others = [pair for pair in pairs.values() if pair.other != name]
            checks = []
            mask = combine((term for pair in others for term in ((1, pair.sent), (-1, pair.received))), flat.size)
        masked = combine([(1, to_field(flat)), (1, mask)], flat.size)
        return TablesAnswer(tables=(masked.astype(np.int64), *(check.astype(np.int64) for check in checks)))


def split_cells(flat: NDArray[np.uint64], shapes: Iterable[tuple[int, ...]]) -> tuple[NDArray[np.int64], ...]:
    """Return an unmasked sum as tables.

    Args:
        flat: All cells, as elements of the field.
        shapes: The shapes of the tables.
    """
    shapes = list(shapes)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    pieces = zip(np.split(from_field(flat), ends), shapes, strict=True)
    return tuple(piece.reshape(shape) for piece, shape in pieces)


def question_fields(question: SumQuestion, kind: type[SumQuestion]) -> dict[str, Any]:
    """Return the fields of ``kind`` that a question about the same sum has.

    Args:
        question: The question.
        kind: The type of another question, with the same fields or fewer.
    """
    return {field: getattr(question, field) for field in kind.__dataclass_fields__}


def noise_parts(members: int, colluders: int, dropouts: int) -> int:
    """Return how many members' parts of the noise make up what one holder would need: M - t - d."""
    return members - colluders - dropouts


def noise_share(budget: float, parts: int) -> DiscreteGaussian:
    """Return one member's noise, of variance sigma²/parts: that many members together reach sigma²."""
    return DiscreteGaussian.at_least(table_sigma(budget) / math.sqrt(parts))


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


def default_colluders(members: int) -> int:
    """Return the default number of colluders that a sum tolerates: a third of its members, and at least one."""
    return max(1, members // 3)


def default_dropouts(members: int) -> int:
    """Return the default number of dropouts that a sum tolerates: one of five members or more."""
    return 1 if members >= 5 else 0


def _shared(private: X25519PrivateKey, other: str, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of small order, which makes the shared secret public
        raise InvalidParameter(f"the one-time key of {other} is not a valid one") from None


def new_key_announcement(question: JoinSum, name: str, roster: Roster) -> tuple[bytes, KeyAnnouncement]:
    """Return a one-time X25519 secret and the signed announcement of its public half."""
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    signature = roster.sign(digest(question.write()), name, public)
    return private.private_bytes_raw(), KeyAnnouncement(key=public.hex(), signature=signature.hex())
