"""Run a command in this process, and check its exit code."""

from typing import Any

from typer.testing import CliRunner, Result

from panstream.cli.app import app


def run(*words: object, code: int = 0, **options: Any) -> Result:
    """Return what ``panstream WORDS...`` printed; it must end with ``code`` and without a traceback."""
    result = CliRunner().invoke(app, [str(word) for word in words], **options)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result
