"""A TCP proxy between clients and a server that cuts or holds connections at chosen messages.

    with Proxy.start(server) as proxy:
        fault = proxy.cut_after(executing("COMMIT"))  # it is committed, and nobody is notified
        ...                                           # a client of proxy.url("shop") commits and loses its connection
        fault.wait()

A fault is armed before its message comes and happens once, at the n-th message that its predicate matches, counted over
all connections from then on. The proxy refuses encryption, so it can read everything.

It runs in threads of this process: the one who blocks them, as libpq's own blocking calls do (``pgconn.get_result``), waits
indefinitely. psycopg's ordinary calls do not.
"""

import socket
import threading
from collections import deque
from typing import Protocol, Self
from urllib.parse import quote

from arriero.testing.postgres.binaries import listener, port_of
from arriero.testing.postgres.server import login

from .faults import Action, Fault
from .link import JOIN_SECONDS, Link, start_thread
from .messages import Message, Predicate

SEEN_MAX = 10_000  # messages kept for the one who wants to know what went by


class Listening(Protocol):
    """What a proxy can stand before: a Server, a PgBouncer, another Proxy."""

    port: int
    password: str


class Proxy:
    """A running proxy; made by ``start``. As a context manager it is stopped at the end."""

    def __init__(self, server: Listening, listening: socket.socket) -> None:
        self.port = port_of(listening)
        self.password = server.password
        self.seen: deque[Message] = deque(maxlen=SEEN_MAX)
        """The last messages of both sides, also those that were not passed on."""
        self._server_port = server.port
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._links: set[Link] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener: socket.socket | None = listening
        self._acceptor = start_thread(self._accept_from, listening)

    @classmethod
    def start(cls, server: Listening) -> Self:
        """Start one before a server on this machine.

        Raises: ProgramFailed - no port is free.
        """
        return cls(server, listener())

    def url(self, database: str = "postgres", user: str | None = None) -> str:
        """How to reach a database of the server through the proxy."""
        return f"postgresql://{login(user, self.password)}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def cut_before(self, when: Predicate, *, nth: int = 1, keep_server: bool = False) -> Fault:
        """Cut the connection before a message is passed on: it never arrives.

        Args:
            when: which messages, of either side; see ``executing``, ``answering``, ``client_sends``, ``server_sends``.
            nth: which of them, from 1.
            keep_server: only the client is cut off. The server hears nothing of that, and its session stays as it is
                until the proxy's ``cut`` or ``stop``.
        """
        return self._arm("cut_before", when, nth, keep_server)

    def cut_within(self, when: Predicate, *, nth: int = 1, keep_server: bool = False) -> Fault:
        """Pass on half of a message's bytes, then cut the connection. Args: as ``cut_before``."""
        return self._arm("cut_within", when, nth, keep_server)

    def cut_after(self, when: Predicate, *, nth: int = 1, keep_server: bool = False) -> Fault:
        """Pass a message on, then cut the connection.

        Of a client's message the answer is lost, and it is certain that there was one: from the message on nothing
        goes back to the client from then on, and it is cut off when the server is ready for the next request, or gone.
        What the server said stands in the fault's ``model.answers``. After a server's message the cut comes immediately.
        Args: as ``cut_before``.
        """
        return self._arm("cut_after", when, nth, keep_server)

    def hold(self, when: Predicate, *, nth: int = 1) -> Fault:
        """Hold a message, and what follows it the same way, until the fault's ``release``; nothing is cut.

        If its sender gives up meanwhile, the message still arrives after the release, as one does that was in transit.
        """
        return self._arm("hold", when, nth, False)

    def disarm(self) -> None:
        """Forget all faults that have not happened."""
        with self._lock:
            self._faults.clear()

    def stall(self) -> None:
        """Pass nothing on, either way, of any connection or of new ones, until ``flow``. Nothing is cut or lost."""
        self._flowing.clear()

    def flow(self) -> None:
        """End a ``stall``."""
        self._flowing.set()

    def cut(self, *, reset: bool = False) -> None:
        """Cut all connections now.

        Args:
            reset: the client's are reset instead of closed, as by a machine that has forgotten them.
        """
        for link in self._standing():
            link.cut(reset=reset)

    def refuse(self) -> None:
        """Refuse new connections until ``accept``; those that stand are left alone."""
        if self._listener is None:
            return
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in it
        self._acceptor.join(JOIN_SECONDS)
        self._listener.close()
        self._listener = None

    def accept(self) -> None:
        """Take new connections again."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._acceptor = start_thread(self._accept_from, self._listener)

    @property
    def connections(self) -> int:
        """How many connections stand, also those of which only the server's end does."""
        return len(self._standing())

    def stop(self) -> None:
        """Refuse, cut everything, end all threads. Again is not an error."""
        self.refuse()
        self.flow()
        for link in self._standing():
            link.cut()
            link.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What its links ask it.

    def see(self, message: Message) -> None:
        """A message came by; returns when messages flow."""
        self.seen.append(message)
        self._flowing.wait()

    def fault_at(self, message: Message) -> Fault | None:
        """Count a message. Returns: what shall happen at it, of several faults the one armed first."""
        with self._lock:
            due = [fault for fault in self._faults if fault.takes(message)]
            for fault in due[:1]:
                self._faults.remove(fault)
        return due[0] if due else None

    def forget(self, link: Link) -> None:
        """The connection has ended."""
        with self._lock:
            self._links.discard(link)

    def _arm(self, action: Action, when: Predicate, nth: int, keep_server: bool) -> Fault:
        fault = Fault(action, when, nth, keep_server)
        with self._lock:
            self._faults.append(fault)
        return fault

    def _standing(self) -> list[Link]:
        with self._lock:
            return list(self._links)

    def _accept_from(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return  # it refuses from now on
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            link = Link(self, client, server)
            with self._lock:
                self._links.add(link)
            link.start()
