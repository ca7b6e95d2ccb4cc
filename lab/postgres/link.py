"""One client's connection through a proxy: two sockets, and a thread for each direction."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from .faults import Fault
from .messages import ENCRYPTION_REQUESTS, ClientReader, Message, ServerReader

CHUNK_BYTES = 65_536
JOIN_SECONDS = 5.0
BREAK_OFF = struct.pack("ii", 1, 0)  # SO_LINGER: to close is to reset


class Rules(Protocol):
    """What a link asks its proxy."""

    def see(self, message: Message) -> None:
        """A message came by; returns when messages flow."""

    def fault_at(self, message: Message) -> Fault | None:
        """What shall happen at it."""

    def forget(self, link: "Link") -> None:
        """The connection has ended."""


class Losing(NamedTuple):
    """A client's message was carried out or soon will be, and its answer is being lost."""

    fault: Fault
    message: Message
    ready_number: int  # the ReadyForQuery that ends its answer


class Link:
    """Passes messages on, one by one, and does to them what the proxy's faults say."""

    def __init__(self, rules: Rules, client: socket.socket, server: socket.socket) -> None:
        self._rules = rules
        self._client = client
        self._server = server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._running = 2
        self._is_cut = False
        self._keeps_server = False
        self._ready_asked = 0  # by the client's messages that were passed on
        self._ready_told = 0  # by the server
        self._losing: Losing | None = None
        self._lost: list[Message] = []

    def start(self) -> None:
        """Begin to pass on."""
        self._threads = [
            start_thread(self._run, self._to_server, self._end_requests),
            start_thread(self._run, self._to_client, self._end_answers),
        ]

    def join(self) -> None:
        """Wait until both threads have ended, after ``cut``."""
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def cut(self, *, reset: bool = False, keep_server: bool = False) -> None:
        """Cut it. The threads wake up in their sockets, and the last one closes both."""
        self._is_cut = True
        self._keeps_server = keep_server
        if reset:
            with suppress(OSError):  # it was removed before
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BREAK_OFF)
        _shut(self._client, socket.SHUT_RD if reset else socket.SHUT_RDWR)
        if not keep_server:
            _shut(self._server, socket.SHUT_RDWR)

    def _run(self, pass_all_on: Callable[[], None], then: Callable[[], None]) -> None:
        with suppress(OSError):  # an end no longer exists
            pass_all_on()
        then()
        with self._lock:
            self._running -= 1
            is_last = not self._running
        if is_last:
            self._client.close()
            self._server.close()
            self._rules.forget(self)

    def _to_server(self) -> None:
        reader = ClientReader()
        while data := self._client.recv(CHUNK_BYTES):
            for message in reader.read(data):
                if message.kind in ENCRYPTION_REQUESTS:
                    self._client.sendall(b"N")
                    continue
                self._rules.see(message)
                if self._is_cut or not self._pass_request(message, self._rules.fault_at(message)):
                    return

    def _end_requests(self) -> None:
        """The client has said its last; what the server still says is passed on."""
        if not self._keeps_server:
            _shut(self._server, socket.SHUT_WR)

    def _to_client(self) -> None:
        reader = ServerReader()
        while data := self._server.recv(CHUNK_BYTES):
            for message in reader.read(data):
                self._rules.see(message)
                self._ready_told += message.kind == "ReadyForQuery"
                if not self._is_cut and not self._lose(message):
                    self._pass_answer(message, self._rules.fault_at(message))

    def _end_answers(self) -> None:
        """The server has said its last, or nobody listens to it."""
        self._end_losing()
        if not self._is_cut:
            # Only half of the client's end, so that its next request does not destroy what it has not read yet.
            _shut(self._client, socket.SHUT_WR)
            _shut(self._server, socket.SHUT_RDWR)

    def _pass_request(self, message: Message, fault: Fault | None) -> bool:
        if fault is not None and fault.action == "cut_after":
            with self._lock:  # known before it is sent, for its answer may come immediately
                self._losing = Losing(fault, message, self._ready_asked + 1)
            fault = None
        if fault is None or fault.action == "hold":
            self._ready_asked += message.asks_for_ready
        return self._pass(message, fault, self._server)

    def _pass_answer(self, message: Message, fault: Fault | None) -> None:
        try:
            self._pass(message, fault, self._client)
        except OSError:
            if not self._is_cut:  # else continue reading: the server's end may have to stay open
                raise

    def _pass(self, message: Message, fault: Fault | None, receiver: socket.socket) -> bool:
        """Send it on, or do to it what the fault says. Returns: whether this direction continues."""
        if fault is not None and fault.action == "hold":
            fault.note(message)
            fault.hold_while(lambda: not self._is_cut)
            if self._is_cut:
                return False
            fault = None
        if fault is None:
            receiver.sendall(message.data)
            return True
        whole = len(message.data)
        sent = {"cut_before": 0, "cut_within": whole // 2, "cut_after": whole}[fault.action]
        receiver.sendall(message.data[:sent])
        self.cut(keep_server=fault.keep_server)
        fault.note(message)
        return False

    def _lose(self, message: Message) -> bool:
        """Whether a server's message belongs to what is being lost; the last one ends it."""
        with self._lock:
            losing = self._losing
        if losing is None:
            return False
        self._lost.append(message)
        if self._ready_told >= losing.ready_number:
            self._end_losing()
        return True

    def _end_losing(self) -> None:
        with self._lock:
            losing, self._losing = self._losing, None
        if losing is not None:
            self.cut(keep_server=losing.fault.keep_server)
            losing.fault.note(losing.message, tuple(self._lost))


def start_thread(target: Callable[..., None], *args: object) -> threading.Thread:
    """Start a thread that does not keep the program from ending."""
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def _shut(end: socket.socket, how: int) -> None:
    with suppress(OSError):  # it was removed before
        end.shutdown(how)
