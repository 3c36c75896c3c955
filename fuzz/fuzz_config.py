"""Configurations: one that is read and planned, or a refusal that names the key."""

import tomllib

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.config.config import read_config
    from panstream.engine.planner.query_plan import plan_all
    from panstream.errors import PanstreamError


def test_one_input(data: bytes) -> None:
    try:
        found = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return
    try:
        plan_all(read_config(found))
    except PanstreamError:
        pass


if __name__ == "__main__":
    fuzzing.run(test_one_input)
