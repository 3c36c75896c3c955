"""Which parts of a data engine ahead of the server hold rows in clear; ``panstream explain --through`` prints it."""

from __future__ import annotations

from panstream.errors import InvalidParameter

_LINK = (
    "network",
    "with TLS: when batches are sent, and the size of every part, which says a little about what its rows contain",
)
_SERVER = "the names of the parts, and how many batches each has sent, which does not depend on what rows contain"

EXPOSURE = {
    "spark": [
        ("executors", "rows in clear, in the JVM and in Python workers; the driver holds counts of rows alone"),
        ("local disk", "rows in clear, in shuffle and spill files: set spark.io.encryption.enabled"),
        ("checkpoint", "file names or offsets; rows in clear if an operator ahead of the sink stores state"),
        ("event logs", "the query with its literals, and the number of rows of every task"),
        _LINK,
        ("server", f"{_SERVER}; Spark begins a batch when there is a new row"),
        (
            "staged=True",
            "a whole batch in the server's memory until its commit, at most --max-staged bytes; no shuffle",
        ),
        ("claim", "the claims above cover the server, and none of the other lines"),
    ],
    "beam": [
        ("workers", "rows in clear"),
        ("shuffle", "rows in clear, in what the runner writes for GroupByKey, in its checkpoints and snapshots"),
        ("logs", "the pipeline with its literals, and the numbers of elements of every step"),
        _LINK,
        ("server", "the names of the parts, and how many windows each has sent, which follow the clock"),
        ("claim", "the claims above cover the server, and none of the other lines"),
    ],
}


def exposure_lines(engine: str) -> list[tuple[str, str]]:
    """Return which part of a data engine holds what in clear.

    Raises:
        InvalidParameter: If there is no sink for the engine.
    """
    lines = EXPOSURE.get(engine)
    if lines is None:
        raise InvalidParameter(f"through must be one of {', '.join(EXPOSURE)}, got {engine!r}")
    return lines
