"""Pages packed with Snappy: unpacked to what pyarrow unpacks, or refused as pyarrow refuses them, within their room.

The decoder is compiled, so nothing counts as covered or not: inputs are changes of sound ones.
"""

import fuzzing
import numpy as np
import pyarrow as pa

with fuzzing.instrumented():
    from panstream.primitives.kernels.sources.snappy import unpack_snappy

_MOST, _MARGIN, _MARK = 1 << 16, 64, 0xA5


def _stated(data: bytes) -> int:
    """Return the size that the first bytes state, seven bits each."""
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & 127) << (7 * at)
        if byte < 128:
            break
    return size


def test_one_input(data: bytes) -> None:
    size = _stated(data)
    if size > _MOST:
        return
    try:
        theirs = pa.Codec("snappy").decompress(data, size, asbytes=True)
    except (pa.ArrowException, OSError):
        theirs = None
    room = np.full(size + 2 * _MARGIN, _MARK, np.uint8)
    ours = room[_MARGIN : _MARGIN + size]
    sound = unpack_snappy(np.frombuffer(data, np.uint8), ours)
    assert sound == (theirs is not None)
    assert not sound or ours.tobytes() == theirs
    assert (room[:_MARGIN] == _MARK).all()
    assert (room[_MARGIN + size :] == _MARK).all()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
