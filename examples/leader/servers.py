"""Where the example keeps its leases: a server on this machine for each provider."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = {"store": 2.0}
"""The duration of a lease by provider: short, so that the example is."""


class Unavailable(Exception):
    """The provider's server is not installed here."""


@contextmanager
def start_provider(name: str, folder: Path) -> Iterator[str]:
    """Start the server of a provider; gives the URL of its leases. Raises Unavailable."""
    yield f"sqlite:///{folder / 'leader.db'}"
