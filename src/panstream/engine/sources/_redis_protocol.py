"""The part of Redis's protocol (RESP 2) that reading a stream needs, with one buffer that is overwritten.

Client libraries return every field as a bytes object, which cannot be overwritten afterwards; here values are spans of
the buffer.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from panstream.engine.rows.wiping import grow_buffer
from panstream.errors import ConnectionLost, InvalidParameter, RedisCommandError, SourceError, translate_errors

PASSWORD = "PANSTREAM_REDIS_PASSWORD"  # environment variable
Reply: TypeAlias = "bytes | int | list[Reply] | None"
_START_BYTES = 1 << 16
_REPLY_BYTES = 1 << 28  # a larger reply is refused
_NUMBER = re.compile(rb"-?[0-9]{1,18}")
_DEEPEST = 16  # levels of nested lists


class RedisConnection:
    """A connection to Redis: ``redis://[user:password@]host[:port][/db]``, ``rediss://`` for TLS, or ``unix://path``.

    ``rediss://...?ca=FILE`` trusts the certificates in a file. ``?password_file=FILE`` or the environment may hold the
    password, which never gets into messages.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise InvalidParameter("url must begin with redis://, rediss:// or unix://")
        options = parse_qs(parts.query)
        self._parts = parts
        self._timeout = timeout
        self._ca = options.get("ca", [None])[0]
        self._password = _password(parts.password, options.get("password_file", [None])[0])
        database = options.get("db", [""])[0] if parts.scheme == "unix" else parts.path.lstrip("/")
        if database and not database.isdigit():
            raise InvalidParameter("url: the number of the database must be a whole number")
        self._database = int(database or 0)
        self._socket: socket.socket | None = None
        self._data = bytearray(_START_BYTES)
        self._begin = self._end = 0

    @property
    def is_open(self) -> bool:
        """Whether a connection was made and no error has shown since."""
        return self._socket is not None

    @property
    def data(self) -> bytearray:
        """The buffer that the spans of the current reply point into."""
        return self._data

    def connect(self) -> None:
        """Connect, log in and choose the database."""
        self.close()
        self._socket = translate_errors(
            self._dial,
            OSError,
            lambda error: ConnectionLost(f"Redis could not be reached: {error.strerror or type(error).__name__}"),
        )
        if self._password is not None:
            user = [unquote(self._parts.username)] if self._parts.username else []
            self.command("AUTH", *user, self._password)
        if self._database:
            self.command("SELECT", self._database)

    def close(self) -> None:
        """Close the connection and overwrite the buffer."""
        self.forget()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def command(self, *words: str | bytes | int) -> Reply:
        """Send a command and return its reply as objects. Not for replies with data of users: objects are not wiped."""
        self.send(*words)
        reply = self.reply()
        self.forget()
        return reply

    def send(self, *words: str | bytes | int) -> None:
        """Send a command; raise ConnectionLost if the connection is lost."""
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        message = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
        lost = self._socket is None
        try:
            if self._socket is not None:
                self._socket.sendall(message)
        except OSError:
            lost = True
        if lost:
            self._fail()

    def reply(self, depth: int = 0) -> Reply:
        """Return the next value of the reply as an object."""
        kind, number, text = self.head()
        if depth > _DEEPEST:
            self._fail()
        if kind == b"$":
            if number < 0:
                return None
            begin, end = self.span(number)
            return bytes(self._data[begin:end])
        if kind == b"*":
            return None if number < 0 else [self.reply(depth + 1) for _ in range(number)]
        return number if kind == b":" else text

    def head(self, *, wait: float | None = None) -> tuple[bytes, int, bytes]:
        """Return kind, length or number, and text of the next value; raise RedisCommandError for an error reply."""
        while (stop := self._data.find(b"\r\n", self._begin, self._end)) < 0:
            self._receive(wait)
        kind = bytes(self._data[self._begin : self._begin + 1])
        text = bytes(self._data[self._begin + 1 : stop])
        self._begin = stop + 2
        if kind == b"-":
            self.forget()
            if text.startswith((b"LOADING", b"MASTERDOWN")):
                self._fail()
            raise RedisCommandError(f"Redis refused: {text.decode(errors='replace')}")
        if kind not in (b"+", b":", b"$", b"*") or (kind != b"+" and not _NUMBER.fullmatch(text)):
            self._fail()
        return kind, int(text) if kind != b"+" else 0, text

    def span(self, length: int) -> tuple[int, int]:
        """Return start and end of the next ``length`` bytes in the buffer, valid until ``forget``."""
        while self._end < self._begin + length + 2:
            self._receive(None)
        begin = self._begin
        self._begin = self._begin + length + 2
        return begin, begin + length

    def forget(self) -> None:
        """Overwrite everything received so far."""
        self._data[: self._end] = bytes(self._end)
        self._begin = self._end = 0

    def _receive(self, wait: float | None) -> None:
        if self._end == len(self._data):
            self._grow()
        count = 0
        with memoryview(self._data) as view:
            try:
                if self._socket is not None:
                    self._socket.settimeout(self._timeout + (wait or 0.0))
                    count = self._socket.recv_into(view[self._end :])
            except OSError:
                count = 0
        if not count:
            self._fail()
        self._end += count

    def _grow(self) -> None:
        if len(self._data) >= _REPLY_BYTES:
            self.close()
            raise SourceError(f"a reply of Redis is longer than {_REPLY_BYTES} bytes; lower batch_rows")
        self._data = grow_buffer(self._data, self._end, 2 * len(self._data))

    def _fail(self) -> None:
        self.close()
        raise ConnectionLost("the connection to Redis was lost")

    def _dial(self) -> socket.socket:
        parts = self._parts
        if parts.scheme == "unix":
            plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            plain.settimeout(self._timeout)
            try:
                plain.connect(unquote(parts.path))
            except OSError:
                plain.close()
                raise
            return plain
        plain = socket.create_connection((parts.hostname or "localhost", parts.port or 6379), self._timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "redis":
            return plain
        context = ssl.create_default_context(cafile=self._ca)
        return context.wrap_socket(plain, server_hostname=parts.hostname)


def _password(from_address: str | None, file: str | None) -> str | None:
    """Return the password: of the address, of the file that it names, or of the environment."""
    if from_address is not None:
        return unquote(from_address)
    if file is None:
        return os.environ.get(PASSWORD)
    return translate_errors(
        lambda: Path(file).read_text().strip(),
        OSError,
        lambda error: SourceError(f"password_file of the Redis address cannot be read: {error.strerror}"),
    )
