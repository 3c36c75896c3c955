"""Files in object stores and HDFS, through pyarrow's filesystems: s3://, gs://, abfs:// and hdfs://.

Credentials come from the environment, as the stores' own tools take them, and never from an address: addresses are
shown in messages and in the list of processes.

A file's version across runs is the time of its last change. An etag tells versions apart more exactly, but it is often
a hash of the contents: a stored one would let an intruder confirm a guess of all rows. So it is compared only between
the first and the last read of a file, and dropped with the file's rows.

Privacy: the bytes that are fetched are overwritten when the next ones are fetched and at the end. The store's client
has them in buffers of its own, which only the allocator of a hardened process overwrites when they are freed; the last
record of an open connection stays until the connection is used again or closed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.errors import InvalidParameter, SourceError
from panstream.primitives.memory.scratch import wipe

STORES = {
    "s3": "S3",
    "gs": "Google Cloud Storage",
    "gcs": "Google Cloud Storage",
    "abfs": "Azure",
    "abfss": "Azure",
    "hdfs": "HDFS",
    "viewfs": "HDFS",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OPTIONS = {"s3": ("endpoint", "region"), "gs": ("endpoint",), "gcs": ("endpoint",)}
_WHOLE_BYTES = 8 << 20  # smaller files are fetched at once
_WINDOW_BYTES = 4 << 20  # of a larger one
_MAX_WINDOWS = 8  # that are held, so that a Parquet file whose columns are read in turn is not fetched again and again
_GAP_BYTES = 1 << 20  # between two ranges that are fetched as one
_MAX_LOADED = 256 << 20  # bytes of a row group that are fetched ahead

T = TypeVar("T")


def store_scheme(text: str) -> str | None:
    """Return the scheme of an address in an object store or HDFS; None if it is none.

    >>> store_scheme("s3://bucket/visits"), store_scheme("kafka://host/topic"), store_scheme("visits.csv")
    ('s3', None, None)
    """
    match = _SCHEME.match(text)
    scheme = None if match is None else match[1].lower()
    return scheme if scheme in STORES else None


def is_live(text: str) -> bool:
    """Return whether an input has no end: standard input, or a broker's stream or topic."""
    return text == "-" or (_SCHEME.match(text) is not None and store_scheme(text) is None)


@dataclass(slots=True, eq=False)
class RemoteFile:
    """A file in a store, as it was listed; it has the part of ``pathlib.Path`` that readers of files use.

    Attributes:
        store: Where it is.
        key: Its path in the store: for objects, bucket and key.
        size: Bytes.
        version: The time of its last change.
    """

    store: Store
    key: str
    size: int
    version: str
    _etag: tuple[Any, ...] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.key).name

    @property
    def uri(self) -> str:
        """The address, without options."""
        return self.store.uri_of(self.key)

    def open(self) -> RemoteBytes:
        """Open the file for reading; raise SourceError if it has changed since it was listed."""
        handle = self.store.attempt(lambda: self.store.filesystem.open_input_file(self.key), self.key)
        self._etag = self._fingerprint(handle)
        if self.store.attempt(handle.size, self.key) != self.size:
            handle.close()
            self._refuse_change()
        return RemoteBytes(handle, self.size, self.name)

    def check_unchanged(self) -> None:
        """Raise SourceError if the file has changed since it was opened."""
        etag = self._etag
        self._etag = None
        with self.store.attempt(lambda: self.store.filesystem.open_input_file(self.key), self.key) as handle:
            if etag != self._fingerprint(handle):
                self._refuse_change()

    def _fingerprint(self, handle: Any) -> tuple[Any, ...]:
        """Return the etag; where a store has none, size and time of the last change."""
        described = self.store.attempt(handle.metadata, self.key)
        etags = [value for key, value in described.items() if key.lower() in (b"etag", "etag")]
        if etags:
            return ("etag", etags[0])
        info = self.store.attempt(lambda: self.store.filesystem.get_file_info([self.key])[0], self.key)
        return ("time", info.size, info.mtime_ns)

    def _refuse_change(self) -> None:
        raise SourceError(f"{self.name} was changed while it was read; files that are read must not be written to")


