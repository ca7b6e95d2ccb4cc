"""Servers of the providers of leases, started on this machine: for tests, examples and measurements."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from .unavailable import Unavailable

__all__ = ["PROVIDERS", "Unavailable", "start_lease_server"]

PROVIDERS = ("azure", "etcd", "nats", "zookeeper")


@contextmanager
def start_lease_server(provider: str) -> Iterator[str]:
    """Start a server of a provider; gives the URL of its leases. It ends with the block, or with this process.

    Credentials go into the environment, which child processes inherit. Raises Unavailable.
    """
    place = f"leases-{uuid.uuid4().hex[:8]}"
    if provider == "azure":
        from .azurite import KEY, Azurite

        azurite = Azurite()
        azurite.start()
        os.environ["AZURE_STORAGE_KEY"] = KEY
        try:
            yield azurite.url(place)
        finally:
            azurite.close()
    elif provider == "nats":
        from .nats import NatsServer

        nats = NatsServer()
        nats.start()
        try:
            yield nats.url(place)
        finally:
            nats.close()
    elif provider == "etcd":
        from .etcd import start_etcd

        etcd = start_etcd()
        try:
            yield f"etcd+http://127.0.0.1:{etcd.port}/{place}"
        finally:
            etcd.remove()
    elif provider == "zookeeper":
        from .zookeeper import start_zookeeper

        zookeeper = start_zookeeper()
        try:
            yield f"zookeeper://127.0.0.1:{zookeeper.port}/{place}"
        finally:
            zookeeper.remove()
    else:
        raise ValueError(f"provider {provider!r} is not known; providers are {', '.join(PROVIDERS)}")
