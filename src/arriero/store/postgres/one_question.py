"""Short-lived connection for one query of a CLI command, without an open store."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from ...errors import SchemaOutdated
from .session import PostgresSession, Statements, TransactionLimits
from .target import Target
from .translating import translate_error

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
LIMITS = TransactionLimits(lock=10.0, statement=10.0)  # of a transaction of the session; here there is none


def ask_once(target: Target, work: Callable[[Connection], T]) -> T:
    """Run ``work`` on a new connection in autocommit mode, and close that.

    Raises: StoreError - it cannot be reached, or refuses; SchemaOutdated. Both name the store.
    """
    session = PostgresSession(target, Statements(target.schema), limits=LIMITS)
    try:
        return work(session.get_connection())
    except SchemaOutdated as error:
        raise SchemaOutdated(f"store {target.shown}: {error}") from error
    except psycopg.Error as error:
        raise translate_error(error, target.shown) from error
    finally:
        session.close()
