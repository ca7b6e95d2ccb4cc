"""NATS for the tests of leases: one server for each test worker."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lease_providers import PROVIDERS, LeaseProvider

from arriero.leases import Lease
from arriero.leases.nats import NatsLease
from lab.lease_servers.nats import NatsServer, start_nats

LAPSE_SECONDS_MAX = 60.0  # a wait, not a measure


class NatsProvider(LeaseProvider):
    """Leases in a bucket that does not exist yet."""

    bad_name = "two words"

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._bucket = f"leases-{uuid.uuid4().hex}"

    @property
    def url(self) -> str:
        return self._server.url(self._bucket)

    def lease(self, name: str) -> NatsLease:
        return NatsLease(self.url, name)

    def unreachable(self, name: str) -> NatsLease:
        return NatsLease("nats://127.0.0.1:1/nothing", name)

    async def lapse(self, lease: Lease) -> None:
        """Wait the time out, by the server's clock."""
        async with asyncio.timeout(LAPSE_SECONDS_MAX), lease.connected() as connection:
            while (await connection.inspect()).holder:
                await connection.wait_for_change(0.05)


@asynccontextmanager
async def open_nats_provider(folder: Path) -> AsyncIterator[LeaseProvider]:
    """A bucket of its own for each test."""
    yield NatsProvider(start_nats())


PROVIDERS["nats"] = open_nats_provider
