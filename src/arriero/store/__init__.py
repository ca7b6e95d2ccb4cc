"""The state store: the durable record and the only truth."""

from pathlib import Path

from ..errors import InvalidInput, NotYetBuilt, StoreError
from .base import StateStore


def open_store(url: str) -> StateStore:
    """A store for a URL; nothing is opened yet.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``memory://``.
    Raises: InvalidInput - an unknown scheme.
    """
    if "\0" in url:
        raise InvalidInput(f"store {url!r} holds a NUL character; use sqlite:///PATH")
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from .sqlite.store import SqliteStore

        return SqliteStore(rest[1:])
    if url == "memory://":
        from .memory import MemoryStore

        return MemoryStore()
    if scheme == "postgresql":
        raise NotYetBuilt(f"store {url!r}: PostgreSQL comes with a later release; use sqlite:///PATH")
    raise InvalidInput(f"store {url!r} is not known; use sqlite:///PATH (four slashes for an absolute path)")


def existing_store(url: str) -> StateStore:
    """A store that somebody made before: for those who only read, and must not make one by a slip of the pen.

    Raises: InvalidInput - an unknown scheme; StoreError - there is no such file, or it is no store of arriero.
    """
    store = open_store(url)
    path = getattr(store, "path", None)
    if path is not None:
        from .sqlite.connection import holds_store

        if not Path(path).exists():
            raise StoreError(f"store {path}: there is no such file; name the right one with --store or ARRIERO_STORE")
        if Path(path).is_file() and not holds_store(path):
            raise StoreError(
                f"store {path}: it holds no tasks of arriero; name the right file with --store or ARRIERO_STORE"
            )
    return store
