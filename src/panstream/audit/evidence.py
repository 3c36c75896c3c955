"""Signed evidence that the audits were run on this machine, for one configuration, with their results.

The document names what was audited (version and a digest of the code, digest of the configuration), where (operating
system, kernel, processor, packages), when, and with which result. `panstream.engine.reporting.evidence` reads it. The
memory audit has questions of its own, since it must know the ids that it searches for; the other two use the
configuration. Leaks are injected, to see that the audits find them, only where the tests are: in a source checkout.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import panstream
from panstream.audit.claims.case import Finding
from panstream.audit.memory.drill import DrillReport
from panstream.engine.reporting.evidence import FORMAT, FORMAT_VERSION, SIGNATURE_SUFFIX
from panstream.errors import ConfigError, PanstreamError
from panstream.primitives.signing import public_key_pem

_PACKAGES = ("numpy", "numba", "llvmlite", "cryptography", "pyarrow", "duckdb", "sqlglot", "scipy", "distributed")
_IGNORED = ("__pycache__", ".nbi", ".nbc", ".pyc")
_NO_CONTROLS = "no leaks were injected: that needs a source checkout (make audit-controls)"


def code_digest() -> str:
    """Return a digest of the installed package: SHA-256 over the sorted names and digests of its files.

    `wheel_digest` of the wheel that was installed is the same.
    """
    root = Path(panstream.__file__).parent
    files = [path for path in root.rglob("*") if path.is_file() and not any(part in str(path) for part in _IGNORED)]
    return _digest((f"panstream/{path.relative_to(root).as_posix()}", path.read_bytes()) for path in files)


def wheel_digest(wheel: Path) -> str:
    """Return the digest of the package inside a wheel, to compare with that in a document.

    Args:
        wheel: The file.

    Raises:
        ConfigError: The file is no wheel of panstream.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("panstream/") and not name.endswith("/")]
            if not names:
                raise ConfigError(f"{wheel.name} is no wheel of panstream")
            return _digest((name, archive.read(name)) for name in names)
    except (OSError, zipfile.BadZipFile):
        raise ConfigError(f"{wheel.name} cannot be read as a wheel") from None


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    lines = sorted(f"{name} {hashlib.sha256(content).hexdigest()}\n" for name, content in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def source_checkout() -> Path | None:
    """Return the root of the source checkout that is running, or None if a wheel is."""
    root = Path(panstream.__file__).parents[2]
    return root if (root / "tests" / "fault_injection" / "__main__.py").is_file() else None


def run_controls(root: Path) -> dict[str, Any]:
    """Inject every leak and record every secret, in a process of its own.

    Args:
        root: The source checkout.

    Returns:
        Whether all were caught, and which audit field caught each.

    Raises:
        PanstreamError: The process ended without a result.
    """
    command = [sys.executable, "-m", "tests.fault_injection", "--json"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    lines = run.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise PanstreamError(f"the positive controls ended without a result: {run.stderr.strip()[-300:]}")
    return {"ran": True, **json.loads(lines[-1])}


def no_controls() -> dict[str, Any]:
    """Return what a document says where leaks cannot be injected."""
    return {"ran": False, "reason": _NO_CONTROLS}


def claims_result(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the results of the audit of claims: every case, and how many there are of each verdict."""
    verdicts = [finding.verdict for finding in findings]
    counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "fails", "caught", "missed")}
    return {
        "passed": bool(findings) and all(finding.is_expected for finding in findings),
        **counts,
        "cases": [finding.to_json() for finding in findings],
    }


def memory_result(report: DrillReport) -> dict[str, Any]:
    """Return the results of the memory audit: how many values of each kind were sent, and how many found."""
    rows = [{"kind": kind, "sent": sent, "found": count} for kind, sent, count in report.rows]
    return {"passed": report.ok, "valid": report.valid, "expected_hits": sorted(report.expected_hits), "rows": rows}


def host_facts() -> dict[str, Any]:
    """Return what the results may depend on: host, operating system, kernel, processor, memory, interpreter."""
    return {
        "name": platform.node(),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "c_library": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def write_evidence(
    directory: Path,
    key: Ed25519PrivateKey,
    *,
    configuration: Path,
    configuration_digest: str,
    started: datetime,
    audits: Mapping[str, Any],
    controls: Mapping[str, Any],
) -> Path:
    """Write a document and its signature.

    Args:
        directory: Where to; made if it does not exist.
        key: The key that signs.
        configuration: The file that was audited.
        configuration_digest: SHA-256 of its bytes when the audits began, in hexadecimal.
        started: When the audits began.
        audits: Results of the audits of claims, the system and memory, by name.
        controls: Result of `run_controls` or `no_controls`.

    Returns:
        The document's path.

    Raises:
        ConfigError: A file cannot be written.
    """
    finished = datetime.now(UTC).replace(microsecond=0)
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "panstream": {
            "version": panstream.__version__,
            "code_sha256": code_digest(),
            "installed_as": "wheel" if source_checkout() is None else "source checkout",
        },
        "configuration": {"file": configuration.name, "sha256": configuration_digest},
        "host": host_facts(),
        "started": started.replace(microsecond=0).isoformat(),
        "finished": finished.isoformat(),
        "audits": dict(audits),
        "positive_controls": dict(controls),
        "public_key": public_key_pem(key.public_key().public_bytes_raw()).decode(),
    }
    data = (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
    path = directory / f"evidence-{finished:%Y%m%dT%H%M%SZ}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A server reads a document as soon as it has its name, so it gets it when it is complete and signed.
        path.with_name(path.name + SIGNATURE_SUFFIX).write_bytes(key.sign(data))
        unnamed = directory / f".{path.name}"
        unnamed.write_bytes(data)
        unnamed.replace(path)
    except OSError as error:
        raise ConfigError(f"the evidence cannot be written to {directory.name}: {error.strerror}") from None
    return path
