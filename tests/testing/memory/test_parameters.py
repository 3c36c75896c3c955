"""What a scan refuses, and what importing it costs."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from panstream.errors import InvalidParameter, NotSupported
from panstream.testing.memory import ENCODINGS, _encodings, scan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"needles": ["short"]}, "needles must have at least 48 bits"),
        ({"needles": []}, "needles must not be empty"),
        ({"decoys": ["12345"]}, "decoys must have at least 48 bits"),
        ({"decoys": ["abcdefgh"]}, "decoys and control must differ from all needles, got 1 in common"),
        ({"needles": [b"abcdefgh"], "control": b"abcdefgh"}, "decoys and control must differ"),
        ({"control": b"12345"}, "control must have at least 48 bits"),
        ({"pid": 0}, "pid must be positive"),
        ({"encodings": ["raw", "rot13"]}, "encodings must be some of .* got rot13"),
        ({"encodings": []}, "encodings must be some of"),
        ({"encodings": ["decimal"]}, "encodings must apply to every needle, got none for one of type str"),
        ({"chunk_bytes": 0}, "chunk_bytes must be positive"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], rule: str) -> None:
    defaults = {"pid": None, "needles": ["abcdefgh"], "decoys": [], "control": None}
    with pytest.raises(InvalidParameter, match=rule):
        scan(**(defaults | options))


@pytest.mark.slow
def test_the_calling_process_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="pid must not be the calling process"):
        scan(os.getpid(), ["abcdefgh"], decoys=[], control=None)


def test_other_platforms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NotSupported, match="only Linux has; this platform is darwin"):
        scan(None, ["abcdefgh"], decoys=[], control=None)


def test_import_is_light() -> None:
    program = "import sys, panstream.testing.memory; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_documentation_lists_every_encoding() -> None:
    listed = re.findall(r"^([a-z0-9-]+)  +(?:str|bytes|int)", _encodings.__doc__ or "", re.MULTILINE)
    assert listed == list(ENCODINGS)
