"""Messages of the engine in the language of the command line: they name keys of a configuration, this names flags."""

import re

_KEYS = "lower|upper|groups|universe|expected|contributions|delta|max_item_bytes|window|time|user|epsilon|budget|ledger"
_FLAGS: tuple[tuple[str, str], ...] = (
    (r"groups = \{ (\S+) = \[\.\.\.\] \}", r"--groups \1=KEY,KEY,..."),
    (r"\bgroups\.(\S+) must", r"--groups \1 must"),
    (r"\bgroups names\b", "--groups names"),
    (r"(?<=keys )(declared|listed) in groups\b", r"listed with --groups"),
    (r"\bneeds lower and upper\b", "needs --lower and --upper"),
    (r"\bgive contributions\b", "give --contributions"),
    (r"\bcolumn of event time, time, and\b", "column of event time, --time, and"),
    (r"\btypes must name\b", "--type must name"),
    (r"\ba smaller max_item_bytes\b", "a smaller --max-item-bytes"),
    (r"\bdelta and max_item_bytes are\b", "--delta and --max-item-bytes are"),
    (r"\buse window for\b", "use --window for"),
    (r"\b(universe)(, the known population)", r"--\1\2"),
    (r"\bgive public, the files that may be joined: (\S+), if", r"add --public \1, if"),
    (r"\bdeclare user in \[stream\]", "give --user, the column that identifies the person"),
    (r"\bgive user, the column", "give --user, the column"),
    (r"\bneeds universe\b", "needs --universe"),
    (r"\b(horizon|every|releases)( =)(?=,)", r"\1"),
    (rf"\b({_KEYS}) =(?=,)", r"--\1"),
    (rf"\b({_KEYS}) = (?=[\d\"])", r"--\1 "),
    (rf"(?<![-\w.])({_KEYS}) must\b", r"--\1 must"),
    (rf"(?<![-\w.])({_KEYS})=(?=[\w.-])(?!\S+ more for)", r"--\1 "),
)


def in_flags(text: str) -> str:
    """Return a message with the flags of ``panstream query`` in place of keys.

    >>> in_flags("AVG(value) needs lower and upper, the declared bounds of the values")
    'AVG(value) needs --lower and --upper, the declared bounds of the values'
    >>> in_flags("a larger epsilon, expected =, about how many users there will be, delta = 1e-6")
    'a larger epsilon, --expected, about how many users there will be, --delta 1e-6'
    """
    for key, flag in _FLAGS:
        text = re.sub(key, flag, text)
    return re.sub(r"--max_item_bytes", "--max-item-bytes", text)
