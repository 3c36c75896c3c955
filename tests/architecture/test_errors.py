"""errors.py holds every exception that panstream lets out, and translated keeps nothing of what it caught."""

import ast
from pathlib import Path

import pytest

from panstream import errors
from panstream.errors import InvalidParameter, PanstreamError, translate_errors

SOURCE = Path(__file__).parents[2] / "src" / "panstream"
# What the server, the reader of pages and the feed of a cluster turn into answers, errors and repeated work.
INSIDE = {"HttpError", "CorruptParquet", "TaskLost"}


@pytest.mark.slow
def test_every_exception_lives_in_errors() -> None:
    classes = {
        (path.relative_to(SOURCE).as_posix(), node.name): {ast.unparse(base).split(".")[-1] for base in node.bases}
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    kept = {name for path, name in classes if path == "errors.py"}
    raised = {"Exception", "BaseException", "ValueError", "RuntimeError", "OSError", *kept}
    elsewhere = {name for (path, name), bases in classes.items() if path != "errors.py" and bases & raised}
    assert {name for name in elsewhere if not name.startswith("_")} <= INSIDE
    assert all(name in (errors.__doc__ or "") for name in kept)


def test_what_was_caught_is_not_kept() -> None:
    def work() -> int:
        raise OSError("walrus")

    def told(error: OSError) -> PanstreamError:
        return InvalidParameter("cannot be read")

    with pytest.raises(InvalidParameter, match="cannot be read") as caught:
        translate_errors(work, OSError, told)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert translate_errors(lambda: 7, OSError, told) == 7
    with pytest.raises(KeyError):
        translate_errors(lambda: {}["absent"], OSError, told)
