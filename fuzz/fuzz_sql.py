"""SQL: a statement that is understood, or a refusal that says what helps."""

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.sql.parser import parse
    from panstream.errors import PanstreamError

_COLUMNS = {"visitor": "string", "page": "string", "seconds": "double", "n": "int", "at": "timestamp", "ok": "bool"}


def test_one_input(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        parse(text, columns=_COLUMNS, user="visitor", stream="visits")
    except PanstreamError:
        pass


if __name__ == "__main__":
    fuzzing.run(test_one_input)
