"""Where the example keeps its leases: a server on this machine for each provider."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.lease_servers import start_lease_server

SECONDS = {"store": 2.0, "azure": 15.0, "zookeeper": 4.0, "etcd": 2.0, "nats": 2.0}
"""The duration of a lease by provider: short, so that the example is. Azure takes no shorter one."""


@contextmanager
def start_provider(name: str, folder: Path) -> Iterator[str]:
    """Start the server of a provider; gives the URL of its leases. Raises Unavailable."""
    if name == "store":
        yield f"sqlite:///{folder / 'leader.db'}"
        return
    with start_lease_server(name) as url:
        yield url
