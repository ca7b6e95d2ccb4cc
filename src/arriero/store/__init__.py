"""The state store: the durable record and the only truth."""

from ..errors import InvalidInput
from .base import StateStore


def open_store(url: str) -> StateStore:
    """A store for a URL; nothing is opened yet.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``memory://``.
    Raises: InvalidInput - an unknown scheme.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from .sqlite.store import SqliteStore

        return SqliteStore(rest[1:])
    if url == "memory://":
        from .memory import MemoryStore

        return MemoryStore()
    if scheme == "postgresql":
        raise InvalidInput(f"store {url!r}: PostgreSQL comes with a later release; use sqlite:///PATH")
    raise InvalidInput(f"store {url!r} is not known; use sqlite:///PATH (four slashes for an absolute path)")
