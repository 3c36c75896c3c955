"""The scanner process: a request on standard input, its answer as JSON on standard output."""

from __future__ import annotations

import json
import sys

from panstream.errors import PanstreamError
from panstream.testing.memory.request import read_request
from panstream.testing.memory.scanner import answer


def main() -> None:
    """Answer one request."""
    request = read_request(sys.stdin.buffer.read())
    try:
        result = answer(request)
    except PanstreamError as error:
        result = {"error": type(error).__name__, "message": str(error)}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
