"""The messages between a PostgreSQL client and its server (protocol 3.0), recognised one by one.

A message is a letter, four bytes of length (which count themselves) and a body; only the first ones of a client have no
letter. What an ``Execute`` executes stands in messages before it: ``Parse`` gives a statement a name (often the empty
one), ``Bind`` gives a portal of it a name. ``ClientReader`` remembers both, so that a message can be found by its SQL.

Source: PostgreSQL's manual, "Message Formats".
"""

import struct
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

CLIENT_KINDS = {
    "B": "Bind",
    "C": "Close",
    "D": "Describe",
    "E": "Execute",
    "F": "FunctionCall",
    "H": "Flush",
    "P": "Parse",
    "Q": "Query",
    "S": "Sync",
    "X": "Terminate",
    "c": "CopyDone",
    "d": "CopyData",
    "f": "CopyFail",
    "p": "Password",
}
SERVER_KINDS = {
    "1": "ParseComplete",
    "2": "BindComplete",
    "3": "CloseComplete",
    "A": "NotificationResponse",
    "C": "CommandComplete",
    "D": "DataRow",
    "E": "ErrorResponse",
    "G": "CopyInResponse",
    "H": "CopyOutResponse",
    "I": "EmptyQueryResponse",
    "K": "BackendKeyData",
    "N": "NoticeResponse",
    "R": "Authentication",
    "S": "ParameterStatus",
    "T": "RowDescription",
    "V": "FunctionCallResponse",
    "W": "CopyBothResponse",
    "Z": "ReadyForQuery",
    "c": "CopyDone",
    "d": "CopyData",
    "n": "NoData",
    "s": "PortalSuspended",
    "t": "ParameterDescription",
    "v": "NegotiateProtocolVersion",
}
FIRST_KINDS = {80_877_102: "CancelRequest", 80_877_103: "SSLRequest", 80_877_104: "GSSENCRequest"}  # else Startup
ENCRYPTION_REQUESTS = ("SSLRequest", "GSSENCRequest")

Side = Literal["client", "server"]


class Message(NamedTuple):
    """One message as it went over the wire."""

    side: Side  # who sent it
    kind: str  # its name in the manual
    text: str  # a client's: the SQL that it parses, binds or executes; a server's: a command's tag, an error's code
    data: bytes  # all of it

    @property
    def executes(self) -> bool:
        """Whether the server carries out a statement because of it."""
        return self.kind in ("Query", "Execute")

    @property
    def asks_for_ready(self) -> bool:
        """Whether the server answers it with one ReadyForQuery, after everything else."""
        return self.kind in ("Startup", "Query", "Sync", "FunctionCall")


Predicate = Callable[[Message], bool]


def executing(statement: str) -> Predicate:
    """The client's messages that have the server carry out a statement that begins so, in either protocol."""
    return lambda message: message.side == "client" and message.executes and _begins(message.text, statement)


def answering(tag: str) -> Predicate:
    """The server's messages that say that a command is complete; ``tag`` is how its tag begins: COMMIT, INSERT, ..."""
    return lambda message: message.kind == "CommandComplete" and _begins(message.text, tag)


def client_sends(kind: str) -> Predicate:
    """The client's messages of a kind."""
    return lambda message: message.side == "client" and message.kind == kind


def server_sends(kind: str) -> Predicate:
    """The server's messages of a kind."""
    return lambda message: message.side == "server" and message.kind == kind


def _begins(text: str, beginning: str) -> bool:
    return text.lstrip().upper().startswith(beginning.upper())


class ClientReader:
    """Cuts what a client sends into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._started = False
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def read(self, data: bytes) -> Iterator[Message]:
        """Take more bytes. Yields: each message that is complete with them."""
        self._buffer += data
        while whole := _cut(self._buffer, letters=1 if self._started else 0):
            if self._started:
                kind = CLIENT_KINDS.get(chr(whole[0]), chr(whole[0]))
                yield Message("client", kind, self._text(kind, whole[5:]), whole)
            else:
                yield self._first(whole)

    def _first(self, whole: bytes) -> Message:
        kind = FIRST_KINDS.get(struct.unpack_from("!I", whole, 4)[0], "Startup")
        self._started = kind == "Startup"
        text = whole[8:].replace(b"\0", b" ").decode(errors="replace").strip() if self._started else ""
        return Message("client", kind, text, whole)

    def _text(self, kind: str, body: bytes) -> str:
        if kind == "Query":
            return _string(body)
        if kind == "Parse":
            name, _, rest = body.partition(b"\0")
            self._statements[name] = _string(rest)
            return self._statements[name]
        if kind == "Bind":
            portal, _, rest = body.partition(b"\0")
            self._portals[portal] = self._statements.get(rest.partition(b"\0")[0], "")
            return self._portals[portal]
        if kind == "Execute":
            return self._portals.get(body.partition(b"\0")[0], "")
        return ""


class ServerReader:
    """Cuts what a server sends into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def read(self, data: bytes) -> Iterator[Message]:
        """Take more bytes. Yields: each message that is complete with them."""
        self._buffer += data
        while whole := _cut(self._buffer, letters=1):
            kind = SERVER_KINDS.get(chr(whole[0]), chr(whole[0]))
            yield Message("server", kind, _server_text(kind, whole[5:]), whole)


def _server_text(kind: str, body: bytes) -> str:
    if kind == "CommandComplete":
        return _string(body)
    if kind in ("ErrorResponse", "NoticeResponse"):
        fields = {field[:1]: field[1:].decode(errors="replace") for field in body.split(b"\0") if field}
        return f"{fields.get(b'C', '')} {fields.get(b'M', '')}"
    return ""


def _cut(buffer: bytearray, letters: int) -> bytes:
    """Take the first message off the buffer; nothing if it is not complete yet."""
    if len(buffer) < letters + 4:
        return b""
    length: int = letters + struct.unpack_from("!I", buffer, letters)[0]
    if len(buffer) < length:
        return b""
    whole = bytes(buffer[:length])
    del buffer[:length]
    return whole


def _string(body: bytes) -> str:
    return body.partition(b"\0")[0].decode(errors="replace")
