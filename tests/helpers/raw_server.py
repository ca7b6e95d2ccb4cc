"""A server on loopback that does to each connection what its script says, byte by byte."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[["RawServer", socket.socket], None]


class RawServer:
    """``received``: the whole requests that it has read, in order."""

    def __init__(self, listening: socket.socket, scripts: tuple[Script, ...]) -> None:
        self._listening = listening
        self._scripts = scripts
        self.received: list[bytes] = []
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def serve(self) -> None:
        for script in self._scripts:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed: the test is over
                return
            with connection, suppress(OSError):
                script(self, connection)

    def read(self, connection: socket.socket) -> bytes:
        """Read one request with its body."""
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return data
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        self.received.append(head + b"\r\n\r\n" + body)
        return self.received[-1]


@contextmanager
def raw_server(*scripts: Script) -> Iterator[RawServer]:
    """Serve one connection for each script, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = RawServer(listening, scripts)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
            thread.join(60)


def answer(data: bytes) -> Script:
    """Read the request, send ``data`` and close."""

    def script(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        connection.sendall(data)

    return script


def find_refusing_port() -> int:
    """A port of loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
