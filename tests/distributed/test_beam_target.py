"""What the Beam transform refuses; ``make beam`` runs it on Beam's DirectRunner, in an environment of its own."""

import pickle

import pytest

from panstream.client.transport import RetryPolicy
from panstream.distributed.beam import BeamTarget, WriteToPanstream
from panstream.errors import InvalidParameter, MissingExtra

URL = "http://127.0.0.1:1"


def test_parameters_are_checked_first() -> None:
    window = {"window": 60, "start": 600}
    for wrong in (
        {"parts": 0},
        {"parts": 1000},
        {"job": "a.b"},
        {"job": "x" * 33},
        {"window": 0},
        {**window, "start": 601},
    ):
        with pytest.raises(InvalidParameter, match=list(wrong)[-1]):
            WriteToPanstream(URL, "visits", **{"job": "a", **wrong})
    for stop in (600, 0, 661):
        with pytest.raises(InvalidParameter, match="stop must be after start"):
            WriteToPanstream(URL, "visits", job="a", stop=stop, **window)
    with pytest.raises(InvalidParameter, match="url"):
        WriteToPanstream("counts.example", "visits", job="a")


def test_without_beam() -> None:
    pytest.importorskip("pyarrow")
    try:
        import apache_beam  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match="sending rows from Beam"):
            WriteToPanstream(URL, "visits", job="a")


def test_the_target_travels_and_shows_no_token() -> None:
    target = BeamTarget(
        url=URL,
        stream="visits",
        job="j" * 32,
        token="secret",
        parts=999,
        window=60,
        start=2**40 - 2**40 % 60,
        stop=None,
        ca_file=None,
        retry=RetryPolicy(),
    )
    assert "secret" not in repr(target)
    assert pickle.loads(pickle.dumps(target)) == target
    assert len(f"{target.prefix}998") <= 64
