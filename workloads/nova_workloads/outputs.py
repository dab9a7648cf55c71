"""Where a replay's tuples go: standard output, files, TCP sockets, Kafka."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

from nova_core import extras
from nova_core.errors import NovaError
from nova_core.io.safe_files import atomic_write

RETRY = 0.2  # seconds between attempts to connect
DELIVERY = 30  # seconds a broker gets to confirm what is on its way
TARGETS = (
    "-, a file, tcp://HOST:PORT (connect), tcp-listen://HOST:PORT (wait for a reader) "
    "or kafka://HOST:PORT/TOPIC"
)


class Output(Protocol):
    """A place for lines.

    Attributes:
        name: what people call it.
        is_file: whether it begins with a header.
    """

    name: str
    is_file: bool

    def ready(self) -> bool:
        """Pass on waiting data; returns whether none is left and more may be written."""

    def write(self, data: bytes) -> None:
        """Take lines; those that cannot be passed on at once wait."""

    def close(self, wait: float | None) -> None:
        """Pass everything on and end, within so many seconds where a number is given."""

    def abort(self) -> None:
        """Drop everything, after an error."""


class StreamOutput:
    """Standard output, or a file that appears under its name when it is complete."""

    def __init__(self, path: Path | None) -> None:
        self.name = "standard output" if path is None else str(path)
        self.is_file = path is not None
        self._stack = ExitStack()
        self._file: IO[bytes] = (
            sys.stdout.buffer if path is None else self._stack.enter_context(atomic_write(path))
        )

    def ready(self) -> bool:
        """Always: writing waits for the reader."""
        return True

    def write(self, data: bytes) -> None:
        """Write; a pipe's reader sees it at once."""
        try:
            self._file.write(data)
            if not self.is_file:
                self._file.flush()
        except BrokenPipeError:
            raise  # whoever reads standard output has left, which is no error
        except OSError as error:
            raise NovaError(f"{self.name}: cannot be written: {error.strerror}") from error

    def close(self, wait: float | None) -> None:
        """Name the file."""
        self._stack.close()

    def abort(self) -> None:
        """Leave no file behind."""
        error = NovaError("aborted")
        self._stack.__exit__(type(error), error, None)


