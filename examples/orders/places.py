"""Where a demonstration keeps its tasks and, beside them, the shop's own table of orders.

Two kinds of databases, one small seam: their names for the tables, how a transaction of the shop's begins, and how the
demonstration gets a place that is its own. What is asked of the tables is the same for both, and stands with who asks.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from arriero import ArrieroError
from arriero.store import open_store

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


class UnusablePlace(Exception):
    """The demonstration cannot keep its tasks there; the message says why, and shows no password."""


class NotReadable(Exception):
    """The tasks cannot be read: the tables are not there yet, or the server does not answer."""


class Rows(Protocol):
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Connection(Protocol):
    """What connections of both kinds have in common."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...


class Place(Protocol):
    """See the module."""

    @property
    def url(self) -> str:
        """For the processes that work there; it may hold a password."""

    @property
    def announcement(self) -> str | None:
        """Tells people where the tasks are, if that is worth telling."""

    @property
    def tables(self) -> Mapping[str, str]:
        """The tables ``task``, ``step``, ``process``, ``breaker``, ``lease``, ``shop_order`` by name; the ``mark`` of a parameter."""

    @property
    def conflicts(self) -> tuple[type[Exception], ...]:
        """After these errors a transaction has to be run again: another one came first."""

    def made(self, *, keep: bool) -> AbstractContextManager[None]:
        """Have the place to oneself, from nothing. Raises: UnusablePlace - something is there already."""

    def reading(self) -> AbstractContextManager[Connection]:
        """One snapshot of the tables. Raises: NotReadable."""

    def connected(self) -> AbstractContextManager[Any]:
        """A connection of the shop's own, fit for ``submit(connection=)``."""

    def transaction(self, connection: Any) -> AbstractContextManager[None]:
        """All that is done on the connection inside, or nothing."""

    def space_statements(self) -> Iterable[str]:
        """What the shop's table needs before it can be made."""


def place_of(url: str) -> Place:
    """The place that a store's URL names; nothing is opened yet. Raises: UnusablePlace - another kind of store."""
    _refuse_unreadable(url)
    if url.startswith(SQLITE):
        from .place_in_file import FilePlace

        return FilePlace(Path(url.removeprefix(SQLITE)))
    from .place_on_server import ServerPlace

    return ServerPlace(url)


def new_place(store: str | None, folder: Path) -> Place:
    """A place for one demonstration.

    Args:
        store: a file that does not exist yet; or a database on a server, in which a schema of the demonstration's own
            is made, under the name that the URL gives, else under one that nobody has; None: a file in ``folder``.
    Raises: UnusablePlace - another kind of store, or a URL that cannot be read.
    """
    if store is None:
        return place_of(f"{SQLITE}{folder / 'tasks.sqlite'}")
    _refuse_unreadable(store)
    if store.startswith(POSTGRES):
        from .place_on_server import named_schema, with_schema

        if named_schema(store) is None:
            store = with_schema(store, f"demo_{secrets.token_hex(4)}")
    return place_of(store)


def _refuse_unreadable(url: str) -> None:
    if not url.startswith((SQLITE, *POSTGRES)):
        raise UnusablePlace("the demo keeps its tasks in a file, sqlite:///PATH, or on PostgreSQL, postgresql://...")
    try:
        open_store(url)  # opens nothing; also refuses where the driver is not installed
    except (ArrieroError, ValueError) as error:
        raise UnusablePlace(str(error)) from error
