"""The domain that analyst and holders agree on beforehand, named by its digest."""

from __future__ import annotations

import hashlib
import json

from panstream.networks.domain import Domain

__all__ = ["domain_digest"]


def domain_digest(domain: Domain) -> str:
    """Return the SHA-256 of a domain: equal exactly where names, categories, their order and bins are equal."""
    canonical = json.dumps(domain.to_plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
