"""Azure Blob for the tests of leases: the emulator Azurite, one for each test worker."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lease_providers import PROVIDERS, LeaseProvider

from arriero.leases import Lease
from arriero.leases.azure import AzureBlobLease
from lab.lease_servers.azurite import ACCOUNT, KEY, Azurite, start_azurite

LAPSE_SECONDS_MAX = 60.0  # a wait, not a measure


class AzureProvider(LeaseProvider):
    """Leases in a container that does not exist yet."""

    duration = 15.0  # the service takes no shorter one
    bad_name = "orders/../payments"

    def __init__(self, azurite: Azurite) -> None:
        self._azurite = azurite
        self._container = f"leases-{uuid.uuid4().hex}"

    def lease(self, name: str) -> AzureBlobLease:
        return AzureBlobLease(self._azurite.url(self._container), name, credential=KEY)

    def unreachable(self, name: str) -> AzureBlobLease:
        return AzureBlobLease(f"azure+http://127.0.0.1:1/{ACCOUNT}/nothing", name, credential=KEY)

    async def lapse(self, lease: Lease) -> None:
        """Wait the time out: the service's clock cannot be moved, and a break is no lapse."""
        async with asyncio.timeout(LAPSE_SECONDS_MAX), lease.connected() as connection:
            while (await connection.inspect()).holder:
                await connection.wait_for_change(0.2)


@asynccontextmanager
async def open_azure_provider(folder: Path) -> AsyncIterator[LeaseProvider]:
    """A container of its own for each test."""
    yield AzureProvider(start_azurite())


PROVIDERS["azure"] = open_azure_provider
