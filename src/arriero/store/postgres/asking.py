"""A connection for one question from outside: of a command, before any store is opened or without one."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from ...errors import SchemaOutdated
from .session import Limits, Session, Statements
from .target import Target
from .translating import translated

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
LIMITS = Limits(lock=10.0, statement=10.0)  # of a transaction of the session; here there is none


def asked(target: Target, work: Callable[[Connection], T]) -> T:
    """What ``work`` answers, given a connection in autocommit mode.

    Raises: StoreError - it cannot be reached, or refuses; SchemaOutdated. Both name the store.
    """
    session = Session(target, Statements(target.schema), limits=LIMITS)
    try:
        return work(session.connected())
    except SchemaOutdated as error:
        raise SchemaOutdated(f"store {target.shown}: {error}") from error
    except psycopg.Error as error:
        raise translated(error, target.shown) from error
    finally:
        session.close()
