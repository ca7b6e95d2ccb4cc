"""Azure Blob for the tests of leases: Azurite, the emulator, one for each test worker, on a free port, ended with it.

It is found in the variable ARRIERO_AZURITE, on the PATH, or in node_modules/.bin at the root of the repository.
"""

import asyncio
import atexit
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from lease_providers import PROVIDERS, LeaseProvider, Unavailable
from server_programs import start_program

from arriero.leases import Lease
from arriero.leases.azure import AzureBlobLease

ACCOUNT = "devstoreaccount1"  # the emulator's own, with a key that is public
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ROOT = Path(__file__).parents[2]
LAPSE_SECONDS_MAX = 60.0  # a wait, not a measure


def find_azurite() -> str:
    """Returns the path of Azurite's program for blobs. Raises Unavailable."""
    named = os.environ.get("ARRIERO_AZURITE", "")
    for place in (named, shutil.which("azurite-blob") or "", str(ROOT / "node_modules/.bin/azurite-blob")):
        if place and Path(place).is_file():
            return place
    raise Unavailable("Azurite is not installed; run: npm install azurite")


class Azurite:
    """One emulator with its folder. It keeps its blobs over ``stop`` and ``start``. Raises Unavailable."""

    def __init__(self) -> None:
        self._program = find_azurite()
        self._folder = tempfile.TemporaryDirectory(prefix="arriero-azurite-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    def start(self) -> None:
        """Start it; again on the port that it had."""
        arguments = [
            self._program,
            *("--blobHost", "127.0.0.1", "--blobPort", str(self._port), "--location", self._folder.name),
            # The SDK may speak a newer version of the API than the emulator knows.
            *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
        ]
        listens = r"successfully listens on http://127\.0\.0\.1:(\d+)"
        self._process, printed = start_program(arguments, listens)
        self._port = int(re.findall(listens, printed)[0])

    def stop(self) -> None:
        """End it, as a server that is restarted; it writes its blobs first."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        self._folder.cleanup()

    def url(self, container: str) -> str:
        """URL of a container."""
        return f"azure+http://127.0.0.1:{self._port}/{ACCOUNT}/{container}"


@cache
def start_azurite() -> Azurite:
    """The worker's own emulator."""
    azurite = Azurite()
    atexit.register(azurite.close)
    azurite.start()
    return azurite


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
