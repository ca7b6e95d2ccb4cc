"""Tools that cut, pool and fail over PostgreSQL servers; they build on ``arriero.testing.postgres``.

``Pair`` is a primary with a synchronous standby, ``PgBouncer`` a pooler before a server, ``Proxy`` cuts connections at
chosen messages. All that is started here ends with the process that started it, and leaves no folder. Linux only.
"""

from .bouncer import PgBouncer
from .faults import Fault
from .messages import Message, answering, client_sends, executing, server_sends
from .pair import Pair
from .proxy import Proxy

__all__ = [
    "Fault",
    "Message",
    "Pair",
    "PgBouncer",
    "Proxy",
    "answering",
    "client_sends",
    "executing",
    "server_sends",
]