class RemoteBytes(io.RawIOBase):
    """The bytes of a file in a store, fetched in large pieces, which are overwritten after use.

    Args:
        handle: pyarrow's file.
        size: Bytes of the file.
        label: What messages call it.
    """

    def __init__(self, handle: Any, size: int, label: str) -> None:
        self._handle = handle
        self._size = size
        self._label = label
        self._position = 0
        self._loaded: list[tuple[int, NDArray[np.uint8]]] = []
        self._windows: list[tuple[int, NDArray[np.uint8]]] = []  # the one that was used last at the end

    def load(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch ranges (start, bytes) and hold them instead of those that were loaded before, if they are not too many.

        Ranges of a damaged file may be anything; what lies outside is fetched when it is read, which fails.
        """
        self._forget(self._loaded)
        if self._size <= _WHOLE_BYTES:
            return
        inside = sorted((start, stop) for start, size in ranges if 0 <= start < (stop := start + size) <= self._size)
        if sum(stop - start for start, stop in inside) > _MAX_LOADED:
            return
        joined: list[tuple[int, int]] = []
        for start, stop in inside:
            if joined and start <= joined[-1][1] + _GAP_BYTES:
                joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
            else:
                joined.append((start, stop))
        for start, stop in joined:
            self._loaded.append((start, self._fetch(start, stop)))

    def view(self, start: int, size: int) -> NDArray[np.uint8] | None:
        """Return ``size`` bytes from ``start`` on, if they are loaded."""
        for first, data in self._loaded:
            if first <= start and start + size <= first + data.size:
                return data[start - first : start - first + size]
        return None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set and return the position of the next read."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if self._position < 0:
            raise OSError("the position is before the beginning")
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, up to the end of the file: Arrow takes a short read for the end."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and self._position < self._size:
            start, data = self._piece(self._position)
            begin = self._position - start
            count = min(len(view) - filled, data.size - begin)
            view[filled : filled + count] = data[begin : begin + count].data
            self._position += count
            filled += count
        return filled

    def close(self) -> None:
        """Overwrite what was fetched, and close the file."""
        if not self.closed:
            self._forget(self._loaded)
            self._forget(self._windows)
            self._handle.close()
        super().close()

    def _piece(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        for pieces in (self._loaded, self._windows):
            for number, (start, data) in enumerate(pieces):
                if start <= position < start + data.size:
                    if pieces is self._windows:
                        pieces.append(pieces.pop(number))
                    return start, data
        start = stop = 0
        if self._size <= _WHOLE_BYTES:
            stop = self._size
        else:
            start = min(position, max(0, self._size - _WINDOW_BYTES))  # of a footer, all that precedes it
            stop = min(self._size, start + _WINDOW_BYTES)
        if len(self._windows) >= _MAX_WINDOWS:
            wipe(self._windows.pop(0)[1])
        self._windows.append((start, self._fetch(start, stop)))
        return self._windows[-1]

    def _fetch(self, start: int, stop: int) -> NDArray[np.uint8]:
        data = np.empty(stop - start, np.uint8)
        done = 0
        failed = False
        try:
            self._handle.seek(start)
            while done < data.size and (count := self._handle.readinto(data[done:].data)):
                done += count
        except (OSError, pa.ArrowException):
            failed = True
        if failed or done < data.size:
            wipe(data)
            raise SourceError(f"{self._label} could not be fetched: the store did not answer, or the file was removed")
        return data

    @staticmethod
    def _forget(pieces: list[tuple[int, NDArray[np.uint8]]]) -> None:
        for _, data in pieces:
            wipe(data)
        pieces.clear()


class Store:
    """A filesystem of pyarrow, opened for an address.

    Args:
        address: ``scheme://bucket/path``, with options after ``?``; a glob is not resolved.
    """

    def __init__(self, address: str) -> None:
        plain, _, query = address.partition("?")
        scheme = store_scheme(address)
        assert scheme is not None
        parts = urlsplit(plain)
        if parts.password is not None or (parts.username is not None and STORES[scheme] in ("S3", STORES["gs"])):
            raise InvalidParameter(
                f"an address must not contain credentials: give them to {STORES[scheme]} in the environment"
            )
        options = dict(parse_qsl(query, keep_blank_values=True))
        allowed = _OPTIONS.get(scheme, ())
        for name in options:
            if name not in allowed:
                known = f"has the options {' and '.join(allowed)}" if allowed else "has no options"
                raise InvalidParameter(f"an address of {STORES[scheme]} {known}, got {name!r}")
        self._scheme = scheme
        self._label = f"{scheme}://{parts.netloc}"
        self._endpoint = options.pop("endpoint", "")
        if self._endpoint:
            endpoint = urlsplit(self._endpoint)
            if endpoint.scheme not in ("http", "https") or not endpoint.hostname or endpoint.username is not None:
                raise InvalidParameter("endpoint must be http://host:port or https://host:port")
            options |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc}
            if scheme == "s3":
                options.setdefault("region", "us-east-1")  # otherwise Amazon would be asked for it
        tail = f"?{urlencode(options)}" if options else ""
        self.filesystem, self._root = self.attempt(lambda: _open(f"{self._label}{tail}"), "")
        self.path = self.key_of(parts.path.strip("/"))

    def key_of(self, relative: str) -> str:
        """Return the key of a path below the address's bucket or host."""
        root = self._root.rstrip("/")
        return f"{root}/{relative}" if relative else root or "/"

    def uri_of(self, key: str) -> str:
        """Return the address of a key, without options."""
        return f"{self._label}/{key.removeprefix(self._root.rstrip('/')).lstrip('/')}"

    @property
    def identity(self) -> str:
        """Which store this is: the endpoint, if it is not the usual one."""
        return self._endpoint

    def files_below(self, key: str) -> list[RemoteFile]:
        """Return the files below a path, or the file itself, sorted; none if there is no such path."""
        fs = pa.fs
        info = self.attempt(lambda: self.filesystem.get_file_info([key])[0], key)
        if info.type == fs.FileType.File:
            return [self._file(info)]
        selector = fs.FileSelector(key, recursive=True, allow_not_found=True)
        infos = self.attempt(lambda: self.filesystem.get_file_info(selector), key)
        return [self._file(info) for info in sorted(infos, key=lambda info: info.path) if info.type == fs.FileType.File]

    def _file(self, info: Any) -> RemoteFile:
        return RemoteFile(self, str(info.path), int(info.size or 0), f"{int(info.mtime_ns or 0):x}")

    def attempt(self, call: Callable[[], T], key: str) -> T:
        """Return ``call()``; if it fails, raise a SourceError that names the address and what to check."""
        where = self.uri_of(key) if key else self._label
        try:
            return call()
        except FileNotFoundError:
            reason = "does not exist"
        except PermissionError:
            reason = "may not be read with the credentials in the environment"
        except ImportError:
            reason = f"cannot be read: this pyarrow was built without {STORES[self._scheme]}"
        except (pa.ArrowException, OSError, ValueError):
            reason = (
                f"could not be read: check the address, endpoint and region, whether {STORES[self._scheme]} can be "
                "reached, and the credentials in the environment"
            )
        raise SourceError(f"{where} {reason}")


def _open(uri: str) -> tuple[Any, str]:
    import pyarrow.fs  # makes pa.fs

    filesystem, root = pyarrow.fs.FileSystem.from_uri(uri)
    return filesystem, str(root)