class SocketOutput:
    """A TCP connection. What the reader does not take is kept, up to one batch."""

    is_file = False

    def __init__(self, name: str, connection: socket.socket) -> None:
        self.name = name
        self._socket = connection
        self._waiting = memoryview(b"")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)

    def _send(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[self._socket.send(self._waiting) :]
        except BlockingIOError:
            pass
        except TimeoutError as error:
            raise NovaError(f"{self.name}: the reader takes nothing any more") from error
        except OSError as error:
            raise NovaError(f"{self.name}: the reader has left: {error.strerror}") from error

    def ready(self) -> bool:
        """Whether the reader has taken everything."""
        if self._waiting:
            self._send()
        return not self._waiting

    def write(self, data: bytes) -> None:
        """Send what the reader takes now."""
        self._waiting = memoryview(data)
        self._send()

    def close(self, wait: float | None) -> None:
        """Wait for the reader to take the rest."""
        self._socket.settimeout(wait)
        try:
            self._send()
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise NovaError(f"{self.name}: the reader has left: {error}") from error
        finally:
            self._socket.close()

    def abort(self) -> None:
        """Hang up."""
        self._socket.close()


class KafkaOutput:
    """A topic, one message per tuple; the key is the sensor, so that its tuples keep their order.

    Outputs of one replay share a producer.
    """

    is_file = False

    def __init__(self, producer: Any, topic: str, key: str) -> None:
        from kafka.errors import KafkaError

        self.name = f"topic {topic}"
        self._producer, self._topic, self._key = producer, topic, key.encode()
        self._failed = 0
        self._reason = ""
        try:
            # Asking for the topic now keeps the first message from waiting for the answer.
            producer.partitions_for(topic)
        except KafkaError as error:
            raise NovaError(f"{self.name}: cannot be written: {error}") from error

    def _fail(self, error: BaseException) -> None:
        self._failed += 1
        self._reason = str(error) or type(error).__name__

    def ready(self) -> bool:
        """Unless a message was refused; a full producer waits when it is written to."""
        self._check()
        return True

    def _check(self) -> None:
        if self._failed:
            raise NovaError(f"{self.name}: {self._failed} messages not delivered: {self._reason}")

    def write(self, data: bytes) -> None:
        """Hand each line to the producer."""
        from kafka.errors import KafkaError

        try:
            for line in data.splitlines():
                self._producer.send(self._topic, line, self._key).add_errback(self._fail)
        except KafkaError as error:
            raise NovaError(f"{self.name}: cannot be written: {error}") from error

    def close(self, wait: float | None) -> None:
        """Wait until the broker has everything."""
        from kafka.errors import KafkaError

        try:
            self._producer.flush(timeout=DELIVERY if wait is None else wait)
            # Closing once more, for the next output that shares it, does nothing.
            self._producer.close(timeout=DELIVERY)
        except KafkaError as error:
            raise NovaError(f"{self.name}: not everything was delivered: {error}") from error
        self._check()

    def abort(self) -> None:
        """Drop what is waiting."""
        self._producer.close(timeout=0)


@dataclass(frozen=True)
class Target:
    """A target as written on the command line.

    Attributes:
        kind: ``stdout``, ``file``, ``tcp``, ``tcp-listen`` or ``kafka``.
        path: of a file.
        host: of a socket or broker.
        port: of it.
        topic: of Kafka.
    """

    kind: str
    path: Path | None = None
    host: str = ""
    port: int = 0
    topic: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target.

        Raises:
            NovaError: saying what would be accepted.
        """
        if text == "-":
            return cls("stdout")
        if "://" not in text:
            return cls("file", path=Path(text))
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise NovaError(f"--to {text}: {error}; expected {TARGETS}") from error
        topic = parts.path.strip("/")
        if (
            parts.scheme not in ("tcp", "tcp-listen", "kafka")
            or not host
            or port is None
            or bool(topic) is not (parts.scheme == "kafka")
            or re.search(r"[^\w.-]", topic, re.ASCII)
        ):
            raise NovaError(f"--to {text}: expected {TARGETS}")
        return cls(parts.scheme, host=host, port=port, topic=topic)

    def open(
        self, names: list[str], keys: list[str], wait: float, say: Callable[[str], None]
    ) -> list[Output]:
        """Open an output per part of a replay.

        Parts of a file have their name appended to the file's, parts on sockets have one port
        after the other, parts in Kafka a topic each.

        Args:
            names: of the parts; a single empty name means that there are no parts.
            keys: of the messages of each part, for Kafka.
            wait: seconds to wait for the other side.
            say: called with a message that names what is waited for.

        Raises:
            NovaError: when the other side is not there.
        """
        if self.kind == "stdout":
            if len(names) > 1:
                raise NovaError("--split: standard output is one stream; give --to")
            return [StreamOutput(None)]
        opened: list[Output] = []
        try:
            if self.kind == "kafka":
                producer = _producer(f"{self.host}:{self.port}", wait)
                for name, key in zip(names, keys, strict=True):
                    opened.append(KafkaOutput(producer, self._suffixed(self.topic, name), key))
            elif self.path is not None:
                for name in names:
                    suffix = "".join(self.path.suffixes)
                    stem = self.path.name.removesuffix(suffix)
                    opened.append(
                        StreamOutput(self.path.with_name(self._suffixed(stem, name) + suffix))
                    )
            elif self.kind == "tcp":
                opened.extend(_connect(self.host, self.port + i, wait) for i in range(len(names)))
            else:
                self._accept(len(names), wait, say, opened)
        except BaseException:
            for output in opened:
                output.abort()
            raise
        return opened

    @staticmethod
    def _suffixed(text: str, name: str) -> str:
        return text + ("-" + re.sub(r"[^\w.-]", "_", name, flags=re.ASCII) if name else "")

    def _accept(
        self, count: int, wait: float, say: Callable[[str], None], opened: list[Output]
    ) -> None:
        with ExitStack() as stack:
            listeners = []
            for number in range(count):
                port = self.port + number if self.port else 0
                try:
                    family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
                    listener = socket.create_server((self.host, port), family=family)
                except OSError as error:
                    raise NovaError(
                        f"tcp-listen://{self.host}:{port}: cannot listen: {error.strerror or error}"
                    ) from error
                listeners.append(stack.enter_context(listener))
            ports = [listener.getsockname()[1] for listener in listeners]
            say(f"waiting for readers on {self.host}, port {', '.join(map(str, ports))}")
            end = time.monotonic() + wait
            for port, listener in zip(ports, listeners, strict=True):
                listener.settimeout(max(end - time.monotonic(), 0.001))
                try:
                    connection, _ = listener.accept()
                except TimeoutError as error:
                    raise NovaError(
                        f"tcp-listen://{self.host}:{port}: no reader came within {wait:g} s"
                    ) from error
                opened.append(SocketOutput(f"port {port}", connection))


def _connect(host: str, port: int, wait: float) -> SocketOutput:
    end = time.monotonic() + wait
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=max(wait, 1.0))
        except OSError as error:
            if time.monotonic() >= end or isinstance(error, socket.gaierror):
                raise NovaError(
                    f"tcp://{host}:{port}: cannot connect: {error.strerror or error}"
                ) from error
            time.sleep(RETRY)
        else:
            return SocketOutput(f"{host}:{port}", connection)


def _producer(server: str, wait: float) -> Any:
    with extras.needed(f"kafka://{server}"):
        from kafka import KafkaProducer
        from kafka.errors import KafkaError
    try:
        return KafkaProducer(
            bootstrap_servers=server,
            linger_ms=2,
            acks=1,
            bootstrap_timeout_ms=max(int(wait * 1000), 1),
        )
    except KafkaError as error:
        raise NovaError(f"kafka://{server}: cannot connect: {error}") from error
