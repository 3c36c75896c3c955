"""Signed evidence: what is read only if its signature fits, and what is said about its age."""

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from panstream import __version__
from panstream.audit.evidence import code_digest, no_controls, source_checkout, write_evidence
from panstream.engine.config.statement import StatementConfig
from panstream.engine.reporting.evidence import evidence_reader, evidence_sentence, latest_evidence, read_evidence
from panstream.errors import ConfigError
from panstream.primitives.signing import public_key_pem, read_public_key, read_signing_key, write_signing_key

DIGEST = "ab" * 32
RESULTS: dict[str, Any] = {"claims": {"passed": True}, "system": {"passed": True}, "memory": {"passed": True}}


@pytest.fixture
def statement(tmp_path: Path) -> StatementConfig:
    public = write_signing_key(tmp_path / "audit.key")
    (tmp_path / "audit.key.pub").write_bytes(public_key_pem(public))
    return StatementConfig(evidence=tmp_path / "evidence", evidence_key=tmp_path / "audit.key.pub")


def written(statement: StatementConfig, audits: dict[str, Any] = RESULTS) -> Path:
    assert statement.evidence is not None
    folder = statement.evidence.parent
    return write_evidence(
        statement.evidence,
        read_signing_key(folder / "audit.key"),
        configuration=folder / "panstream.toml",
        configuration_digest=DIGEST,
        started=datetime.now(UTC),
        audits=audits,
        controls=no_controls(),
    )


def sentence(statement: StatementConfig, digest: str = DIGEST) -> str:
    return evidence_sentence(statement, digest, datetime.now(UTC))


def test_what_was_written_is_read(statement: StatementConfig) -> None:
    path = written(statement)
    evidence = latest_evidence(statement)
    assert evidence is not None
    assert (evidence.name, evidence.passed, evidence.version) == (path.name, True, __version__)
    document = json.loads(path.read_text())
    assert document["panstream"]["code_sha256"] == code_digest()
    assert {"kernel", "processor", "cores", "memory_bytes", "packages"} <= document["host"].keys()
    assert document["configuration"]["sha256"] == DIGEST


def test_a_changed_byte_is_refused(statement: StatementConfig) -> None:
    path = written(statement, {**RESULTS, "memory": {"passed": False}})
    assert statement.evidence_key is not None
    data = path.read_bytes()
    for changed in (data.replace(b"false", b"true "), data + b" ", data[:-2], b""):
        path.write_bytes(changed)
        with pytest.raises(ConfigError, match="is not what was signed"):
            read_evidence(path, read_public_key(statement.evidence_key))
    path.write_bytes(data)
    assert not read_evidence(path, read_public_key(statement.evidence_key)).passed


@pytest.mark.parametrize("signature", [b"", b"0" * 64, b"0" * 65])
def test_another_signature_is_refused(statement: StatementConfig, signature: bytes) -> None:
    path = written(statement)
    path.with_name(path.name + ".sig").write_bytes(signature)
    with pytest.raises(ConfigError, match="is not what was signed"):
        latest_evidence(statement)


def test_another_key_is_refused(statement: StatementConfig, tmp_path: Path) -> None:
    written(statement)
    (tmp_path / "audit.key.pub").write_bytes(public_key_pem(write_signing_key(tmp_path / "other.key")))
    with pytest.raises(ConfigError, match="signed by another"):
        latest_evidence(statement)
    assert "cannot be used" in sentence(statement)


@pytest.mark.parametrize("content", ["[]", "{", '{"format": "panstream evidence", "format_version": 2}', "null"])
def test_signed_bytes_of_another_kind_are_refused(statement: StatementConfig, tmp_path: Path, content: str) -> None:
    path = written(statement)
    path.write_text(content)
    signature = read_signing_key(tmp_path / "audit.key").sign(content.encode())
    path.with_name(path.name + ".sig").write_bytes(signature)
    with pytest.raises(ConfigError, match="is no evidence that this version can read"):
        latest_evidence(statement)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_verifies_it(statement: StatementConfig, tmp_path: Path) -> None:
    path = written(statement)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(tmp_path / "audit.key.pub"), "-rawin"]
    command += ["-in", str(path), "-sigfile", f"{path}.sig"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    path.write_bytes(path.read_bytes() + b" ")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_sentence_says_what_differs(statement: StatementConfig) -> None:
    assert "there is none yet" in sentence(statement)
    written(statement)
    text = sentence(statement)
    assert "today" in text
    assert "all of them passed" in text
    assert "Leaks were not injected" in text
    assert "another configuration" not in text
    assert "another configuration" in sentence(statement, "cd" * 32)
    assert sentence(StatementConfig()) == "This page does not say that they were run on this machine."


@pytest.mark.parametrize("controls", [{"ran": True, "passed": False}, {"ran": True}, {"ran": True, "passed": "yes"}])
def test_an_undetected_leak_is_no_success(statement: StatementConfig, tmp_path: Path, controls: dict[str, Any]) -> None:
    path = written(statement)
    document = json.loads(path.read_text()) | {"positive_controls": controls}
    path.write_text(json.dumps(document))
    path.with_name(path.name + ".sig").write_bytes(read_signing_key(tmp_path / "audit.key").sign(path.read_bytes()))
    if "passed" not in controls:
        with pytest.raises(ConfigError, match="no evidence that this version can read"):
            latest_evidence(statement)
        return
    assert "not all of them passed" in sentence(statement)
    evidence = latest_evidence(statement)
    assert evidence is not None and not evidence.passed


def test_a_document_has_its_name_only_when_it_is_complete(
    statement: StatementConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server would read at the moment of every write is a whole document or none."""
    read = evidence_reader(statement, DIGEST)
    seen: list[Any] = []
    real = Path.write_bytes

    def watched(path: Path, data: bytes) -> int:
        half = real(path, data[: len(data) // 2])
        seen.append(read())
        return half + real(path, data)

    monkeypatch.setattr(Path, "write_bytes", watched)
    written(statement)
    assert seen == [None, None]
    summary = read()
    assert summary is not None and summary["passed"]


def test_a_server_reads_new_evidence_without_a_restart(statement: StatementConfig) -> None:
    read = evidence_reader(statement, DIGEST)
    assert read() is None
    path = written(statement)
    summary = read()
    assert summary is not None
    assert (summary["passed"], summary["this_configuration"], summary["positive_controls"]) == (True, True, False)
    assert statement.evidence is not None
    path.write_bytes(b"{}")
    os.utime(statement.evidence, ns=(0, 0))
    assert "error" in (read() or {})
    assert evidence_reader(StatementConfig(), DIGEST)() is None


def test_these_tests_run_from_a_checkout() -> None:
    assert source_checkout() == Path(__file__).parents[3]
