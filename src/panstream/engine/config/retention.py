"""The keys of a [[query]] that asks RETENTION."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from panstream.errors import ConfigError

_REFUSED = {
    "every": "a window is answered once, when it is over",
    "releases": "a window is answered once, when it is over",
    "universe": "ids are hashed, whatever they are",
    "announced": "its cells cannot be refreshed: a second copy of an open window has no finite loss",
    "unit": "the rows of one user in one window are protected",
    "user_window": "the rows of one user in one window are protected",
    "contributions": "any number of rows of a user are one bit",
    "memory": "expected decides the size",
}


def retention_options(label: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with ``window`` as the schedule of one state, which outlives its windows.

    Args:
        label: The section, for error messages.
        options: The keys that are present, by name.

    Raises:
        ConfigError: A key is missing, or does not fit.
    """
    for key, why in _REFUSED.items():
        if key in options:
            raise ConfigError(f"{label}: RETENTION takes no {key}: {why}")
    for key, what in (("window", "the length of the windows that are compared"), ("expected", "the users of a window")):
        if options.get(key) is None:
            raise ConfigError(f"{label}: RETENTION needs {key}, {what}")
    return {**{key: value for key, value in options.items() if key != "window"}, "every": options["window"]}
