"""X25519 key agreement between the two machines, with new keys in every round; the dealer never sees them."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from panstream.errors import TwoPartyError
from panstream.primitives.memory.scratch import wipe_bytes

_LABEL = b"panstream two machines 1\0"


class KeyAgreement:
    """One side of an X25519 exchange; its private key is only in this object, and OpenSSL wipes it."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw().hex()

    def key(self, other: str, both: str, about: bytes) -> NDArray[np.uint8]:
        """Derive the common key with HKDF-SHA256.

        Args:
            other: The other side's public key, in hexadecimal.
            both: The first machine's public key, then the second's: the salt.
            about: Public facts that bind the key to this round.

        Raises:
            TwoPartyError: If ``other`` is not a public key.
        """
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
            salt = bytes.fromhex(both)
        except ValueError:
            raise TwoPartyError("the other machine sent no key") from None
        derived = HKDF(hashes.SHA256(), 32, salt, _LABEL + about).derive(secret)
        key = np.frombuffer(derived, np.uint8).copy()
        for secret_bytes in (secret, derived):
            wipe_bytes(secret_bytes)
        return key
