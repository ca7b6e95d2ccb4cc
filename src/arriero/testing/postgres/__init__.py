"""Real PostgreSQL servers for tests, examples and benchmarks; with ways to kill, freeze and cut them.

with Server.start(16) as server:
    url = server.create_database("shop")

``Pair`` is a primary with a synchronous standby, ``PgBouncer`` a pooler before a server, ``Proxy`` cuts connections at
chosen messages. Everything started here ends with the process that started it, and leaves no folder. Linux only.

``python -m arriero.testing.postgres`` runs one in the foreground.
"""

from .binaries import installations
from .bouncer import PgBouncer
from .failures import NotInstalled, ProgramFailed
from .faults import Fault
from .messages import Message, answering, client_sends, executing, server_sends
from .pair import Pair
from .proxy import Proxy
from .server import Server

__all__ = [
    "Fault",
    "Message",
    "NotInstalled",
    "Pair",
    "PgBouncer",
    "ProgramFailed",
    "Proxy",
    "Server",
    "answering",
    "client_sends",
    "executing",
    "installations",
    "server_sends",
]
