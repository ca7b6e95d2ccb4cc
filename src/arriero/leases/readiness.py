"""Says to systemd and to Kubernetes whether a program that may lead is ready.

Source: sd_notify(3), with NOTIFY_SOCKET and WATCHDOG_USEC in the environment. The file is for a readiness probe of Kubernetes.
"""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

MICROSECONDS = 1_000_000


class Readiness:
    """Where the state is told.

    Args:
        ready_file: exists while this process leads, with the term in it; None: there is none.
    """

    def __init__(self, ready_file: Path | None) -> None:
        self._file = ready_file
        self._socket = os.environ.pop("NOTIFY_SOCKET", "")  # the program must not speak for us
        watchdog = os.environ.pop("WATCHDOG_USEC", "")
        self._watchdog_seconds = int(watchdog) / MICROSECONDS / 3 if watchdog.isdigit() and int(watchdog) else None

    def tell_waiting(self, lease: str) -> None:
        """This process contends. To systemd that is ready: a standby has started."""
        self._remove_file()
        self._notify(f"READY=1\nSTATUS=waits for the lease {lease}")

    def tell_leading(self, lease: str, term: int) -> None:
        """This process leads."""
        if self._file is not None:
            self._file.write_text(f"{term}\n")
        self._notify(f"READY=1\nSTATUS=leads {lease} in term {term}")

    def tell_stopping(self) -> None:
        """This process is about to end."""
        self._remove_file()
        self._notify("STOPPING=1")

    async def feed_watchdog(self) -> None:
        """Tell systemd's watchdog that the event loop is alive, until cancelled; returns at once if there is no watchdog."""
        while self._watchdog_seconds is not None:
            self._notify("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds)

    def _remove_file(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _notify(self, text: str) -> None:
        if not self._socket:
            return
        address = f"\0{self._socket[1:]}" if self._socket.startswith("@") else self._socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(text.encode(), address)
