"""Requests for entropy block until the kernel has some, and are repeated until there is enough."""

import ctypes
import sys

import numpy as np
import pytest

from panstream.primitives.noise import entropy


def test_the_kernel_is_asked_to_wait_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag 1 would be GRND_NONBLOCK, 2 GRND_RANDOM; a request that a signal cuts short is completed."""
    requests: list[tuple[int, int, int]] = []

    def three_bytes(address: int, size: int, flags: int) -> int:
        requests.append((address, size, flags))
        if len(requests) == 2:
            ctypes.set_errno(4)
            return -1
        ctypes.memset(address, len(requests), min(3, size))
        return min(3, size)

    monkeypatch.setattr(entropy, "_GETRANDOM", three_bytes)
    buffer = np.zeros(8, np.uint8)
    entropy.system_entropy(buffer)
    start = buffer.ctypes.data
    assert requests == [(start, 8, 0), (start + 3, 5, 0), (start + 3, 5, 0), (start + 6, 2, 0)]
    assert buffer.tolist() == [1, 1, 1, 3, 3, 3, 4, 4]


def test_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: int, size: int, flags: int) -> int:
        ctypes.set_errno(38)
        return -1

    monkeypatch.setattr(entropy, "_GETRANDOM", refuse)
    with pytest.raises(OSError, match="no entropy") as raised:
        entropy.system_entropy(np.zeros(4, np.uint8))
    assert raised.value.errno == 38


def test_an_empty_answer_is_asked_again_whatever_went_wrong_before(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([0, 0, 4])
    monkeypatch.setattr(entropy, "_GETRANDOM", lambda address, size, flags: next(answers))
    ctypes.set_errno(38)  # left by a call that has nothing to do with this one
    entropy.system_entropy(np.zeros(4, np.uint8))
    assert list(answers) == []


def test_linux_is_asked_directly_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (entropy._getrandom() is not None) == (sys.platform == "linux")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert entropy._getrandom() is None


def test_without_the_call_the_device_is_read_unbuffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffered reader would hold bytes that are never overwritten."""
    opened: list[dict[str, object]] = []

    class Device:
        def __enter__(self) -> "Device":
            return self

        def __exit__(self, *exc: object) -> None:
            return None

        def readinto(self, target: memoryview) -> int | None:
            if len(opened) == 2:
                return None  # nothing yet: the request is repeated
            target[:2] = b"ab"
            return 2

    def remember(path: str, mode: str, **options: object) -> Device:
        opened.append({"path": path, "mode": mode, **options})
        return Device()

    monkeypatch.setattr(entropy, "_GETRANDOM", None)
    monkeypatch.setattr("builtins.open", remember)
    buffer = np.zeros(6, np.uint8)
    entropy.system_entropy(buffer)
    monkeypatch.undo()
    assert buffer.tobytes() == b"ababab"
    assert opened == [{"path": "/dev/urandom", "mode": "rb", "buffering": 0}] * 4


def test_without_both_python_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "_GETRANDOM", None)
    monkeypatch.setattr("os.path.exists", lambda path: False)
    monkeypatch.setattr("os.urandom", lambda size: bytes(range(size)))
    buffer = np.zeros(5, np.uint8)
    entropy.system_entropy(buffer)
    assert buffer.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("reason", "again"), [(0, True), (4, True), (1, False), (5, False)])
def test_only_an_interruption_or_no_reason_at_all_is_asked_again(
    reason: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = 0

    def refuse_once(address: int, size: int, flags: int) -> int:
        nonlocal requests
        requests += 1
        if requests == 1:
            ctypes.set_errno(reason)
            return -1
        ctypes.memset(address, 7, size)
        return size

    monkeypatch.setattr(entropy, "_GETRANDOM", refuse_once)
    buffer = np.zeros(4, np.uint8)
    if again:
        entropy.system_entropy(buffer)
        assert buffer.tolist() == [7] * 4
    else:
        with pytest.raises(OSError, match="no entropy"):
            entropy.system_entropy(buffer)
        assert requests == 1
