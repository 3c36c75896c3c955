"""Ed25519 keys in files, for holders of secure sums and for signed evidence of audits."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from panstream.errors import ConfigError


def write_signing_key(path: Path) -> bytes:
    """Write a new Ed25519 signing key as PEM, with mode 0600.

    Args:
        path: The file; it must not exist.

    Returns:
        The 32 bytes of the public key.
    """
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return key.public_key().public_bytes_raw()


def read_signing_key(path: Path, *, made_by: str = "panstream holder-key") -> Ed25519PrivateKey:
    """Read a key that `write_signing_key` wrote.

    Args:
        path: The file.
        made_by: The command that writes such a key, for the error message.

    Raises:
        ConfigError: The file is unreadable or holds a key of another kind.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        raise ConfigError(f"the signing key {path.name} cannot be read") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"the signing key {path.name} must be an Ed25519 key; {made_by} writes one")
    return key


def public_key_pem(public: bytes) -> bytes:
    """Return a raw public key as PEM, the form that OpenSSL reads."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key as PEM.

    Args:
        path: The file.

    Raises:
        ConfigError: The file is unreadable or holds a key of another kind.
    """
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, TypeError):
        raise ConfigError(f"the public key {path.name} cannot be read") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"the public key {path.name} must be an Ed25519 key")
    return key


def is_signed(data: bytes, signature: bytes, key: Ed25519PublicKey) -> bool:
    """Return whether the signature is one of the data by the key's owner."""
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True
