"""Tokens are read again on SIGHUP."""

from pathlib import Path

import pytest

from panstream.server.auth import Authenticator, create_token
from tests.server.server_live import served, until, write_config


@pytest.mark.slow
def test_tokens_are_read_again_while_the_server_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    old = {"Authorization": f"Bearer {create_token(file, 'old', ['read'])}"}
    with served(write_config(tmp_path), tokens=file) as server:
        assert server.get("/v1/queries", **old).status == 200
        file.unlink()
        new = {"Authorization": f"Bearer {create_token(file, 'new', ['read'])}"}
        assert server.get("/v1/queries", **new).code == "unauthorized"
        server.running.reload_tokens()
        until(lambda: server.get("/v1/queries", **new).status == 200)
        assert server.get("/v1/queries", **old).code == "unauthorized"
        file.write_text("nonsense\n")
        server.running.reload_tokens()
        until(lambda: "the tokens stay as they were: tokens, line 1 must read" in capfd.readouterr().err)
        assert server.get("/v1/queries", **new).status == 200


def test_an_empty_file_revokes_all_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token = create_token(file, "one", ["read"])
    access = Authenticator.load(file, "0.0.0.0")
    assert access.grant(token) is not None
    file.write_text("")
    assert access.reload() == 0
    assert access.grant(token) is None
