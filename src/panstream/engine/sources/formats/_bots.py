"""Detect robots by their user agents, with the list of the package crawler-user-agents (MIT), updated monthly.

Nearly all of its patterns are plain words, which an Aho-Corasick automaton finds in one pass over a text. The few
others are left to RE2. Without the package, a short pattern is used instead.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import boolean_bytes, compute

SHORT = "bot|crawl|spider|slurp|archiver|preview|monitor|headless|curl|wget|python|java/|go-http|http-?client|scan"
_ESCAPED = re.compile(r"\\([^A-Za-z0-9])")
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


class BotDetector:
    """Matches user agents against patterns."""

    def __init__(self, patterns: list[str]) -> None:
        plain = [pattern for pattern in patterns if _SPECIAL.search(_ESCAPED.sub("", pattern)) is None]
        others = [pattern for pattern in patterns if pattern not in set(plain)]
        self._pattern = "|".join(f"(?:{pattern})" for pattern in others)
        words = [_ESCAPED.sub(r"\1", pattern).encode("ascii", "ignore") for pattern in plain]
        self._automaton = _automaton([word for word in words if word])

    def is_bot(self, agents: Any) -> NDArray[np.bool_]:
        """Return a mask of the robots in an Arrow array of strings without NULL."""
        from panstream.primitives.kernels.sources.beacon_fields import find_words

        is_bot = np.zeros(len(agents), np.uint8)
        offsets = np.frombuffer(agents.buffers()[1], np.int32, len(agents) + 1, 4 * agents.offset).astype(np.int64)
        data = np.frombuffer(agents.buffers()[2] or b"\0", np.uint8)
        find_words(data, offsets[:-1], offsets[1:], *self._automaton, is_bot)
        robots: NDArray[np.bool_] = is_bot.astype(bool)
        if self._pattern:
            robots |= boolean_bytes(compute.match_substring_regex(agents, self._pattern))
        return robots


@cache
def known_bots() -> BotDetector:
    """Return the detector for the package's list, or for the short pattern if it is not installed."""
    try:
        crawlers = importlib.import_module("crawleruseragents").CRAWLER_USER_AGENTS_DATA
    except ImportError:
        return BotDetector([f"(?i){SHORT}"])
    return BotDetector([str(entry["pattern"]) for entry in crawlers])


def _automaton(words: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint8]]:
    """Return the Aho-Corasick automaton: symbol by byte, next state by state and symbol, and which states accept."""
    used = sorted({letter for word in words for letter in word})
    letters = np.zeros(256, np.uint8)
    letters[used] = np.arange(1, len(used) + 1)
    steps: list[dict[int, int]] = [{}]
    ends = [0]
    for word in words:
        state = 0
        for letter in letters[np.frombuffer(word, np.uint8)].tolist():
            if letter not in steps[state]:
                steps[state][letter] = len(steps)
                steps.append({})
                ends.append(0)
            state = steps[state][letter]
        ends[state] = 1
    if len(steps) > np.iinfo(np.uint16).max:
        raise OverflowError("too many words for an automaton of 16 bits")
    table = np.zeros((len(steps), len(used) + 1), np.uint16)
    fallback = np.zeros(len(steps), np.int64)
    waiting = [0]
    for state in waiting:  # breadth first: a fallback is shorter, so it is complete already
        back = int(fallback[state])
        if state:
            table[state] = table[back]
            ends[state] |= ends[back]
        for letter, target in steps[state].items():
            fallback[target] = int(table[back, letter]) if state else 0
            table[state, letter] = target
            waiting.append(target)
    return letters, table, np.array(ends, np.uint8)
