"""What the server needs of h11 and uvicorn and they do not promise: bounded, known, and looked at when a server starts.

If a test here fails after an upgrade: read what changed in the parts named below against
``panstream.server.http.protocol``, run the memory drill, and then add the new digest and move the bound.
"""

import hashlib
import inspect
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import h11
import pytest
from h11._readers import ContentLengthReader
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import Server

from panstream.errors import PanstreamError
from panstream.server.http import protocol
from panstream.server.http.protocol import _check_private_parts

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
PARTS: dict[Any, set[str]] = {
    ContentLengthReader: {"2cf82298194f2f0e"},
    ReceiveBuffer: {"e101b047dd56eadc"},
    H11Protocol: {"b4c3116290eeae21"},
    RequestResponseCycle: {"9dfd3dc6caaa975e"},
    Server.startup: {"884cdd027a0a7144"},
    Server.shutdown: {"0c7399d44c4190fe"},
}


def digest(part: Any) -> str:
    """Of the code alone: neither comments nor blank lines nor indentation."""
    lines = [line.strip() for line in inspect.getsource(part).splitlines()]
    code = "\n".join(line for line in lines if line and not line.startswith("#"))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__qualname__)
def test_private_parts_are_known_ones(part: Any) -> None:
    assert digest(part) in PARTS[part], f"{part.__qualname__} changed: {digest(part)}"


@pytest.mark.parametrize("name", ["h11", "uvicorn"])
def test_releases_are_bounded(name: str) -> None:
    least, below = re.findall(rf'"{name}>=([\d.]+),<([\d.]+)"', PROJECT.read_text())[0]

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    assert numbers(least) <= numbers(version(name)) < numbers(below)


def test_a_server_starts_with_these() -> None:
    _check_private_parts()


@pytest.mark.parametrize("name", protocol._REPLACED)
def test_a_method_that_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(H11Protocol, name)
    with pytest.raises(PanstreamError, match="h11 or uvicorn"):
        _check_private_parts()


def test_a_buffer_that_is_elsewhere_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(ReceiveBuffer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._bytes = self._data
            del self._data

    monkeypatch.setattr("h11._connection.ReceiveBuffer", Elsewhere)
    with pytest.raises(PanstreamError, match="h11 or uvicorn"):
        _check_private_parts()


def test_a_reader_that_counts_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "ContentLengthReader", h11.Data)
    with pytest.raises(PanstreamError, match="h11 or uvicorn"):
        _check_private_parts()
