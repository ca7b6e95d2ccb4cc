"""Azurite, the emulator of Azure Blob, on a free port, ended with its process.

It is found in the variable ARRIERO_AZURITE, on the PATH, or in node_modules/.bin at the root of the repository.
"""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from .program import start_program
from .unavailable import Unavailable

ACCOUNT = "devstoreaccount1"  # the emulator's own, with a key that is public
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ROOT = Path(__file__).parents[2]


def find_azurite() -> str:
    """Returns the path of Azurite's program for blobs. Raises Unavailable."""
    named = os.environ.get("ARRIERO_AZURITE", "")
    for place in (named, shutil.which("azurite-blob") or "", str(ROOT / "node_modules/.bin/azurite-blob")):
        if place and Path(place).is_file():
            if shutil.which("node") is None:
                raise Unavailable("Azurite needs Node; run: apt-get install nodejs")
            return place
    raise Unavailable("Azurite is not installed; run: npm install --no-save --prefix . azurite@3.35.0")


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
