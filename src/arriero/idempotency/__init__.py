"""Idempotent receivers: each call under an idempotency key takes effect once, in the service's own database.

::

    with connection, idempotent(connection, key, request=body) as call:
        if call.is_new:
            number = book_charge(connection, body)
            call.keep({"number": number})
    return call.answer

The effect, the key and the answer commit together, because all of it is in the transaction of the caller. The connection is
a ``sqlite3.Connection``, one of psycopg, a Session or Connection of SQLAlchemy, or Django's; async ones with ``async with``.
"""

from .calls import IdempotentCall, bar_key, drop_keys, idempotent
from .scripts import SCHEMA, BarredKey

__all__ = ["SCHEMA", "BarredKey", "IdempotentCall", "bar_key", "drop_keys", "idempotent"]
